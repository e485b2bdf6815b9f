"""Rows of training that others may equal by chance: what all but one column tell comes with other values, too.

Customers who bought nothing have zeros in every column, and differ in their age alone: so many of them are equal, and
their labels agree. A copied row is not like that. Of each row and each of its columns it is counted how many other
rows agree with it in all other columns, and how many have its value there; the product is how often the row would meet
its like if that column were drawn by itself. Rows that are equal count once, so that copies make nothing likely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from trainworthy.lifecycle.contract.batches import BATCH_ROWS

# A row that would meet its like so often is no sign of a copy when it does: in one table of twenty by chance alone.
EXPECTED = 0.05


def coincidental(path: Path, columns: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Those of `rows`, hashes of training rows over all the columns, that others equal by chance. Reads the file twice.

    The hashes are those that polars makes of the columns in this order.
    """
    if len(columns) < 2 or not len(rows):
        return rows[:0]
    asked = pl.concat(_views(path, columns)).filter(pl.col("row").is_in(pl.Series(np.unique(rows)).implode())).unique()
    met = _counted(path, columns, asked)
    expected = asked.select("row", *(_expected(asked, met, place).alias(str(place)) for place in range(len(columns))))
    most = expected.select("row", most=pl.max_horizontal(pl.exclude("row")))
    return most.filter(pl.col("most") >= EXPECTED)["row"].to_numpy()


def _views(path: Path, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Each row's hash, and for each column that of its value (`v0`) and of all others (`o0`), by batches."""
    for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS, columns=list(columns)):
        frame = pl.DataFrame(batch)
        views = {"row": frame.select(columns).hash_rows()}
        for place, name in enumerate(columns):
            views[f"v{place}"] = frame.select(name).hash_rows()
            views[f"o{place}"] = frame.select([one for one in columns if one != name]).hash_rows()
        yield pl.DataFrame(views)


def _counted(path: Path, columns: Sequence[str], asked: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """For each view how many different rows have each of the asked rows' hashes in it; under "" how many there are."""
    names = [f"{view}{place}" for view in "vo" for place in range(len(columns))]
    met: dict[str, list[pl.DataFrame]] = {name: [] for name in names}
    rows = []
    for frame in _views(path, columns):
        rows.append(frame.select("row").unique())
        for name in names:
            near = frame.select("row", name).filter(pl.col(name).is_in(asked[name].implode())).unique()
            met[name].append(near)
    counted = {name: pl.concat(parts).unique().group_by(name).len() for name, parts in met.items()}
    return counted | {"": pl.DataFrame({"len": [pl.concat(rows).n_unique()]})}


def _expected(asked: pl.DataFrame, met: dict[str, pl.DataFrame], place: int) -> pl.Series:
    """How often each asked row would be met if this column's value were drawn from all rows' by itself."""
    value, others = (
        asked.join(met[name], on=name, how="left", maintain_order="left")["len"] - 1
        for name in (f"v{place}", f"o{place}")
    )
    return value.cast(pl.Float64) * others / met[""]["len"][0]


def expected_meetings(columns: Sequence[np.ndarray]) -> np.ndarray:
    """How often each row would meet its like if the column that makes it likeliest were drawn by itself.

    `columns` hold a whole number a row each; equal rows count once, as above.
    """
    _, first, back = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    different = [column[first] for column in columns]
    most = np.zeros(len(first))
    for place, column in enumerate(different):
        others = np.stack([*different[:place], *different[place + 1 :]], axis=1) if len(different) > 1 else None
        alike = len(first) if others is None else _sizes(others)
        most = np.maximum(most, (_sizes(column[:, None]) - 1) * (alike - 1) / len(first))
    return most[back.reshape(-1)]


def _sizes(rows: np.ndarray) -> np.ndarray:
    """Of each row how many are equal to it, with itself."""
    _, back, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return counts[back.reshape(-1)]
