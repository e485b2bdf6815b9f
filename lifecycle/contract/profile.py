"""What rows tell beyond single values: joint nulls, ordered pairs, a pattern, columns that name a row.

Rows can't tell an accident from a law. So each of these asks for many rows and for a form that chance seldom gives, and
a draft lets the rules across columns warn, not stop.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.contract.frame import logical_type

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Null rows that agree, and rows that are not null: two columns that happen to lack the same twenty rows are rare.
LEAST_NULLS = 20
LEAST_PAIRS, TRIED_ROWS = 1000, 5000
# Of values paired at random, this share may be in order too; above it the order says nothing.
MOST_BY_CHANCE = 0.8
SIFTED_ROWS = 500
MOST_KEY_COLUMNS, MOST_PATTERN_SIGNS, LEAST_TEXTS = 8, 24, 31
_CLASSES = ("[0-9]", "[A-Z]", "[a-z]", "[A-Z0-9]", "[a-z0-9]")


def null_groups(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """Groups of columns that are null in exactly the same rows."""
    import numpy as np

    groups: dict[bytes, list[str]] = defaultdict(list)
    for name in frame.columns:
        nulls = frame[name].isna().to_numpy()
        if LEAST_NULLS <= nulls.sum() <= len(nulls) - LEAST_NULLS:
            groups[np.packbits(nulls).tobytes()].append(str(name))
    return [tuple(group) for group in groups.values() if len(group) > 1]


def ordered_pairs(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Pairs of times, or of numbers of one scale with a word in common, of which the first is never above.

    Columns that are equal are in order both ways, as dates and the days that are made of them: they are no pair.
    """
    kinds = {str(name): logical_type(frame[name]) for name in frame.columns}
    names = [name for name, kind in kinds.items() if kind in ("timestamp", "date", "number", "integer")]
    pairs = []
    for first, second in _maybe_ordered(frame, names, kinds):
        times = kinds[first] in ("timestamp", "date")
        if frame[first].dtype != frame[second].dtype or kinds[first] != kinds[second]:
            continue
        alike = times or (_words(first) & _words(second) and _of_one_scale(frame[first], frame[second]))
        if alike and _is_ordered(frame[[first, second]]):
            pairs.append((first, second))
    return [(first, second) for first, second in pairs if (second, first) not in pairs]


def _maybe_ordered(frame: pd.DataFrame, names: Sequence[str], kinds: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pairs in order, without those of numbers that some rows already show to be in no order.

    Of 784 columns that leaves a few of 613,872 pairs; rounding to float64 only makes equal what was near.
    """
    import numpy as np

    numbers = [name for name in names if kinds[name] not in ("timestamp", "date")]
    some = frame.iloc[:: max(1, len(frame) // SIFTED_ROWS)]
    table = np.column_stack([some[name].to_numpy(np.float64, na_value=np.nan) for name in numbers]) if numbers else None
    for first in names:
        if table is None or first not in numbers:
            yield from ((first, second) for second in names if second not in (first, *numbers))
            continue
        above = np.any(table[:, [numbers.index(first)]] > table, axis=0).tolist()
        yield from ((first, second) for second, no in zip(numbers, above, strict=True) if second != first and not no)


def _of_one_scale(first: pd.Series, second: pd.Series) -> bool:
    """True if the two spread over ranges that differ by less than a factor of ten: a share is no minutes."""
    spreads = [float(values.max()) - float(values.min()) for values in (first, second)]
    return 0 < max(spreads) < 10 * min(spreads)


def _words(name: str) -> set[str]:
    return {word for word in re.split(r"[\W_\d]+", name.lower()) if len(word) > 2}


def _is_ordered(pair: pd.DataFrame) -> bool:
    """True if the first is never above the second, though chance would put it there often enough."""
    step = max(1, len(pair) // TRIED_ROWS)
    few = pair.iloc[::step].dropna()
    if len(few) == 0 or bool((few.iloc[:, 0] > few.iloc[:, 1]).any()):
        return False
    known = pair.dropna()
    if len(known) < LEAST_PAIRS or bool((known.iloc[:, 0] > known.iloc[:, 1]).any()):
        return False
    other = few.iloc[:, 1].sample(frac=1, random_state=0)
    return float((few.iloc[:, 0].to_numpy() <= other.to_numpy()).mean()) <= MOST_BY_CHANCE


def text_pattern(texts: Iterable[str]) -> str | None:
    """A regular expression that short codes of one form follow, such as ^[A-Z]{3}$; None for any other texts."""
    texts = list(texts)
    lengths = [len(text) for text in texts]
    if len(texts) < LEAST_TEXTS or not 0 < min(lengths) <= max(lengths) <= MOST_PATTERN_SIGNS:
        return None
    if min(lengths) < max(lengths):
        kind = _class(set("".join(texts)))
        return f"^{kind}{{{min(lengths)},{max(lengths)}}}$" if kind and max(lengths) - min(lengths) <= 2 else None
    kinds = [_class(set(signs)) for signs in zip(*texts, strict=True)]
    if not all(kinds):
        return None
    runs = ((str(kind), len(list(run))) for kind, run in itertools.groupby(kinds))
    return f"^{''.join(kind if count == 1 else f'{kind}{{{count}}}' for kind, count in runs)}$"


def _class(signs: set[str]) -> str | None:
    """The narrowest class of these signs; one sign stands for itself unless it may be a letter or digit by chance."""
    if len(signs) == 1 and not next(iter(signs)).isalnum():
        (sign,) = signs
        return re.escape(sign) if sign.isascii() and sign.isprintable() else None
    return next((kind for kind in _CLASSES if all(re.fullmatch(kind, sign) for sign in signs)), None)


def naming_columns(frame: pd.DataFrame, candidates: Sequence[str]) -> tuple[str, ...]:
    """The fewest of the candidates, found greedily, whose values together name a row; () if there are none."""
    import numpy as np

    codes = {name: frame[name].factorize()[0].astype("int64") for name in candidates if not frame[name].isna().any()}
    chosen: list[str] = []
    together = np.zeros(len(frame), dtype="int64")
    while len(chosen) < MOST_KEY_COLUMNS:
        counts = {name: _distinct(together, codes[name])[1] for name in codes if name not in chosen}
        best = max(counts, key=lambda name: counts[name], default=None)
        if best is None or counts[best] == together.max() + 1:
            return ()
        chosen.append(best)
        together, count = _distinct(together, codes[best])
        if count == len(frame):
            return _without_superfluous(chosen, codes, len(frame))
    return ()


def _distinct(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, int]:
    """A number for each pair of numbers, from 0, and how many there are."""
    import numpy as np

    unique, inverse = np.unique(first * (second.max(initial=0) + 1) + second, return_inverse=True)
    return inverse.reshape(-1), len(unique)


def _without_superfluous(chosen: list[str], codes: dict[str, np.ndarray], rows: int) -> tuple[str, ...]:
    import numpy as np

    for name in list(chosen):
        together, count = np.zeros(rows, dtype="int64"), 1
        for other in chosen:
            if other != name:
                together, count = _distinct(together, codes[other])
        if count == rows and len(chosen) > 1:
            chosen.remove(name)
    return tuple(chosen)
