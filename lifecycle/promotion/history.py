"""Who was champion when, read from the verdict log: pure functions over its entries.

The champions form a stack: a promotion pushes, a rollback pops. Promote 1, promote 2, rollback: 1 is champion.
Promote 3, rollback: 1 again, since 3 replaced 1. A champion that is judged and promoted again stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.spec.frozen import Frozen


class RolledBack(Frozen):
    """A version that a rollback took off in favour of another, when (ISO 8601) and in whose words why."""

    model_version: str
    to_version: str
    at: str
    reason: str

    @property
    def sentence(self) -> str:
        """The sentence that a verdict gives."""
        return f"Version {self.model_version} was rolled back on {self.at[:10]}: {self.reason.rstrip('.')}"


class Tenure(Frozen):
    """The time that a champion was live, by the entry that made it; `until` is None for the present one."""

    entry: LogEntry
    until: str | None


def champion_stack(entries: Sequence[LogEntry]) -> tuple[LogEntry, ...]:
    """The promotions in force, oldest first: the last is the present champion's, the one before its predecessor's."""
    stack: list[LogEntry] = []
    for entry in entries:
        if entry.action == "promote":
            if stack and stack[-1].model_version == entry.model_version:
                stack.pop()
            stack.append(entry)
        elif entry.action == "rollback":
            while stack and stack[-1].verdict_sha256 != entry.verdict_sha256:
                stack.pop()
    return tuple(stack)


def predecessor(entries: Sequence[LogEntry], artifacts: Mapping[str, str]) -> LogEntry | None:
    """The promotion before the present champion's, of a version that was not taken off itself; None without one.

    `artifacts` has the artifact's sha256 by version, as far as known. One that was taken off in favour of another
    artifact was so under each of its decisions.
    """
    stack = champion_stack(entries)
    live = stack[-1].model_version if stack else None
    of_artifacts = [
        entry.model_copy(update={"model_version": artifacts.get(entry.model_version, entry.model_version)})
        for entry in entries
    ]
    before = (entry for entry in reversed(stack) if entry.model_version != live)
    return next(
        (
            entry
            for entry in before
            if rolled_back(entries, entry.model_version) is None
            and rolled_back(of_artifacts, artifacts.get(entry.model_version, entry.model_version)) is None
        ),
        None,
    )


def rollback_target(entries: Sequence[LogEntry], artifacts: Mapping[str, str]) -> LogEntry:
    """The promotion that a rollback goes back to; `artifacts` as for predecessor. Raises ChampionError without one."""
    target, stack = predecessor(entries, artifacts), champion_stack(entries)
    if not stack:
        raise ChampionError("there is no champion to roll back", fix="train and promote a model first")
    if target is None:
        problem = f"there is no earlier champion than version {stack[-1].model_version} to go back to"
        fix = "train a better model, or switch this one off in your serving system: Trainworthy doesn't serve"
        raise ChampionError(problem, fix=fix)
    return target


def rolled_back(entries: Sequence[LogEntry], model_version: str) -> RolledBack | None:
    """The rollback that took this version off, unless it was made champion again since."""
    live: str | None = None
    rollback: RolledBack | None = None
    for entry in entries:
        if entry.action not in ("promote", "rollback"):
            continue
        if entry.action == "rollback" and live == model_version:
            rollback = RolledBack(
                model_version=model_version, to_version=entry.model_version, at=entry.written_at, reason=entry.reason
            )
        live = entry.model_version
        if live == model_version:
            rollback = None
    return rollback


def tenures(entries: Sequence[LogEntry]) -> tuple[Tenure, ...]:
    """Every champion's time, oldest first."""
    made = [entry for entry in entries if entry.action in ("promote", "rollback")]
    ends = [entry.written_at for entry in made[1:]]
    return tuple(Tenure(entry=entry, until=until) for entry, until in zip(made, [*ends, None], strict=False))
