"""The rows that differ between two versions, by key: what happened, in which columns, the label before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.column_types import column_types, common_types
from trainworthy.lifecycle.data.difference import Difference, VersionFiles, label_of, read_column

if TYPE_CHECKING:
    import polars as pl


def changed_rows(
    found: Difference, old: VersionFiles, new: VersionFiles, key: Sequence[str], label: Label | None,
    most: int | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Columns what (changed, removed or added), the key's, label_before, label_after and columns; no other value.

    Labels are 0, 1 or null where there is none. At most `most` rows of each kind.
    """
    import polars as pl

    before, after = old.paths(found.files.old), new.paths(found.files.new)
    types = common_types([*before, *after])
    changed, removed, added = (
        numbers if most is None else numbers.head(most) for numbers in (found.changed, found.removed, found.added)
    )
    kinds = {
        "changed": (found.pairs["old"].gather(changed), found.pairs["new"].gather(changed)),
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
                    "columns": _columns(found, changed) if what == "changed" else _nulls(len(chosen), pl.String()),
                }
            )
        )
    return pl.concat(parts)


def _labels(paths: list[Path], chosen: pl.Series | None, label: Label | None, rows: int) -> pl.Series:
    import polars as pl

    if chosen is None or label is None or label.column not in column_types(paths):
        return _nulls(rows, pl.Int8())
    return label_of(read_column(paths, label.column, common_types(paths)), label).gather(chosen)


def _columns(found: Difference, changed: pl.Series) -> pl.Series:
    """Names of the columns that differ in each of the changed rows."""
    import polars as pl

    if not found.cells:
        return _nulls(0, pl.String())
    cells = pl.DataFrame({name: differs.gather(changed) for name, differs in found.cells.items()})
    named = [pl.when(pl.col(name)).then(pl.lit(name)) for name in cells.columns]
    return cells.select(pl.concat_str(named, separator=", ", ignore_nulls=True).alias("columns"))["columns"]


def _nulls(rows: int, kind: pl.DataType) -> pl.Series:
    import polars as pl

    return pl.Series([None], dtype=kind).new_from_index(0, rows)
