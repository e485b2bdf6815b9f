"""Whether an existing verdict already answers the question."""

from __future__ import annotations

from lifecycle.records import Verdict


def still_answers(verdict: Verdict, identity: str, git_dirty: bool | None, champion_version: str | None) -> bool:
    """True if the newest verdict was asked the same and nothing that it depends on has changed.

    `identity` covers evaluation, rules and limits. A promoted model must still be the champion; a
    model that was held back is judged again once the tree is clean (or dirty), or the champion another.
    """
    if verdict.identity != identity:
        return False
    if verdict.decision == "promote":
        return champion_version == verdict.model_version
    return verdict.provenance.git_dirty == git_dirty and verdict.champion == champion_version
