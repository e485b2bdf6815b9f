"""For types: what a record may lack, and a test knows to be there."""

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    assert value is not None
    return value
