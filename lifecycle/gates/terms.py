"""terms.toml: words that reports, verdicts and lines of checks use as terms."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Term:
    """A word, what it is, what it means, the page about it, and the other ways in which it is written."""

    id: str
    kind: str
    means: str
    page: str
    also: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = tuple(
    Term(**{**entry, "also": tuple(entry.get("also", ()))})
    for entry in tomllib.loads(Path(__file__).with_name("terms.toml").read_text(encoding="utf-8"))["term"]
)
