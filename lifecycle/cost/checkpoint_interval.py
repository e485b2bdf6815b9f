"""How often a checkpoint is written: by what one costs and how often a machine stops (Young 1974, Daly 2006)."""

from __future__ import annotations

import math

from trainworthy.lifecycle.protocol.jobs import DURABLE_SECONDS, MTBF_SECONDS, Interruptions

# Of a spot machine, where the price table does not tell: providers publish shares a month, and no rate.
SPOT_MTBF_SECONDS = 2 * 3600.0
# Share of the training that checkpoints may block, and share of it that a write may go on beside it.
MOST_BLOCKED, MOST_WRITING = 0.01, 0.1
# No more work is lost than this, whatever the formula says; on a spot machine DURABLE_SECONDS until it is copied.
LONGEST_SECONDS = 30 * 60.0
# The first one, while nothing is measured: soon enough that a full disk is told before the night.
FIRST_CHECKPOINT_SECONDS = 10.0


def interruptions(
    spot: bool, per_hour: float | None, durable: str | None = None, machines: int = 1
) -> Interruptions:  # fmt: skip
    """From what is declared; `per_hour` is the price table's rate for spot machines, None if it has none.

    Any of so many `machines` that stops ends the training of all.
    """
    seconds = MTBF_SECONDS
    if spot:
        seconds = SPOT_MTBF_SECONDS if not per_hour else min(3600 / per_hour, MTBF_SECONDS)
    return Interruptions(mtbf_seconds=seconds / machines, spot=spot, durable=durable)


def interval_seconds(blocked_seconds: float, written_seconds: float, machine: Interruptions) -> float:
    """Seconds from one checkpoint to the next.

    `blocked_seconds` is what the loop waits for one, `written_seconds` what passes until it is stored. Young and Daly's
    optimum, longer where the caps ask for it, never longer than the bound.
    """
    best = math.sqrt(2 * blocked_seconds * machine.mtbf_seconds)
    least = max(blocked_seconds / MOST_BLOCKED, written_seconds / MOST_WRITING)
    return min(max(best, least), longest_seconds(written_seconds, machine))


def longest_seconds(written_seconds: float, machine: Interruptions) -> float:
    """The bound. On a spot machine the newest stored state grows as old as an interval and a write."""
    if not machine.spot:
        return LONGEST_SECONDS
    return max(DURABLE_SECONDS - written_seconds, written_seconds)


def expected_checkpoints(
    updates: int, update_seconds: float, every_steps: int | None, blocked_seconds: float, written_seconds: float
) -> int:
    """How many a stage of that many updates writes, its last one included."""
    if every_steps is None:
        interval = interval_seconds(blocked_seconds, written_seconds, Interruptions())
        return 1 + int(updates * update_seconds / max(interval, FIRST_CHECKPOINT_SECONDS))
    return 1 + updates // every_steps
