"""What each declared limit allows: of slices, of differences between protected values, and of behaviour.

A slice stands to its bound and to the champion, a rate of decisions to the limit of its difference between values of a
protected column, a declared test of behaviour to its limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainworthy.lifecycle.evaluation.fairness import sure_of
from trainworthy.lifecycle.promotion.evidence import PromotionEvidence, usable
from trainworthy.lifecycle.promotion.finding import (
    NO_SPREAD,
    UNDERPOWERED,
    Finding,
    Lacking,
    Ruling,
    declared_in_words,
    gain_in_words,
    interval_in_words,
    lacking,
    lacking_of,
    room,
)
from trainworthy.lifecycle.protocol.figures import (
    BehaviourResult,
    Disparity,
    Estimate,
    PairDifference,
    SliceResult,
    Standing,
)
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, OnUnderpowered
from trainworthy.lifecycle.wording import behaviour_measure, count, decimals_of, metric_name


def judged_slice(result: SliceResult, evidence: PromotionEvidence) -> SliceResult:
    """The result with its standings. Without a champion, or one that was not scored, nothing is asked of a margin:
    the rule of the champion tells of that.
    """
    met = evidence.champion is not None and evidence.champion_comparison is not None
    standings = {
        "bound": _bound(result) if result.declared.bounded else "not_asked",
        "champion": _champion(result) if result.declared.champion_margin is not None and met else "not_asked",
    }
    return result.model_copy(update=standings)


def _bound(result: SliceResult) -> Standing:
    estimate = result.estimate
    if estimate is None or not usable(estimate):
        return "not_shown"
    _, spare, hope = room(result.declared, estimate)
    if hope < 0:
        return "broken"
    # No spread at all is what a few events look like as well as a sure thing.
    return "kept" if spare >= 0 and estimate.has_width else "not_shown"


def _champion(result: SliceResult) -> Standing:
    gain, margin = result.gain, result.declared.champion_margin
    assert margin is not None
    if gain is None or not usable(gain) or not gain.has_width:
        return "not_shown"
    return "broken" if gain.high < -margin else "kept" if gain.low > -margin else "not_shown"


def slice_findings(results: Iterable[SliceResult], primary: str) -> Iterator[Finding]:
    """What the judged slices allow."""
    for result in results:
        if result.bound != "not_asked":
            yield Finding(_allows(result, result.bound), f"slice_bound.{result.bound}", *_bound_in_words(result))
        if result.champion != "not_asked":
            code = f"slice_champion.{result.champion}"
            yield Finding(_allows(result, result.champion), code, *_champion_in_words(result, primary))


def _allows(result: SliceResult, standing: Standing) -> Ruling:
    if standing == "not_shown":
        return UNDERPOWERED[result.declared.on_underpowered]
    return "reject" if standing == "broken" else "promote"


def _bound_in_words(result: SliceResult) -> tuple[str, Lacking | None]:
    """The finding, and what it lacks."""
    estimate = result.estimate
    if estimate is None or not usable(estimate):
        return (
            f"Bound not measured on {_where(result)}: {_why(result)}{_declared(result)}.",
            None,
        )
    rule, spare, _ = room(result.declared, estimate)
    details = f"{metric_name(result.metric)} {interval_in_words(estimate)} on {_where(result)}, {rule}"
    if result.bound == "not_shown" and not estimate.has_width:
        return f"Bound of a slice not judged: {details}; {NO_SPREAD}.", None
    if result.bound == "not_shown":
        lacks = lacking_of(result.declared, estimate)
        beyond = f"{-spare:.{decimals_of(spare, estimate.standard_error)}f}"
        details = (
            f"{details}: the unfavourable end lies {beyond} beyond it; {_detects(result, estimate)}{_declared(result)}"
        )
        return f"Bound of a slice not shown to be kept: {details}.", lacks
    return f"Bound of a slice {result.bound}: {details}.", None


def _champion_in_words(result: SliceResult, primary: str) -> tuple[str, Lacking | None]:
    gain, margin = result.gain, result.declared.champion_margin
    assert margin is not None
    if gain is None or not usable(gain):
        return (
            f"Not compared with the champion on {_where(result)}: {_why(result)}{_declared(result)}.",
            None,
        )
    details = f"{gain_in_words(gain, primary)}, on {_where(result)}, margin {margin:g}"
    if result.champion == "broken":
        return f"Worse than the champion on a slice by more than its margin: {details}.", None
    if result.champion == "kept":
        return f"No worse than the champion on a slice: {details}.", None
    if not gain.has_width:
        return (
            f"Not compared with the champion on a slice: {details}; {NO_SPREAD}{_declared(result)}.",
            None,
        )
    if gain.high < 0:
        details = f"Worse than the champion on a slice, and not shown to be so within its margin: {details}"
    else:
        details = f"Not shown to be as good as the champion on a slice: {details}; {_detects(result, gain)}"
    return f"{details}{_declared(result)}.", lacking(gain, gain.value + margin)


def _where(result: SliceResult) -> str:
    return f"slice {result.slice} ({count(result.rows)} rows)"


def _why(result: SliceResult) -> str:
    return result.told.removesuffix(".") or "evaluate again"


def _detects(result: SliceResult, estimate: Estimate) -> str:
    size = estimate.detectable
    about = f"{size:.{decimals_of(size, estimate.standard_error)}f}"
    return f"{count(estimate.groups)} groups like these show a difference of about {about} or more"


def _declared(result: SliceResult) -> str:
    """What is declared for a slice that too few rows tell of, where it is not the default."""
    return declared_in_words(result.declared.on_underpowered)


def behaviour_findings(results: Iterable[BehaviourResult], declared: Iterable[BehaviourSpec]) -> Iterator[Finding]:
    """What each declared test allows; one that was not measured is not kept."""
    measured = {result.declared: result for result in results}
    for test in declared:
        result = measured.get(test)
        if result is None or result.estimate is None or not usable(result.estimate):
            why = result.told if result is not None and result.told else "evaluate again"
            reason = f"Test of behaviour not measured ({test.title}): {why.removesuffix('.')}."
            yield Finding("shadow", "behaviour.not_measured", reason)
        else:
            yield _behaviour_finding(result, result.estimate)


def _behaviour_finding(result: BehaviourResult, estimate: Estimate) -> Finding:
    limit = result.declared.at_most
    details = (
        f"{result.declared.title}; {behaviour_measure(result.measure)} {interval_in_words(estimate)}, "
        f"at most {limit:g}, {count(result.rows)} rows"
    )
    if result.standing == "broken":
        return Finding("reject", "behaviour.broken", f"Test of behaviour failed: {details}.")
    if result.standing == "not_shown":
        lacks = lacking(estimate, limit - estimate.value)
        return Finding("shadow", "behaviour.not_shown", f"Test of behaviour not safely kept: {details}.", lacks)
    return Finding("promote", "behaviour.kept", f"Test of behaviour kept: {details}.")


def fairness_findings(
    disparities: Iterable[Disparity], limits: Mapping[str, float], columns: Sequence[str],
    on_underpowered: OnUnderpowered = "shadow",
) -> Iterator[Finding]:  # fmt: skip
    """What each limit allows by each protected column: all claims and pairs of values have to keep it, at 95 % each."""
    allows, declared = UNDERPOWERED[on_underpowered], declared_in_words(on_underpowered)
    measured: dict[tuple[str, str], list[Disparity]] = {}
    for disparity in disparities:
        measured.setdefault((disparity.rate, disparity.column), []).append(disparity)
    for rate, limit in limits.items():
        for column in columns:
            of_column = measured.get((rate, column), [])
            if not of_column:
                reason = f"The difference of {metric_name(rate)} by {column} was not measured{declared}."
                yield Finding(allows, "fairness.not_measured", reason)
            yield from (_fairness_finding(disparity, limit, allows, declared) for disparity in of_column)


def _fairness_finding(disparity: Disparity, limit: float, allows: Ruling, declared: str) -> Finding:
    """`allows` and `declared` are what follows from too few rows, and its wording."""
    named = f"{metric_name(disparity.rate)} by {disparity.column} ({disparity.claim})"
    values = sum(value.rate is not None for value in disparity.values)
    widest, surest = _pairs(disparity, values)
    if surest is not None and usable(surest.difference) and sure_of(surest.difference, values) > limit:
        return Finding(
            "reject",
            "fairness.broken",
            f"Limit of fairness broken: {named} {_pair_text(surest, limit)}{_left_out(disparity)}.",
        )
    if widest is None or not usable(widest.difference):
        why = disparity.reason or "no finite figure of each pair of values"
        return Finding(allows, "fairness.not_measured", f"The difference of {named} was not measured: {why}{declared}.")
    measured, difference = f"{named} {_pair_text(widest, limit)}{_left_out(disparity)}", widest.difference
    if difference.high > limit:
        lacks = lacking(difference, limit - difference.value)
        reason = f"Limit of fairness not safely kept: {measured}{declared}."
        return Finding(allows, "fairness.not_shown", reason, lacks)
    if _left_out(disparity):
        reason = f"Limit of fairness kept by a part of the values only: {measured}{declared}."
        return Finding(allows, "fairness.kept_in_part", reason)
    return Finding("promote", "fairness.kept", f"Limit of fairness kept: {measured}.")


def _pairs(disparity: Disparity, values: int) -> tuple[PairDifference | None, PairDifference | None]:
    """The widest and the surest pair; records that do not name them say it of the extremes, which two values are."""
    if disparity.difference is None or disparity.widest is not None or disparity.surest is not None:
        return disparity.widest, disparity.surest
    extremes = PairDifference(highest=disparity.highest, lowest=disparity.lowest, difference=disparity.difference)
    return extremes if values == 2 else None, extremes


def _pair_text(pair: PairDifference, limit: float) -> str:
    return f"differs by {interval_in_words(pair.difference)} from {pair.lowest} to {pair.highest}, at most {limit:g}"


def _left_out(disparity: Disparity) -> str:
    """How many values are in no difference, since they have too few rows or groups or are too many."""
    small, more = sum(rate_of_value.rate is None for rate_of_value in disparity.values), disparity.other_values
    left_out = [f"{small} value{'s' if small > 1 else ''} of too few rows"] if small else []
    left_out += [f"{more} beyond the {len(disparity.values)} most frequent values"] if more else []
    return f"; {' and '.join(left_out)} left out" if left_out else ""
