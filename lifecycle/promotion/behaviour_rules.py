"""How each declared test of behaviour stands to its limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainworthy.lifecycle.promotion.evidence import usable
from trainworthy.lifecycle.promotion.finding import Finding, interval_in_words, lacking
from trainworthy.lifecycle.protocol.figures import BehaviourResult, Estimate
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec
from trainworthy.lifecycle.wording import behaviour_measure, count


def behaviour_findings(results: Iterable[BehaviourResult], declared: Iterable[BehaviourSpec]) -> Iterator[Finding]:
    """What each declared test allows; one that was not measured is not kept."""
    measured = {result.declared: result for result in results}
    for test in declared:
        result = measured.get(test)
        if result is None or result.estimate is None or not usable(result.estimate):
            why = result.told if result is not None and result.told else "evaluate again"
            yield Finding("shadow", f"Test of behaviour not measured ({test.title}): {why.removesuffix('.')}.")
        else:
            yield _finding(result, result.estimate)


def _finding(result: BehaviourResult, estimate: Estimate) -> Finding:
    limit = result.declared.at_most
    details = (
        f"{result.declared.title}; {behaviour_measure(result.measure)} {interval_in_words(estimate)}, "
        f"at most {limit:g}, {count(result.rows)} rows"
    )
    if result.standing == "broken":
        return Finding("reject", f"Test of behaviour failed: {details}.")
    if result.standing == "not_shown":
        lacks = lacking(estimate, limit - estimate.value)
        return Finding("shadow", f"Test of behaviour not safely kept: {details}.", lacks)
    return Finding("promote", f"Test of behaviour kept: {details}.")
