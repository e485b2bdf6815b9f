"""The levels of a column by which rows are searched for blind spots, and how a rule writes each of them.

A text or boolean column has a level for each value that enough rows have; a number has every run of neighbouring bins
between quantiles of training rows; missing is a level of its own. Values that are too rare are in no level.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainworthy.lifecycle.evaluation.column_values import ColumnValues, column_values
from trainworthy.lifecycle.evaluation.predicate import column_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Where numbers are cut: twentieths, and the outer fortieths. Searched are runs between the tenths and the outer
# twentieths, since models fail at the ends of what they have seen; what is found is then fitted to the finer cuts.
CUTS_AT = (0.025, *(step / 20 for step in range(1, 20)), 0.975)
_COARSE = (1 / 20, *(step / 20 for step in range(2, 20, 2)), 19 / 20)
# A cut is written to a thousandth of the cuts' spread: nobody reads more of it.
_DIGITS_OF_SPREAD = 3


@dataclass(frozen=True)
class Levels:
    """A column's levels: level `i` has the rows whose code is in `firsts[i]` … `lasts[i]`.

    Codes `(N,)` run from 0 to `codes_in_all - 1`: those of bins or values, `missing`, and that of rows in no level. Of
    a number any run of bins is a level that can be written; `firsts` and `lasts` are those that are searched.
    """

    column: str
    codes: np.ndarray
    missing: int
    firsts: np.ndarray
    lasts: np.ndarray
    cuts: tuple[float, ...] = ()
    whole: bool = False
    values: tuple[bool | str, ...] = ()

    @property
    def codes_in_all(self) -> int:
        return self.missing + 2

    def near(self, first: int, last: int) -> list[tuple[int, int]]:
        """Runs of bins whose ends are at most two bins from this one's, itself among them; of others only itself."""
        if not self.cuts or last == self.missing:
            return [(first, last)]
        low, high = range(max(first - 2, 0), first + 3), range(last - 2, min(last + 3, self.missing))
        return [(at, to) for at in low for to in high if at <= to and to - at < self.missing - 1]

    def rule(self, first: int, last: int) -> str:
        """A run of codes in the language of predicates."""
        name = column_text(self.column)
        if first == self.missing:
            return f"{name} is None"
        if self.cuts:
            return _between(name, self.cuts, first, last, self.whole)
        value = self.values[first]
        if isinstance(value, bool):
            return name if value else f"not {name}"
        return f"{name} == {json.dumps(value, ensure_ascii=False)}"


def training_cuts(training: pd.DataFrame) -> dict[str, tuple[float, ...]]:
    """Where each numeric column is cut: at quantiles over training rows, or between each two of few values."""
    held = {str(name): column_values(training[name]) for name in training.columns if _has_cuts(training[name])}
    return {name: _cuts(values) for name, values in held.items() if values.kind == "number"}


def levels_of(column: pd.Series, cuts: Mapping[str, tuple[float, ...]], least_rows: int) -> Levels | None:
    """The levels of a column of text, booleans or numbers of which `cuts` knows; None where it has fewer than two.

    Times have none, since theirs do not come back, and neither has a column whose name no rule can hold.
    """
    name = str(column.name)
    if "`" in name or not _has_cuts(column):
        return None
    held = column_values(column)
    if held.kind == "number":
        return _numbers(name, held, cuts[name]) if cuts.get(name) else None
    if held.kind in ("text", "boolean"):
        return _values(name, held, least_rows)
    return None


def _has_cuts(column: pd.Series) -> bool:
    """Whether the column holds values that can be compared, and no times."""
    import pandas as pd

    if column.dtype.kind in "mMc":
        return False
    return column.dtype != object or pd.api.types.infer_dtype(column, skipna=True) in (
        "string", "boolean", "integer", "floating", "mixed-integer-float", "decimal", "empty",
    )  # fmt: skip


