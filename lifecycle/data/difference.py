"""What differs between two versions of a dataset, row by row: added, removed and changed rows by key, and labels.

Files of equal content are skipped, and versions add files, so that little is read. Rows of the others are paired by a
64-bit hash of their key; then one column after the other is compared, so that no table is held whole. Rows that share
a key are paired in their order. A NaN counts as a null, a category as its text, and an equal number of another width
as equal: a type that changed is told as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.column_types import cast_to, column_types, common_types, type_name
from trainworthy.lifecycle.errors import DatasetError, did_you_mean
from trainworthy.lifecycle.files.content import ContentHash
from trainworthy.lifecycle.files.tree import is_file_name


@dataclass(frozen=True)
class VersionFiles:
    """A version's files on this machine: `title` is name@version, `content` what its files say."""

    title: str
    folder: Path
    content: ContentHash

    def paths(self, names: Sequence[str] | None = None) -> list[Path]:
        """These files (None: all), in their order."""
        return [self.folder / name for name in (self.names if names is None else names)]

    @property
    def names(self) -> list[str]:
        """Names of all Parquet files."""
        return [file.name for file in self.content.files if not is_file_name(file.name)]

    @property
    def named_files(self) -> dict[str, str]:
        """sha256 of the bytes of each file that rows name."""
        return {file.name: file.sha256 for file in self.content.files if is_file_name(file.name)}

    @cached_property
    def columns(self) -> dict[str, frozenset[Any]]:
        """Names and types of the columns of all files."""
        return column_types(self.paths())

    def lacking(self, column: str) -> list[str]:
        """Names of the files that do not have a column; no row is read."""
        return [name for name in self.names if column not in pl.read_parquet_schema(self.folder / name)]


@dataclass(frozen=True)
class Files:
    """Names of files: `equal` in both (as the new version names them), and those that only one version has."""

    equal: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """What was found. Rows are numbered over the files that differ: `removed` in the old, `added` in the new version.

    `changed` numbers the `pairs` (columns old, new: row numbers) whose values differ; `cells` says in which columns, a
    boolean a pair. `labels` counts changed labels by (before, after), None where there is none. Duplicates are rows
    whose key an earlier row of the version has.
    """

    files: Files
    added: pl.Series
    removed: pl.Series
    pairs: pl.DataFrame
    changed: pl.Series
    cells: Mapping[str, pl.Series]
    labels: Mapping[tuple[int | None, int | None], int]
    schema: tuple[str, ...]
    removed_columns: tuple[str, ...]
    old_duplicates: int
    new_duplicates: int


def compare(old: VersionFiles, new: VersionFiles, key: Sequence[str], label: Label | None) -> Difference:
    """Compare two versions by the key's columns. Raises DatasetError if one of the versions lacks a column of it."""
    files = _split_files(old, new)
    before, after = old.paths(files.old), new.paths(files.new)
    equal = new.paths(files.equal)
    types = common_types([*before, *after, *equal])
    _require_key(old, new, key)
    shared, olds, news = (_key_hashes(paths, key, types) for paths in (equal, before, after))
    pairs, removed, added = _paired(olds, news)
    cells: dict[str, pl.Series] = {}
    labels: Counter[tuple[int | None, int | None]] = Counter()
    both = [name for name in column_types(before) if name in column_types(after)] if pairs.height else []
    for name in both:
        values = [
            read_column(paths, name, types).gather(pairs[side]) for paths, side in ((before, "old"), (after, "new"))
        ]
        differs = values[0].ne_missing(values[1])
        if differs.any():
            cells[name] = differs
        if label is not None and name == label.column:
            labels.update(_label_changes(*(label_of(column, label) for column in values)))
    any_cell = pl.select(pl.any_horizontal(*cells.values())).to_series() if cells else pl.Series([], dtype=pl.Boolean)
    return Difference(
        files=files,
        added=added,
        removed=removed,
        pairs=pairs,
        changed=any_cell.arg_true(),
        cells=cells,
        labels=labels,
        schema=(*_schema_changes(old.columns, new.columns), *_partly_gone(old, new), *_file_changes(old, new)),
        removed_columns=tuple(name for name in old.columns if set(new.lacking(name)) - set(old.lacking(name))),
        old_duplicates=_duplicates(shared, olds),
        new_duplicates=_duplicates(shared, news),
    )


def read_column(paths: Sequence[Path], name: str, types: Mapping[str, Any]) -> pl.Series:
    """One column of all files, as its common type; empty where there is no file."""
    parts = [cast_to(_read(path, name), types[name]) for path in paths]
    return pl.concat(parts) if parts else pl.Series(name, [], dtype=types[name])


