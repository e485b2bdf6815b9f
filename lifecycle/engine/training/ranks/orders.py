"""What the first rank tells the others, by number, and what a rank's part of a divided model asks of the ranks."""

from __future__ import annotations

from typing import Protocol

from trainworthy.lifecycle.protocol.ranks import Phase
from trainworthy.lifecycle.storage.rank_files import PlaceFile

# What the first rank orders. A verdict is of the update under way; what follows it here asks for help (shards.py).
UPDATE, PASS_OVER, RESTART, END, ASKED, START, VERDICT, LOOK, GATHER, TAKE, FINITE = range(11)


class Messages(Protocol):
    """This rank's messages with the others (group.py): so many, whether it is the first, and where it is."""

    size: int
    place: PlaceFile

    @property
    def first(self) -> bool: ...

    def ask(self, kind: int, what: int = 0) -> None: ...

    def share_content(self, content: bytes, phase: Phase = "order") -> bytes: ...

    def backward_begins(self) -> None: ...