def _cuts(held: ColumnValues) -> tuple[float, ...]:
    import numpy as np

    values = held.values[held.known]
    values = values[np.isfinite(values)]
    if not len(values):
        return ()
    cuts = np.unique(np.quantile(values, CUTS_AT, method="inverted_cdf"))
    if len(cuts) < len(CUTS_AT) and len(few := np.unique(values)) <= len(CUTS_AT) + 1:
        cuts = few
    # The greatest value as a cut would leave an empty last bin.
    cuts = cuts[cuts < values.max()]
    if values.dtype.kind == "f" and len(cuts) > 1:
        cuts = np.unique(np.maximum(_rounded_up(cuts), cuts))
    return tuple(cut.item() for cut in cuts)


def _rounded_up(cuts: np.ndarray) -> np.ndarray:
    """Rising cuts to so many digits of their spread, upwards, so that rows of the value that is cut at stay below.

    As they are where their precision holds no power of ten that such digits need.
    """
    import numpy as np

    spread = float(cuts[-1]) - float(cuts[0])
    if not math.isfinite(spread):
        return cuts
    decimals = _DIGITS_OF_SPREAD - math.floor(math.log10(spread))
    if decimals > math.log10(np.finfo(cuts.dtype).max):
        return cuts
    return np.ceil(cuts * 10.0**decimals) / 10.0**decimals


def _numbers(name: str, held: ColumnValues, cuts: tuple[float, ...]) -> Levels:
    """Every run of bins but the one of all; a bin holds what is above a cut and at most the next."""
    import numpy as np

    bins = len(cuts) + 1
    codes = np.full(len(held.known), bins, dtype=np.int64)
    # A predicate compares single precision in single precision, and so do the cuts.
    kind = held.values.dtype if held.values.dtype.kind == "f" else None
    codes[held.known] = np.searchsorted(np.asarray(cuts, dtype=kind), held.values[held.known], side="left")
    ends = _coarse_ends(bins)
    starts = [0, *(end + 1 for end in ends[:-1])]
    runs = [(first, last) for first in starts for last in ends if first <= last and last - first < bins - 1]
    firsts, lasts = np.array([*runs, (bins, bins)]).T
    return Levels(name, codes, bins, firsts, lasts, cuts=cuts, whole=held.values.dtype.kind in "iu")


def _coarse_ends(bins: int) -> list[int]:
    """The last bins of searched runs: all of few, else those that end at a coarse quantile."""
    if bins <= len(_COARSE) + 1:
        return list(range(bins))
    ends = (
        {round(at * bins) - 1 for at in _COARSE} if bins < len(CUTS_AT) + 1 else {CUTS_AT.index(at) for at in _COARSE}
    )
    return sorted({*(end for end in ends if 0 <= end < bins), bins - 1})


def _between(name: str, cuts: tuple[float, ...], first: int, last: int, whole: bool) -> str:
    if first == 0:
        return f"{name} <= {cuts[last]!r}"
    if last == len(cuts):
        return f"{name} > {cuts[first - 1]!r}"
    low, high = cuts[first - 1], cuts[last]
    return f"{name} == {high!r}" if whole and low + 1 == high else f"{low!r} < {name} <= {high!r}"


def _values(name: str, held: ColumnValues, least_rows: int) -> Levels:
    """A level for each value that enough rows have, in the order of the values."""
    import numpy as np
    import pandas as pd

    codes, values = pd.factorize(pd.Series(held.values).where(held.known), sort=True)
    frequent = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(values)) >= least_rows)
    count = len(frequent)
    to_code = np.full(len(values) + 1, count + 1, dtype=np.int64)
    to_code[frequent] = np.arange(count)
    # The code of a missing value is -1, and so the last one.
    to_code[-1] = count
    different = list(values)
    kept = tuple(bool(different[at]) if held.kind == "boolean" else str(different[at]) for at in frequent)
    runs = np.arange(count + 1)
    return Levels(name, to_code[codes], count, runs, runs, values=kept)
