"""The checkpoints of our own loop: written beside it, as often as pays, and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import load_checkpoint, load_newest
from trainworthy.lifecycle.engine.training.checkpoints.schedule import Schedule
from trainworthy.lifecycle.engine.training.checkpoints.writer import Writer
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import CheckpointRef, Interruptions, TrainJob
from trainworthy.lifecycle.storage.checkpoints import (
    MANIFEST,
    checkpoint_path,
    verify_checkpoint,
)
from trainworthy.lifecycle.storage.durable.place import durable_store, own_store, stores_of


class Checkpoints:
    """The checkpoints of one training. With `every_steps` None the interval follows from what they cost."""

    def __init__(
        self,
        writer: Writer,
        machine: Interruptions,
        every_steps: int | None = None,
        start_step: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer, self._schedule, self._now = writer, Schedule(machine, every_steps, now), now
        self._start_step = start_step
        self._began = now()
        self._late = False
        self.written, self.blocked_seconds, self.late_steps = 0, 0.0, 0

    def after_step(self, state: TrainState) -> None:
        """Begin a checkpoint if one is due. One that is due while another is written waits for a later step.

        Raises what the write before it raised.
        """
        busy = self._writer.busy()
        self._schedule.updated()
        self._learn_cost()
        if not self._late and not self._schedule.due(state.step):
            return
        self._late = busy
        if busy:
            self.late_steps += 1
        else:
            self._begin(state)
            self.blocked_seconds += self._schedule.blocked

    def last(self, state: TrainState) -> CheckpointRef:
        """The checkpoint of this step, on disk. Raises what a write raised."""
        started = self._now()
        reference = self._last(state)
        self.blocked_seconds += self._now() - started
        state.clock.checkpoint_saved(state.step)
        return reference

    def _last(self, state: TrainState) -> CheckpointRef:
        try:
            newest = self._writer.finish()
        except OSError as error:
            # This step's own write may still go well, and if not, it tells for itself.
            say(f"the checkpoint before could not be written: {error}")
            newest = None
        if newest is not None and newest.step == state.step:
            return newest.reference
        if state.step == self._start_step and (reference := self._resumed_from(state.step)):
            return reference
        self._begin(state)
        stored = self._writer.finish()
        assert stored is not None
        return stored.reference

    @property
    def seconds(self) -> float:
        """What the newest took in all, 0 before there is one."""
        newest = self._writer.newest
        return self._schedule.blocked + newest.seconds if newest else 0.0

    @property
    def interval_seconds(self) -> float:
        """What lies between two, by the cost of the newest."""
        self._learn_cost()
        return self._schedule.interval_seconds

    def cost_notes(self) -> tuple[str, ...]:
        """What they cost, in a sentence; none if none was written."""
        if not self.written:
            return ()
        share = self.blocked_seconds / max(self._now() - self._began, 1e-9)
        late = f", {self.late_steps} updates late" if self.late_steps else ""
        return (f"{self.written} checkpoints, waited for {share:.1%} of the time{late}",)

    def _learn_cost(self) -> None:
        if self._writer.newest is not None:
            self._schedule.stored = self._writer.newest.seconds

    def _begin(self, state: TrainState) -> None:
        self._schedule.begun()
        self._schedule.blocked = self._writer.begin(state)
        self.written += 1
        state.clock.checkpoint_saved(state.step)

    def _resumed_from(self, step: int) -> CheckpointRef | None:
        """The checkpoint that was loaded, if it lies in the training's own folder."""
        path = checkpoint_path(self._writer.folder, step)
        try:
            verify_checkpoint(path, identity=self._writer.identity)
        except CheckpointError:
            return None
        return CheckpointRef(path=str(path), sha256=sha256_file(path / MANIFEST))


@contextmanager
def open_checkpoints(job: TrainJob, state: TrainState) -> Iterator[Checkpoints]:
    """The stage's checkpoints from this state on; on the way out the write under way is waited for."""
    writer = Writer(own_store(job).folder, job.identity, durable_store(job))
    try:
        yield Checkpoints(writer, job.interruptions, job.training.checkpoint_every_steps, start_step=state.step)
    finally:
        writer.close()


def resume(job: TrainJob, state: TrainState) -> tuple[str, ...]:
    """Load the stage's own newest checkpoint, or its copy, else the one of the stage before; notes on them."""
    resumed, notes = load_newest(stores_of(job), job.identity, state)
    if not resumed and job.start is not None:
        return load_checkpoint(Path(job.start.path), job.identity, state, job.start.sha256)
    return notes


def go_back(job: TrainJob, step: int) -> None:
    """Remove the stage's checkpoints and copies of later steps, so that `resume` finds the newest before."""
    # The copies first: if they cannot be reached, the training's own are still there, and so is what it goes back from.
    for store in reversed(stores_of(job)):
        store.forget_after(step)
