"""Whether an existing verdict already answers the question."""

from __future__ import annotations

from lifecycle.records import Verdict


def still_answers(
    verdict: Verdict, identity: str, git_dirty: bool | None, champion_version: str | None, first_model: bool
) -> bool:
    """True if the verdict was asked the same and nothing that it depends on has changed.

    `identity` covers evaluation, rules and limits. A promoted model must still be the champion; a
    model that was held back is judged again once the tree is clean (or dirty), the champion another, or
    first_model declared otherwise. One that was held back by a measurement of time is never the answer: the next may
    fall on a machine with less to do. For the champion itself that declaration says nothing.
    """
    if verdict.identity != identity:
        return False
    if verdict.decision == "promote":
        return champion_version == verdict.model_version
    if verdict.measure_again:
        return False
    asked = (verdict.provenance.git_dirty, verdict.champion)
    declared = first_model == verdict.first_model or verdict.model_version == champion_version
    return declared and asked == (git_dirty, champion_version)
