"""Ends of a training in earlier runs, from the table of attempts: tries are counted of the training, not of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from trainworthy.lifecycle.protocol.attempts import AttemptRow
from trainworthy.lifecycle.protocol.training_figures import Attempt
from trainworthy.lifecycle.spec.frozen import Frozen


class EarlierEnds(Frozen):
    """Ends without an answer since the training reached its newest checkpoint, oldest first.

    The end of the attempt that wrote this checkpoint counts, if it is known. `since` is the Unix time at which the
    oldest of these attempts began; `run_ids` are their runs.
    """

    attempts: tuple[Attempt, ...] = ()
    since: float = 0.0
    run_ids: frozenset[str] = frozenset()

    @property
    def reached(self) -> int:
        """The step of the newest checkpoint that any of them had; 0 if there is none."""
        return max((attempt.to_step for attempt in self.attempts), default=0)

    def still_counting(self, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
        """Those that count beside ends of this run: none, once one of these got past them."""
        return () if any(attempt.to_step > self.reached for attempt in attempts) else self.attempts

    def in_words(self, also: Sequence[Attempt] = ()) -> str:
        """How often it ended, since when and by what, with `also` those of this run."""
        ends = (*self.attempts, *also)
        causes = ", ".join(f"{cause} {count}" for cause, count in Counter(end.cause for end in ends).most_common())
        times = "once" if len(ends) == 1 else f"{len(ends)} times"
        since = f"{datetime.fromtimestamp(self.since, UTC):%Y-%m-%d %H:%M} UTC"
        return f"it ended {times} since {since} ({causes}) without a checkpoint after step {self.reached}"


NO_EARLIER = EarlierEnds()


def earlier_ends(rows: Sequence[AttemptRow], reached: int, host: str) -> EarlierEnds:
    """What counts of a training's attempts, newest first; `reached` is the step of its newest checkpoint on `host` now.

    After an answer or a newer checkpoint, whoever wrote it, the ends before count no more. A cancel, a failure outside
    the worker and a folder that another run had taken are never counted.
    """
    ends: list[tuple[Attempt, AttemptRow]] = []
    oldest_first = list(reversed(rows))
    # The newest checkpoint's step when the next attempt began, and on which machine that was.
    begins = [(row.started.from_step or 0, row.started.process.host) for row in oldest_first]
    next_seen = [*begins, (reached, host)][1:]
    best_step = 0
    for row, (seen_step, seen_host) in zip(oldest_first, next_seen, strict=True):
        from_step = row.started.from_step or 0
        if from_step > best_step:
            # An attempt before it wrote this checkpoint, and its end does not say so: it is open, or lost elsewhere.
            ends.clear()
            best_step = from_step
        if row.ended is None:
            continue
        if row.ended.outcome == "answered":
            # What begins after it may be a rerun in an empty folder.
            ends.clear()
            best_step = 0
            continue
        to_step = _reached_by(row, seen_step, seen_host)
        end = _end_of(row, best_step, to_step)
        if to_step is not None and to_step > best_step:
            ends.clear()
            best_step = to_step
        if end is not None:
            ends.append((end, row))
    if reached > best_step:
        ends.clear()
    if not ends:
        return NO_EARLIER
    return EarlierEnds(
        attempts=tuple(end for end, _ in ends),
        since=ends[0][1].started.started_at,
        run_ids=frozenset(row.started.charged_to.run_id for _, row in ends),
    )


def _reached_by(row: AttemptRow, seen_step: int, seen_host: str) -> int | None:
    """The newest checkpoint's step after an ended attempt; None if nobody knows it.

    Of a lost attempt it is what the next attempt found, if that was on the same machine: another may have another disk.
    """
    assert row.ended is not None
    if row.ended.to_step is not None:
        return row.ended.to_step
    return seen_step if row.started.process.host == seen_host else None


def _end_of(row: AttemptRow, best_step: int, to_step: int | None) -> Attempt | None:
    """An ended attempt as an end that counts; None if it does not count. `best_step` is the best of all before it."""
    assert row.ended is not None
    # A lost one was killed with the process that waited for it.
    cause = "killed" if row.ended.outcome == "lost" else row.ended.cause
    if cause is None or cause == "lease_lost" or to_step is None:
        return None
    # From the best step, not its own: a preemption is free only where it went beyond the checkpoints before it.
    return Attempt(
        cause=cause, told=row.ended.told, from_step=best_step, to_step=max(best_step, to_step), seconds=row.seconds
    )
