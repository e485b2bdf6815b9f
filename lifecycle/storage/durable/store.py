"""Where checkpoints of one training lie, beside the folder that it writes them into."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import DURABLE_SECONDS

Loaded = TypeVar("Loaded")


class CheckpointStore(Protocol):
    """Complete checkpoints by their names. All of it raises OSError if the storage does not answer."""

    @property
    def where(self) -> str:
        """What people call it: a folder, or an address."""
        ...

    def names(self) -> list[str]:
        """Newest first."""
        ...

    def fetch(self, name: str) -> Path:
        """One of them as a folder of this machine; its bytes are not verified."""
        ...

    def add(self, path: Path) -> None:
        """Copy a complete checkpoint: whole or not at all; the newest KEEP stay.

        Raises LeaseLostError where another machine is known to write here.
        """
        ...

    def forget_after(self, step: int) -> None:
        """Remove those of later steps: the training goes on from before them."""
        ...


class Copies:
    """Copies of a training's checkpoints on storage that outlives the machine; none if there is no such storage."""

    def __init__(self, store: CheckpointStore | None) -> None:
        self._store = store
        self._failing_since: float | None = None

    def add(self, path: Path) -> None:
        """A storage that is away for a moment ends no training; one that stays away does, by its OSError."""
        if self._store is None:
            return
        try:
            self._store.add(path)
        except OSError as error:
            now = time.monotonic()
            # From the first failure on, and not from the newest copy: that may be hours old where one is rarely due.
            self._failing_since = now if self._failing_since is None else self._failing_since
            if now - self._failing_since > DURABLE_SECONDS:
                raise
            say(f"{path.name} could not be copied to {self._store.where}: {error}; the next one will be tried")
        else:
            self._failing_since = None


def newest_sound(
    stores: Sequence[CheckpointStore], load: Callable[[Path], Loaded]
) -> tuple[Path, Loaded, tuple[str, ...]] | None:
    """The newest checkpoint of the stores that `load` takes, and what it gives; None if there is none at all.

    Copies count as those in the first store do. One for which `load` raises CheckpointError is passed over for the one
    before and named in the notes. Raises CheckpointError if all are: a silent fresh start would hide the loss.
    """
    checkpoints = [(name, store) for store in stores for name in store.names()]
    refused = []
    # Stable: of equal steps the one in the first store is first.
    for name, store in sorted(checkpoints, key=lambda checkpoint: checkpoint[0], reverse=True):
        path = store.fetch(name)
        try:
            loaded = load(path)
        except CheckpointError as error:
            refused.append(f"{name}: {error.problem}")
        else:
            copy = (f"resumed from the copy {name} in {store.where}",) if store is not stores[0] else ()
            return path, loaded, (*(f"skipped checkpoint {line}" for line in refused), *copy)
    if refused:
        raise CheckpointError(
            "every checkpoint is damaged or of another training",
            value=refused,
            fix=f"delete {' and '.join(store.where for store in stores)} to start afresh",
        )
    return None
