"""One feature's values changed: moved a little, left out, in a wrong unit, swapped for others.

Each change is a plain function of the values, of what training rows have, and of a seeded generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.figures import Change
from trainworthy.lifecycle.protocol.jobs import InputColumn

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

NUMBERS = ("integer", "number")
# Jitter is a tenth of the training rows' spread: what rounding, a sensor or a late update moves.
JITTER = 0.1
# Between neighbouring prefixes of units: metres and kilometres, grams and kilograms, dollars and thousands.
UNIT = 1000.0
# A number of so few different values is a code, and is swapped like one.
MOST_LEVELS = 10
UNKNOWN = "a value that no row has"


def changes_of(column: InputColumn, training: pd.Series) -> tuple[Change, ...]:
    """The changes that mean something for such a column."""
    if column.logical_type in NUMBERS:
        few = training.nunique() <= MOST_LEVELS
        return ("jitter", "thousandfold", "thousandth", "missing", *(("swapped",) if few else ()))
    if column.logical_type == "string":
        return ("swapped", "unknown", "missing")
    return ("swapped", "missing") if column.logical_type == "boolean" else ("missing",)


def changed(values: pd.Series, change: Change, column: InputColumn, training: pd.Series, seed: int) -> pd.Series:
    """The values `(N,)` with the change; missing ones stay missing, but for `swapped` and `unknown`."""
    import numpy as np

    return _CHANGES[change](values, column, training, np.random.default_rng(seed))


def altered_share(values: pd.Series, changed_values: pd.Series) -> float:
    """The share of the values `(N,)` that a change made others; null is the same as null."""
    missing, other = values.isna().to_numpy(), changed_values.isna().to_numpy()
    differ, both = missing != other, ~(missing | other)
    # As objects: categories of two columns, and numbers of two types, are compared by their values.
    differ[both] = values[both].astype(object).to_numpy() != changed_values[both].astype(object).to_numpy()
    return float(differ.mean())


def refused_share(values: pd.Series, column: InputColumn, change: Change) -> float:
    """The share of values that the contract refuses."""
    if change == "unknown":
        return float(column.closed)
    return float(_refused(values, column).mean())


def exchange(rows: int, seed: int) -> np.ndarray:
    """For each of so many rows, `(rows,)`, the row whose value it gets; each gives its own once."""
    import numpy as np

    return np.random.default_rng(seed).permutation(rows)


def exchanged(values: pd.Series, order: np.ndarray) -> pd.Series:
    """The same values, each in another row's place."""
    return values.iloc[order].set_axis(values.index)


def _refused(values: pd.Series, column: InputColumn) -> pd.Series:
    missing = values.isna()
    refused = missing & (not column.nullable)
    if column.allowed:
        refused |= ~missing & ~values.isin(column.allowed)
    for name, limit in column.limits.items():
        refused |= ~missing & _BEYOND[name](values.astype("Float64"), limit).fillna(value=False).astype(bool)
    return refused


_BEYOND: Mapping[str, Callable[[pd.Series, float], pd.Series]] = {
    "minimum": lambda values, limit: values < limit,
    "maximum": lambda values, limit: values > limit,
    "exclusive_minimum": lambda values, limit: values <= limit,
    "exclusive_maximum": lambda values, limit: values >= limit,
}


def _jitter(values: pd.Series, column: InputColumn, training: pd.Series, rng: np.random.Generator) -> pd.Series:
    """Within the contract's limits, which no value that is only a little off leaves; at one, back from it."""
    low, high = column.limits.get("minimum"), column.limits.get("maximum")
    numbers, steps = _numbers(values), JITTER * spread(training) * rng.standard_normal(len(values))
    if column.logical_type == "integer":
        steps = _whole(steps, rng)
    moved = numbers + steps
    return _typed(moved.where(moved == moved.clip(low, high), numbers - steps).clip(low, high), values, column)


def _whole(steps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Steps `(N,)` of whole numbers: by 1 at least, or a column of little spread never moved."""
    import numpy as np

    signs = np.where(rng.random(len(steps)) < 0.5, -1.0, 1.0)
    return signs * np.maximum(1.0, np.abs(steps).round())


def spread(training: pd.Series) -> float:
    """Standard deviation as the middle two thirds show it, by that of all values where these are alike."""
    import numpy as np

    numbers = _numbers(training).to_numpy()
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return 0.0
    low, high = np.quantile(numbers, (0.1587, 0.8413))
    return float(high - low) / 2 or float(numbers.std())


def _times(factor: float) -> Callable[..., pd.Series]:
    return lambda values, column, *_: _typed(_numbers(values) * factor, values, column)


def _missing(values: pd.Series, *_: object) -> pd.Series:
    """Null in the form in which a file gives it."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(values) or pd.api.types.is_object_dtype(values):
        return pd.Series([None] * len(values), index=values.index, name=values.name, dtype=object)
    return values.where(values.isna())


def _swapped(values: pd.Series, column: InputColumn, training: pd.Series, rng: np.random.Generator) -> pd.Series:
    """Another value of the training rows, each as likely as it is frequent among the others."""
    import numpy as np
    import pandas as pd

    codes, levels = pd.factorize(training.dropna())
    counts = np.bincount(codes)
    starts = np.cumsum(counts) - counts
    own = pd.Index(levels).get_indexer(pd.Index(values))
    known, less = own >= 0, np.where(own >= 0, counts[own], 0)
    drawn = np.floor(rng.random(len(values)) * (counts.sum() - less)).astype(np.int64)
    # Behind the own value's rows, as if these were not there.
    drawn += np.where(known & (drawn >= starts[own]), less, 0)
    place = np.searchsorted(starts, drawn, side="right") - 1
    return pd.Series(levels.take(place), index=values.index, name=values.name)


def _unknown(values: pd.Series, *_: object) -> pd.Series:
    import pandas as pd

    # Categories would make a null of it.
    dtype = "str" if isinstance(values.dtype, pd.CategoricalDtype) else values.dtype
    return pd.Series(UNKNOWN, index=values.index, name=values.name, dtype=dtype)


def _numbers(values: pd.Series) -> pd.Series:
    return values.astype("Float64").astype("float64")


def _typed(numbers: pd.Series, values: pd.Series, column: InputColumn) -> pd.Series:
    """Whole where the column is, and in its own type where this holds them."""
    import numpy as np

    if column.logical_type == "integer":
        numbers = numbers.round()
    own = values.dtype
    if not isinstance(own, np.dtype) or own.kind not in "iuf":
        return numbers
    return numbers.astype(own) if own.kind == "f" or _holds(np.iinfo(own.name), numbers) else numbers


def _holds(limits: np.iinfo, numbers: pd.Series) -> bool:
    # The float above the greatest integer of 64 bits is one that they do not hold.
    return bool(limits.min <= numbers.min() and numbers.max() < limits.max + 1.0)


_CHANGES: Mapping[Change, Callable[[pd.Series, InputColumn, pd.Series, np.random.Generator], pd.Series]] = {
    "jitter": _jitter,
    "missing": _missing,
    "thousandfold": _times(UNIT),
    "thousandth": _times(1 / UNIT),
    "swapped": _swapped,
    "unknown": _unknown,
}
