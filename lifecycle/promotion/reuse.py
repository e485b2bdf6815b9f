"""Whether an existing verdict already answers the question, and what is said where it does."""

from __future__ import annotations

from typing import NamedTuple

from trainworthy.lifecycle.protocol.records import Verdict


def still_answers(
    verdict: Verdict,
    identity: str,
    git_dirty: bool | None,
    champion_version: str | None,
    first_model: bool,
    *,
    of_champion: bool = False,
) -> bool:
    """True if the verdict was asked the same and nothing that it depends on has changed.

    `identity` covers evaluation, rules and limits. A promoted model must still be the champion; a
    model that was held back is judged again once the tree is clean (or dirty), the champion another, or
    first_model declared otherwise. One that was held back by a measurement of time is never the answer: the next may
    fall on a machine with less to do. For the champion itself that declaration says nothing, nor for its artifact under
    another decision (`of_champion`).
    """
    if verdict.identity != identity:
        return False
    if verdict.decision == "promote":
        return champion_version == verdict.model_version
    if verdict.measure_again:
        return False
    recorded = (verdict.provenance.git_dirty, verdict.champion)
    declared = first_model == verdict.first_model or of_champion or verdict.model_version == champion_version
    return declared and recorded == (git_dirty, champion_version)


class Reused(NamedTuple):
    """A verdict that a run found instead of making one: what is said of it, and the last judgement."""

    lines: tuple[str, ...]
    last: Verdict


def reused_verdict(verdict: Verdict, last: Verdict, champion: str | None) -> Reused:
    """`last` is the newest verdict of the log, `champion` the version that is live."""
    lines = [f"An existing verdict is reused, since nothing that it depends on has changed: {_judged(verdict)}."]
    if last != verdict:
        lines.append(f"The last judgement is another: {_judged(last)}.")
    lines.append(f"The champion is version {champion}." if champion else "There is no champion.")
    return Reused(tuple(lines), last)


def _judged(verdict: Verdict) -> str:
    origin = verdict.provenance
    return (
        f"{verdict.decision}, model version {verdict.model_version}, {origin.created_at[:10]}, run {origin.run_id[:8]}"
    )
