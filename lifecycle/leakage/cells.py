"""Columns of the splits' rows as cells: the bins and categories in which the target's share is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lifecycle.data.files import SplitFiles

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Enough for shares within 0.01 of the truth, and 45 columns of them cost a third of a CPU second.
TRAINING_ROWS, HELD_ROWS = 40_000, 16_000
HELD_SPLITS = ("validation", "calibration", "benchmark")
# No feature is judged by the labels of the benchmark: it is met once, by a candidate. duplicates.py alone reads them.
SCORED_SPLITS = ("validation", "calibration")
NUMERIC_BINS, MOST_VALUES = 64, 2_048


@dataclass(frozen=True)
class Cells:
    """One column: the cell of each row, 0 … count - 1. Cell 0 is null; the last is for values not in training.

    Cells of an ordered column follow its values. `distinct` is the number of values in the training rows.
    """

    training: np.ndarray
    held: np.ndarray
    count: int
    ordered: bool
    distinct: int


@dataclass(frozen=True)
class LabelledRows:
    """Rows of training and of the held splits, in the order in which they are written.

    `scored` are the held rows whose labels a column may be measured by; `training_share` is that of the rows read.
    """

    training: pd.DataFrame
    held: pd.DataFrame
    training_labels: np.ndarray
    held_labels: np.ndarray
    held_split: np.ndarray
    scored: np.ndarray
    training_share: float


def read_labelled(written: SplitFiles, columns: list[str], label: str) -> LabelledRows:
    """At most about TRAINING_ROWS training rows and HELD_ROWS of each held split, evenly spread."""
    import numpy as np
    import pandas as pd
    import pyarrow.parquet as pq

    wanted = list(dict.fromkeys([*columns, label]))
    training = thinned(written.read("training", wanted, TRAINING_ROWS), TRAINING_ROWS)
    parts = {name: thinned(written.read(name, wanted, HELD_ROWS), HELD_ROWS) for name in HELD_SPLITS}
    held = pd.concat(parts.values(), ignore_index=True)
    split = np.repeat(list(parts), [len(part) for part in parts.values()])
    return LabelledRows(
        training=training,
        held=held,
        training_labels=training[label].to_numpy(np.int64),
        held_labels=held[label].to_numpy(np.int64),
        held_split=split,
        scored=np.isin(split, SCORED_SPLITS),
        training_share=len(training) / pq.read_metadata(written.path("training")).num_rows,
    )


def thinned(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Every n-th row, at most `most`; blocks of neighbours would be alike."""
    import numpy as np

    if len(rows) <= most:
        return rows.reset_index(drop=True)
    return rows.iloc[np.linspace(0, len(rows) - 1, most).astype(np.int64)].reset_index(drop=True)


def cells_of(training: pd.Series, held: pd.Series) -> Cells:
    """Values as cells of their own where there are few, else numbers and times in bins of equal mass."""
    import numpy as np

    numbers, others = as_numbers(training), as_numbers(held)
    if numbers is None or others is None:
        return _of_texts(training, held)
    known = np.unique(numbers[~np.isnan(numbers)])
    edges = known
    if len(known) > NUMERIC_BINS:
        edges = np.unique(np.quantile(numbers[~np.isnan(numbers)], np.linspace(0, 1, NUMERIC_BINS + 1)[1:-1]))
    return Cells(_binned(numbers, edges), _binned(others, edges), len(edges) + 2, True, len(known))


def values_of(training: pd.Series, held: pd.Series, cells: Cells) -> Cells | None:
    """A binned column with each value as a cell of its own: a code hides what neighbours share. None if too many."""
    if not cells.ordered or not NUMERIC_BINS < cells.distinct <= MOST_VALUES:
        return None
    return _of_texts(training, held)


def as_numbers(values: pd.Series) -> np.ndarray | None:
    """Numbers, booleans, times and durations as float64 with NaN for null; None for anything else."""
    import numpy as np
    import pandas as pd

    types = pd.api.types
    if types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values):
        numbers = values.astype("int64").to_numpy().astype(np.float64)
        return np.where(values.isna(), np.nan, numbers)
    if types.is_numeric_dtype(values) or types.is_bool_dtype(values):
        found = values.to_numpy(np.float64, na_value=np.nan)
        return np.where(np.isinf(found), np.sign(found) * np.finfo(np.float64).max, found)
    return None


def _binned(numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.where(np.isnan(numbers), 0, np.searchsorted(edges, numbers, side="right") + 1)


def _of_texts(training: pd.Series, held: pd.Series) -> Cells:
    """Each of the most frequent values of training its own cell; a null is a cell too."""
    import numpy as np
    import pandas as pd

    codes, names = pd.factorize(training)
    distinct = len(names)
    counts = np.bincount(codes[codes >= 0], minlength=distinct)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MOST_VALUES])
    names = pd.Index(_plain(names))[frequent]
    place = np.full(distinct + 1, len(frequent) + 1)
    place[frequent] = np.arange(len(frequent)) + 1
    place[-1] = 0
    found = names.get_indexer(pd.Index(_plain(held)))
    others = np.where(held.isna().to_numpy(), 0, np.where(found < 0, len(frequent) + 1, found + 1))
    return Cells(place[codes], others, len(frequent) + 2, False, distinct)


def _plain(values: Any) -> Any:
    import pandas as pd

    return pd.Series(values).astype(object) if not isinstance(values, pd.Series) else values.astype(object)
