"""Texts that name several labels with a separator between them, such as `live|jazz`: which separator, which names.

Told from class names that hold such a sign, as `Portland, OR` does, by their parts: labels combine, so that there are
fewer of them than different texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SEPARATORS = ("|", ";", ",")


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
