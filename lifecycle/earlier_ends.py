"""Ends of a training in earlier runs, from the table of attempts: tries are counted of the training, not of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from trainworthy.lifecycle.protocol.attempts import AttemptRow
from trainworthy.lifecycle.protocol.training_figures import Attempt
from trainworthy.lifecycle.spec.frozen import Frozen


class EarlierEnds(Frozen):
    """Ends without an answer since the training last got past a checkpoint that it had: oldest first.

    The end of the try that got past it is the first. `since` is the Unix time at which that try began, and `run_ids`
    the runs that made them.
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

    A training's answer and a newer checkpoint let all before them count no more. What says nothing of the training
    counts neither way: a cancel, a machine that started no worker, a folder that another run had taken.
    """
    ends: list[tuple[Attempt, AttemptRow]] = []
    oldest_first = list(reversed(rows))
    # What whoever looked next saw, and on which machine.
    looks = [(row.started.from_step or 0, row.started.process.host) for row in oldest_first] + [(reached, host)]
    best = 0
    for row, look in zip(oldest_first, looks[1:], strict=True):
        if row.ended is None:
            continue
        before = max(best, row.started.from_step or 0)
        to_step = _reached_by(row, *look)
        best = max(before, to_step or 0)
        if row.ended.outcome == "answered" or best > before:
            ends.clear()
        if (end := _end_of(row, before, to_step)) is not None:
            ends.append((end, row))
    if not ends:
        return NO_EARLIER
    return EarlierEnds(
        attempts=tuple(end for end, _ in ends),
        since=ends[0][1].started.started_at,
        run_ids=frozenset(row.started.charged_to.run_id for _, row in ends),
    )


def _reached_by(row: AttemptRow, seen: int, host: str) -> int | None:
    """The newest checkpoint's step after an ended attempt; None if nobody knows it.

    Of a lost one the next look at the folder tells it, if it was on the same machine: another may have another disk.
    """
    assert row.ended is not None
    if row.ended.to_step is not None:
        return row.ended.to_step
    return seen if row.started.process.host == host else None


def _end_of(row: AttemptRow, before: int, to_step: int | None) -> Attempt | None:
    """An attempt as an end that counts; None if it is none."""
    assert row.ended is not None
    # A lost one was killed with the process that waited for it.
    cause = "killed" if row.ended.outcome == "lost" else row.ended.cause
    if cause is None or cause == "lease_lost" or to_step is None:
        return None
    # With one that was preempted free as in a single run: where it got past what there was.
    return Attempt(
        cause=cause, told=row.ended.told, from_step=before, to_step=max(before, to_step), seconds=row.seconds
    )
