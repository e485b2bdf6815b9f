"""catalogue.toml: every check of preflight, in the order in which they run, with all that is said of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trainworthy.lifecycle.gates.check import Check, CheckWords, Outcome

SubjectT = TypeVar("SubjectT")
_FILE = Path(__file__).with_name("catalogue.toml")
CATALOGUE: tuple[CheckWords, ...] = tuple(
    CheckWords(**{**entry, **{name: tuple(entry.get(name, ())) for name in ("follows", "measured_by")}})
    for entry in tomllib.loads(_FILE.read_text())["check"]
)
_BY_ID = {check.id: check for check in CATALOGUE}


def check_of(name: str, look: Callable[[SubjectT], Outcome]) -> Check[SubjectT]:
    """The catalogue's check of that id, with what looks. Raises KeyError."""
    return Check(**vars(_BY_ID[name]), look=look)
