"""codes.toml: codes of findings and errors, how a training's process ended, and what a verdict decides, in words."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CodeWords:
    """A code that a record, a log line or an error carries. `of` is the check, or the error's class, that gives it."""

    id: str
    of: str
    means: str
    fix: str = ""

    @property
    def is_error(self) -> bool:
        return self.of.endswith("Error")


@dataclass(frozen=True)
class EndWords:
    """How a training's process ended without an answer: its cause, its exit code, and what follows."""

    id: str
    means: str
    follows: str
    exit: int | None = None


@dataclass(frozen=True)
class DecisionWords:
    """What a verdict decides: when it does, and what follows for the model."""

    id: str
    means: str
    follows: str


_ENTRIES = tomllib.loads(Path(__file__).with_name("codes.toml").read_text(encoding="utf-8"))
CODES: tuple[CodeWords, ...] = tuple(CodeWords(**entry) for entry in _ENTRIES["code"])
ENDS: tuple[EndWords, ...] = tuple(EndWords(**entry) for entry in _ENTRIES["end"])
DECISIONS: tuple[DecisionWords, ...] = tuple(DecisionWords(**entry) for entry in _ENTRIES["decision"])
