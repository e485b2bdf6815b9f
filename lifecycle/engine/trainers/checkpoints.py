"""Checkpoints whose files a training script writes itself; the newest sound one is offered.

What lies in them is the script's: nothing of it is read here, so that no pickle is loaded. A checkpoint has these files
in `files`, and in `session.json` what the session itself goes on with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.engine.training.checkpoints.schedule import Schedule
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.storage.checkpoints import (
    checkpoint_path,
    verify_checkpoint,
    writing,
)
from trainworthy.lifecycle.storage.durable.place import durable_store, stores_of
from trainworthy.lifecycle.storage.durable.store import Copies, newest_sound

FILES, SESSION = "files", "session.json"


class ScriptCheckpoints:
    """The checkpoints of one training, with copies on durable storage if there is any.

    `step` is that of the newest one that was written or offered, `seconds` what writing it took.
    """

    def __init__(self, job: TrainJob) -> None:
        self.folder, self._identity, self._stores = Path(job.out) / "checkpoints", job.identity, stores_of(job)
        self._copies = Copies(durable_store(job))
        self.schedule = Schedule(job.interruptions, job.training.checkpoint_every_steps)
        self.written, self.step = 0, 0
        self.notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return self.schedule.stored

    def due(self, step: int) -> bool:
        """True if one of this step should be written; one of the same step is never due again."""
        return step != self.step and self.schedule.due(step)

    @contextmanager
    def writing(self, step: int, session: dict[str, Any]) -> Iterator[Path]:
        """A folder for the script's files; a checkpoint of the step once the block has ended without an error."""
        started = time.monotonic()
        with writing(self.folder, step, self._identity) as draft:
            files = draft.path / FILES
            files.mkdir()
            yield files
            if not any(path.is_file() for path in files.rglob("*")):
                raise CheckpointError("the trainer wrote no file into its checkpoint", fix="save into the given folder")
            (draft.path / SESSION).write_bytes(canonical_json(session))
        self.step, self.written = step, self.written + 1
        self.schedule.begun()
        self._copies.add(checkpoint_path(self.folder, step))
        # The training waits for all of a write.
        self.schedule.blocked = self.schedule.stored = time.monotonic() - started

    def newest(self) -> Path | None:
        """The newest sound one, None if there is none at all; notes tell of those that were passed over.

        Raises CheckpointError if all are damaged or foreign.
        """
        newest = newest_sound(self._stores, lambda path: verify_checkpoint(path, identity=self._identity))
        if newest is None:
            return None
        path, manifest, self.notes = newest
        self.step = int(manifest["step"])
        return path

    def cost_notes(self) -> tuple[str, ...]:
        """How many there were, in words; none if none was written."""
        return (f"the trainer wrote {self.written} checkpoints",) if self.written else ()
