"""Who may write the copies of a training: a name beside them, as lease.py takes and renews it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainworthy.lifecycle.errors import LeaseLostError


@dataclass(frozen=True)
class Name:
    """Who holds the copies: an owner that no two trainings share, its machine, and how often it has renewed."""

    owner: str
    host: str
    renewal: int


class Holder(Protocol):
    """Where the name lies. All of it raises OSError if the storage does not answer."""

    @property
    def where(self) -> str: ...

    def read(self) -> Name | None:
        """Who holds it, None if nobody does."""
        ...

    def take(self, owner: str, previous: Name | None) -> None:
        """Make `owner` the holder, after `previous`. Raises LeaseLostError if another is known to have come first."""
        ...

    def renew(self, owner: str) -> Name | None:
        """Say that `owner` is alive; gives the other's name where another has taken it."""
        ...

    def release(self, owner: str) -> None:
        """Let go of it, if `owner` has it."""
        ...


def taken(where: str, name: Name, does: str) -> LeaseLostError:
    """The error of who finds another there."""
    return LeaseLostError(
        f"another machine trains the same and {does}",
        value=f"{where}, held by {name.host}",
        fix="let that training end, or end it; one of them is enough, and the other takes its checkpoint",
    )
