"""What a column holds: its values with their rows, and the names in texts that name several labels.

Such texts, as `live|jazz`, are told by their parts from class names that hold a separator, as `Portland, OR` does:
labels combine, so that there are fewer of them than different texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from trainworthy.pipeline.scaffold.source import Kind

SEPARATORS = ("|", ";", ",")
# Of fewer rows the smallest split, a tenth, holds none that could be counted on.
LEAST_CLASS_ROWS = 10
# Values that are shown, and signs of one of them.
SHOWN, _MOST_SIGNS = 4, 40


@dataclass(frozen=True)
class Several:
    """A separator, and how many rows have each name, by name; `twice` are texts that hold a name twice or an empty one,
    with their rows."""

    separator: str
    rows: Mapping[str, int]
    twice: Mapping[str, int]


def separated(texts: Mapping[Any, int]) -> Several | None:
    """The names in these texts, which are given with their rows, by the separator in most of them; None without one."""
    known = {str(text): rows for text, rows in texts.items() if str(text)}
    holding = {separator: sum(rows for text, rows in known.items() if separator in text) for separator in SEPARATORS}
    sign = max(SEPARATORS, key=lambda separator: holding[separator])
    if not holding[sign]:
        return None
    # "a, b" has the blank in its separator, if all of its texts have.
    blank = all(text.count(sign) == text.count(f"{sign} ") for text in known)
    return _split(known, f"{sign} " if blank else sign)


def combine(several: Several, texts: Mapping[Any, int]) -> bool:
    """True if there are fewer names than different texts, none of which is odd."""
    return not several.twice and 1 < len(several.rows) < sum(1 for text in texts if str(text))


def _split(texts: Mapping[str, int], separator: str) -> Several:
    rows: Counter[str] = Counter()
    twice = {}
    for text, count in texts.items():
        names = text.split(separator)
        if len(set(names)) < len(names) or "" in names:
            twice[text] = count
        for name in set(names) - {""}:
            rows[name] += count
    return Several(separator, dict(rows.most_common()), twice)


@dataclass(frozen=True)
class Held:
    """What a column holds: how often each value occurs, typed as dataset.py types it, the most frequent first."""

    name: str
    read_as: Kind
    counts: pd.Series
    rows: int

    @property
    def different(self) -> int:
        return len(self.counts)

    @property
    def labelled(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def is_number(self) -> bool:
        return self.read_as in ("integer", "number")

    @cached_property
    def is_whole(self) -> bool:
        return self.is_number and all(float(value).is_integer() for value in self.counts.index)

    @cached_property
    def several(self) -> Several | None:
        """The names that texts hold with a separator between them; None where no text has one."""
        return separated(self.counts.to_dict()) if self.read_as == "text" else None

    @cached_property
    def bytes(self) -> list[int]:
        """Of each different text, rising."""
        return sorted(len(text.encode()) for text in self.counts.index)

    @property
    def values(self) -> str:
        """What the values are called."""
        return "whole numbers" if self.is_whole else "numbers" if self.is_number else "texts"

    @property
    def shown(self) -> str:
        """The most frequent values with their rows."""
        return with_rows(self.counts.head(SHOWN).items())

    @property
    def rare(self) -> list[tuple[Any, int]]:
        """Values of too few rows for a class, the rarest first."""
        return [*self.counts[self.counts < LEAST_CLASS_ROWS].items()][::-1]


def counts_of(values: pd.Series, kind: Kind) -> pd.Series:
    known = values.dropna()
    if kind in ("integer", "number"):
        typed = pd.to_numeric(known).astype("int64" if kind == "integer" else "float64")
    elif kind == "boolean":
        typed = known.astype("str").str.lower() == "true"
    else:
        typed = known.astype("str")
    return typed.value_counts()


def with_rows(counts: Iterable[tuple[Any, int]]) -> str:
    """Values as the file writes them, each with its rows."""
    return ", ".join(f"{_short(value)} in {rows:,} {'row' if rows == 1 else 'rows'}" for value, rows in counts)


def _short(value: Any) -> str:
    """As the file writes it; of a long text the beginning."""
    if isinstance(value, float):
        return f"{value:g}"
    return repr(value if not isinstance(value, str) or len(value) <= _MOST_SIGNS else f"{value[:_MOST_SIGNS]}…")