def _read(path: Path, name: str) -> pl.Series:
    """A column of one file; nulls where only other files have it."""
    if name in pl.read_parquet_schema(path):
        return pl.read_parquet(path, columns=[name])[name]
    rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    return pl.Series(name, [None] * rows, dtype=pl.Null)


def label_of(column: pl.Series, label: Label) -> pl.Series:
    """The label of each value, 0 or 1; None where there is none."""
    values = column if label.greater_than is None else column > label.greater_than
    return values.cast(pl.Int8, strict=False)


def _split_files(old: VersionFiles, new: VersionFiles) -> Files:
    """By content, so that a file that was only renamed is equal."""
    before, after = (
        [file for file in side.content.files if not is_file_name(file.name)] for side in (old, new)
    )  # fmt: skip
    left = Counter(file.sha256 for file in before)
    equal, only_new = [], []
    for file in after:
        left[file.sha256] -= 1
        (equal if left[file.sha256] >= 0 else only_new).append(file.name)
    spare = Counter({sha256: count for sha256, count in left.items() if count > 0})
    only_old = []
    for file in before:
        if spare[file.sha256] > 0:
            spare[file.sha256] -= 1
            only_old.append(file.name)
    return Files(equal=tuple(equal), old=tuple(only_old), new=tuple(only_new))


def _key_hashes(paths: Sequence[Path], key: Sequence[str], types: Mapping[str, Any]) -> pl.Series:
    parts = [
        pl.DataFrame({name: cast_to(_read(path, name), types[name]) for name in key}).hash_rows(seed=0)
        for path in paths
    ]
    return pl.concat(parts) if parts else pl.Series([], dtype=pl.UInt64)


def _paired(old: pl.Series, new: pl.Series) -> tuple[pl.DataFrame, pl.Series, pl.Series]:
    """Row numbers of equal keys side by side, and of the rows that only one side has."""

    def numbered(hashes: pl.Series, name: str) -> pl.DataFrame:
        frame = pl.DataFrame({"key": hashes}).with_row_index(name)
        return frame.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).over("key").alias("occurrence"))

    left, right, on = numbered(old, "old"), numbered(new, "new"), ["key", "occurrence"]
    pairs = left.join(right, on=on, how="inner").select("old", "new").sort("old")
    removed = left.join(right, on=on, how="anti")["old"].sort()
    return pairs, removed, right.join(left, on=on, how="anti")["new"].sort()


def _duplicates(equal: pl.Series, own: pl.Series) -> int:
    whole = pl.concat([equal, own])
    return len(whole) - whole.n_unique()


def _label_changes(before: pl.Series, after: pl.Series) -> dict[tuple[int | None, int | None], int]:
    frame = pl.DataFrame({"before": before, "after": after}).filter(pl.col("before").ne_missing(pl.col("after")))
    counted = frame.group_by("before", "after").len()
    return {(row["before"], row["after"]): row["len"] for row in counted.iter_rows(named=True)}


def _schema_changes(before: Mapping[str, frozenset[Any]], after: Mapping[str, frozenset[Any]]) -> tuple[str, ...]:
    lines = [f"column added: {name} ({type_name(after[name])})" for name in after if name not in before]
    lines += [f"column removed: {name} ({type_name(before[name])})" for name in before if name not in after]
    lines += [
        f"type of {name}: {type_name(before[name])} → {type_name(after[name])}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    return tuple(lines)


def _partly_gone(old: VersionFiles, new: VersionFiles) -> list[str]:
    """Columns that some files of the new version have and others lack, where the old version's files had them."""
    lines = []
    for name in old.columns:
        files = [file for file in new.lacking(name) if file not in old.lacking(name)] if name in new.columns else []
        if files:
            lines.append(f"column missing in {', '.join(files[:5])}: {name}")
    return lines


def _file_changes(old: VersionFiles, new: VersionFiles) -> list[str]:
    """How many files that rows name were added, removed and changed."""
    before, after = old.named_files, new.named_files
    changed = sum(after[name] != before[name] for name in before.keys() & after.keys())
    counts = {
        "added": len(after.keys() - before.keys()),
        "removed": len(before.keys() - after.keys()),
        "other bytes": changed,
    }
    listed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return [f"below files/: {listed}"] if listed else []


def _require_key(old: VersionFiles, new: VersionFiles, key: Sequence[str]) -> None:
    for version in (old, new):
        missing = [name for name in key if name not in version.columns]
        if missing:
            fix = f"{did_you_mean(missing[0], version.columns)} Name other columns: --key A,B"
            raise DatasetError(f"{version.title} lacks columns of the key", value=missing, fix=fix)
