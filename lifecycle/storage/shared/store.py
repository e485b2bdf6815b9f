"""What state that several machines share needs of its storage, whichever it is: a folder, or a bucket.

Keys are those of the layout below the state folder, as `records/toy/newest/all/full`: names with slashes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainworthy.lifecycle.errors import LeaseLostError
from trainworthy.lifecycle.storage.durable.bucket import ObjectChangedError

# Of whom has it now: the error of a process that lost its lease.
Lost = Callable[[str], LeaseLostError]


@dataclass(frozen=True)
class StoredObject:
    """What lies under a key, and its version: another content has another one."""

    content: bytes
    version: str


@dataclass(frozen=True)
class HeldLease:
    """A lease that this process was given. `token` is a fencing token: it rises with each holder of the lease.

    `took_over` is true if a holder before it never let go: what that one has begun may still arrive. `check` raises
    LeaseLostError once another has the lease.
    """

    token: int
    took_over: bool
    check: Callable[[], None]


class StateStore(Protocol):
    """Objects by their keys. All of it raises StateError if the storage does not answer or refuses.

    Raises SettingsError for a key that would lead elsewhere.
    """

    @property
    def where(self) -> str:
        """What people call it: a folder, or an address."""
        ...

    def get(self, key: str) -> StoredObject | None:
        """What lies there; None if nothing does."""
        ...

    def put_new(self, key: str, content: bytes) -> None:
        """Write what is not there yet. Raises ObjectChangedError if something is, also if this call has written it."""
        ...

    def swap(self, key: str, content: bytes, version: str, held: HeldLease | None = None) -> None:
        """Write over what is still of this version. Raises ObjectChangedError if it is not.

        With `held` raises LeaseLostError, and writes nothing, once another has that lease.
        """
        ...

    def names(self, below: str) -> list[str]:
        """Keys below one, those that were written last first."""
        ...

    def children(self, below: str) -> list[str]:
        """The names right below a key, of what lies there or further below: first the one that was written to last."""
        ...

    def has(self, key: str) -> bool:
        """True if something lies there."""
        ...

    def send(self, key: str, path: Path) -> None:
        """Write a file's bytes, whatever lies there: whole or not at all."""
        ...

    def receive(self, key: str, path: Path) -> None:
        """Write what lies there to a file, whose folder is made."""
        ...

    def lease(
        self,
        name: str,
        known: int,
        say_waiting: Callable[[], None],
        lost: Lost,
        fence: Callable[[HeldLease], None] | None = None,
    ) -> AbstractContextManager[HeldLease]:
        """Hold a lease alone, after whoever holds it now; `say_waiting` is called once if somebody does.

        Its token is above `known`, which is the highest that what it guards has seen. `lost` makes the error of who
        lost it. `fence` is called first of all where a holder before it never let go; if it fails, neither does this
        one, so that the next one calls it again.
        """
        ...

    def check(self) -> None:
        """Raises StateError unless it is there, may be written, and leaves alone what it is told to leave alone."""
        ...


def point(store: StateStore, key: str, content: bytes) -> None:
    """Let a key hold this, whatever it held: of several that write it at once the last one stays."""
    while (stored := store.get(key)) is None or stored.content != content:
        with suppress(ObjectChangedError):
            if stored is None:
                store.put_new(key, content)
            else:
                store.swap(key, content, stored.version)
            return


def put_same(store: StateStore, key: str, content: bytes) -> None:
    """Write what goes by its hash, so that what is there already is the same."""
    with suppress(ObjectChangedError):
        store.put_new(key, content)
