"""Raw feature columns of any type as the numbers and codes that the baselines are fitted on.

- Numbers, booleans and durations (in seconds) are numeric; missing and infinite values are NaN. A column
  that is all missing in training is left out: nothing can be learned from it, and the trees refuse it. Values
  outside the training range are clipped to it, so that one wild benchmark row cannot ruin a baseline.
- Text, categories and all else are categorical; a missing value is a category of its own.
- A timestamp gives two categorical columns, its hour and its weekday: the time itself is no feature, since
  every benchmark row lies beyond all training rows; without them the baselines would be unfairly weak.
- A column of files gives several numeric columns, of what is in each file, and a column of free text (free_text.py)
  the counts of its words in buckets (file_numbers.py): as categories all its values would be rare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainworthy.lifecycle.errors import EvaluationError, did_you_mean
from trainworthy.lifecycle.files.values import is_file_column
from trainworthy.lifecycle.tasks.file_numbers import OF_WORDS, Form, file_numbers, form_of, text_numbers
from trainworthy.lifecycle.tasks.free_text import is_free_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Rarer categories, and those never seen, share one code: their rates would be noise.
MINIMUM_FREQUENCY = 20
_MISSING = "\0missing"


@dataclass(frozen=True)
class Encoding:
    """What was learned from the training rows; `encode` turns any rows into arrays."""

    numeric: tuple[str, ...]
    times: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    categories: dict[str, pd.Index]
    contents: Mapping[str, Form]

    def encode(self, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Numbers `(N, K)` float64 with NaN where missing, and codes `(N, C)` int64.

        Codes of column j lie in 0 … sizes[j] - 1, the last one being rare and unseen categories.
        """
        import numpy as np
        import pandas as pd

        whole = (c for c in (*self.numeric, *self.categories) if not _is_part(c))
        _require(rows, [*whole, *self.times, *self.contents])
        numbers = np.clip(_numbers(rows, self.numeric, self.contents), self.low, self.high)
        codes = np.empty((len(rows), len(self.categories)), dtype=np.int64)
        for position, (column, known) in enumerate(self.categories.items()):
            occurring, values = _texts(rows, column)
            positions = known.get_indexer(pd.Index(values, dtype=object))
            codes[:, position] = np.where(positions < 0, len(known), positions)[occurring]
        return numbers, codes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each categorical column."""
        return tuple(len(known) + 1 for known in self.categories.values())


def fit_encoding(training: pd.DataFrame, columns: Sequence[str], most_categories: int | None = None) -> Encoding:
    """The encoding of `columns`; at most `most_categories` named ones a column, the most frequent first."""
    import numpy as np
    import pandas as pd

    _require(training, columns)
    types = pd.api.types
    times = tuple(c for c in columns if types.is_datetime64_any_dtype(training[c]))
    numeric = tuple(
        c for c in columns if types.is_numeric_dtype(training[c]) or types.is_timedelta64_dtype(training[c])
    )
    others = [c for c in columns if c not in numeric and c not in times]
    contents = {c: form for c in others if (form := _form(training[c])) is not None}
    categorical = [c for c in others if c not in contents]
    categorical += [f"{c}\0{part}" for c in times for part in ("hour", "day_of_week")]
    numeric += tuple(f"{c}\0{place}" for c, form in contents.items() for place in range(form.width))
    numbers = _numbers(training, numeric, contents)
    filled = ~np.isnan(numbers).all(axis=0)
    numeric, numbers = tuple(np.array(numeric, dtype=object)[filled]), numbers[:, filled]
    if not numeric and not categorical:
        raise EvaluationError("no feature column holds a value", value=list(columns), fix="name the feature columns")
    return Encoding(
        numeric=numeric,
        times=times,
        low=np.nanmin(numbers, axis=0),
        high=np.nanmax(numbers, axis=0),
        categories={c: _frequent(*_texts(training, c), most_categories) for c in categorical},
        contents=contents,
    )


def _form(values: pd.Series) -> Form | None:
    """How files and free texts become numbers; None of any other column."""
    if is_file_column(values):
        return form_of(values.dropna().to_list())
    return OF_WORDS if is_free_text(values) else None


def _frequent(occurring: np.ndarray, values: Sequence[str], most: int | None) -> pd.Index:
    """Categories of enough rows, sorted, so that equal data gives equal codes."""
    import numpy as np
    import pandas as pd

    # Values that differ may have one text, as 1 and "1".
    counts: dict[str, int] = {}
    for value, count in zip(values, np.bincount(occurring, minlength=len(values)), strict=True):
        counts[value] = counts.get(value, 0) + int(count)
    frequent = sorted(
        (value for value, count in counts.items() if count >= MINIMUM_FREQUENCY), key=lambda v: (-counts[v], v)
    )
    return pd.Index(sorted(frequent[:most]), dtype=object)


def _numbers(rows: pd.DataFrame, columns: Sequence[str], contents: Mapping[str, Form]) -> np.ndarray:
    import numpy as np
    import pandas as pd

    values = np.empty((len(rows), len(columns)))
    for column, form in contents.items():
        positions = [position for position, name in enumerate(columns) if _part_of(name) == column]
        places = [int(columns[position].rpartition("\0")[2]) for position in positions]
        if positions:
            held = rows[column].to_list()
            values[:, positions] = (text_numbers(held) if form == OF_WORDS else file_numbers(held, form))[:, places]
    for position, column in enumerate(columns):
        if _is_part(column):
            continue
        series = rows[column]
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub":
            values[:, position] = series.to_numpy()
            continue
        if pd.api.types.is_timedelta64_dtype(series):
            series = series.dt.total_seconds()
        try:
            series = pd.to_numeric(series).astype("Float64")
        except (TypeError, ValueError) as error:
            raise EvaluationError(
                f"the column {column} was numeric in training and is not now: {error}", fix="keep the contract's types"
            ) from error
        values[:, position] = series.to_numpy(float, na_value=np.nan)
    values[np.isinf(values)] = np.nan
    return values


def _is_part(column: str) -> bool:
    """True for the hour or weekday of a timestamp column, and for a number of a file or a free text."""
    return "\0" in column


def _part_of(column: str) -> str:
    """The column that a part is of; empty for a whole one."""
    return column.rpartition("\0")[0]


def _texts(rows: pd.DataFrame, column: str) -> tuple[np.ndarray, list[str]]:
    """A column as text, a missing value as a text of its own: of each row which of the texts, `(N,)`, and these.

    Each value is turned into text once: 28,000 rows have 70 airports.
    """
    import pandas as pd

    if _is_part(column):
        name, part = column.split("\0")
        # A missing time would turn the numbers into floats, and 9.0 is another text than 9.
        series = getattr(pd.to_datetime(rows[name]).dt, part).astype("Int64")
    else:
        series = rows[column]
    # 1 and True are one value to a table of values, and two texts; a list is none.
    series = series.astype("str") if series.dtype == object else series
    occurring, values = pd.factorize(series, use_na_sentinel=False)
    return occurring, pd.Series(values).astype("str").fillna(_MISSING).to_list()


def _require(rows: pd.DataFrame, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in rows.columns:
            raise EvaluationError(
                "a feature column is missing", value=column, fix=did_you_mean(column, map(str, rows.columns))
            )
