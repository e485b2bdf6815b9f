"""How the rows that a version adds are distributed, and which rows differ from the version before.

Of the rows that differ, by key: what happened, in which columns, the label before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.column_types import column_types, common_types
from trainworthy.lifecycle.data.difference import Difference, VersionFiles, label_of, read_column
from trainworthy.lifecycle.distances import psi
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS
from trainworthy.lifecycle.spec.frozen import Frozen

BINS, NAMED_VALUES = 10, 20


class ColumnShift(Frozen):
    """A column in the old rows and in the added ones; means of numbers only, None where there is no value.

    `psi` is the population stability index over deciles of the old rows (of text its 20 commonest values), nulls
    apart, beyond what as many rows show without any shift: about 0.1 is some shift, 0.25 a large one.
    """

    column: str
    psi: float
    old_mean: float | None
    new_mean: float | None
    old_null_share: float
    new_null_share: float


def shifts(
    difference: Difference, old: VersionFiles, new: VersionFiles, label: Label | None, without: Collection[str]
) -> list[ColumnShift]:
    """Every column of numbers, booleans or text that both have, the largest shift first; the label as a column.

    Empty if fewer than FEWEST_ROWS rows were added.
    """
    if len(difference.added) < FEWEST_ROWS:
        return []
    after = new.paths(difference.files.new)
    types = common_types([*old.paths(), *after])
    rows = []
    for name in types:
        if name not in old.columns or name not in new.columns or name in without:
            continue
        before, added = (
            read_column(old.paths(), name, types),
            read_column(after, name, types).gather(difference.added),
        )
        if label is not None and name == label.column:
            rows.append(_shift(f"label {label.name}", label_of(before, label), label_of(added, label)))
        rows.append(_shift(name, before, added))
    return sorted((row for row in rows if row), key=lambda row: -row.psi)


def _shift(name: str, old: pl.Series, new: pl.Series) -> ColumnShift | None:
    """None for a column of another type, or one that has no value in the old rows."""
    if old.dtype == pl.Boolean:
        old, new = old.cast(pl.Int8), new.cast(pl.Int8)
    number = old.dtype.is_numeric()
    if not (number or old.dtype == pl.String) or old.null_count() == len(old):
        return None
    before, added = _number_counts(old, new) if number else _text_counts(old, new)
    return ColumnShift(
        column=name,
        psi=float(psi(added, before)),
        old_mean=_mean(old) if number else None,
        new_mean=_mean(new) if number else None,
        old_null_share=old.null_count() / len(old),
        new_null_share=new.null_count() / len(new),
    )


def _number_counts(old: pl.Series, new: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """Rows by decile of the old values; of few values, by value."""
    values = old.drop_nulls()
    distinct = values.unique().sort()
    if len(distinct) <= 2 * BINS:
        edges = distinct.cast(pl.Float64).to_numpy()
    else:
        edges = np.unique(np.quantile(values.cast(pl.Float64).to_numpy(), np.linspace(0, 1, BINS + 1)[1:-1]))

    def counts(column: pl.Series) -> np.ndarray:
        places = np.searchsorted(edges, column.drop_nulls().cast(pl.Float64).to_numpy(), side="right")
        return np.append(np.bincount(places, minlength=len(edges) + 1), column.null_count())

    return counts(old), counts(new)


def _text_counts(old: pl.Series, new: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """Rows by the commonest old values, then all others together, then nulls."""
    name = old.name
    common = old.drop_nulls().value_counts(sort=True).head(NAMED_VALUES)[name].to_list()

    def counts(column: pl.Series) -> np.ndarray:
        by_value = dict(column.drop_nulls().value_counts().iter_rows())
        named = [by_value.get(value, 0) for value in common]
        return np.array([*named, len(column) - column.null_count() - sum(named), column.null_count()])

    return counts(old), counts(new)


def _mean(column: pl.Series) -> float | None:
    value = column.cast(pl.Float64).mean()
    return value if isinstance(value, float) else None


def changed_rows(
    difference: Difference, old: VersionFiles, new: VersionFiles, key: Sequence[str], label: Label | None,
    most: int | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Columns what (changed, removed or added), the key's, label_before, label_after and columns; no other value.

    Labels are 0, 1 or null where there is none. At most `most` rows of each kind.
    """
    before, after = old.paths(difference.files.old), new.paths(difference.files.new)
    types = common_types([*before, *after])
    changed, removed, added = (
        numbers if most is None else numbers.head(most)
        for numbers in (difference.changed, difference.removed, difference.added)
    )
    kinds = {
        "changed": (difference.pairs["old"].gather(changed), difference.pairs["new"].gather(changed)),
        "removed": (removed, None),
        "added": (None, added),
    }
    parts = []
    for what, (olds, news) in kinds.items():
        paths, chosen = (after, news) if news is not None else (before, olds)
        assert chosen is not None
        parts.append(
            pl.DataFrame(
                {
                    "what": pl.Series([what], dtype=pl.String).new_from_index(0, len(chosen)),
                    **{name: read_column(paths, name, types).gather(chosen) for name in key},
                    "label_before": _labels(before, olds, label, len(chosen)),
                    "label_after": _labels(after, news, label, len(chosen)),
                    "columns": _columns(difference, changed) if what == "changed" else _nulls(len(chosen), pl.String()),
                }
            )
        )
    return pl.concat(parts)


def _labels(paths: list[Path], chosen: pl.Series | None, label: Label | None, rows: int) -> pl.Series:
    if chosen is None or label is None or label.column not in column_types(paths):
        return _nulls(rows, pl.Int8())
    return label_of(read_column(paths, label.column, common_types(paths)), label).gather(chosen)


def _columns(difference: Difference, changed: pl.Series) -> pl.Series:
    """Names of the columns that differ in each of the changed rows."""
    if not difference.cells:
        return _nulls(0, pl.String())
    cells = pl.DataFrame({name: differs.gather(changed) for name, differs in difference.cells.items()})
    named = [pl.when(pl.col(name)).then(pl.lit(name)) for name in cells.columns]
    return cells.select(pl.concat_str(named, separator=", ", ignore_nulls=True).alias("columns"))["columns"]


def _nulls(rows: int, kind: pl.DataType) -> pl.Series:
    return pl.Series([None], dtype=kind).new_from_index(0, rows)
