"""The rows that break a rule: the first of them for people, all of them as a file.

They are looked for after the counting, in a second pass over the columns of the failed rules alone. Rows are named by
the primary key and shown with the rule's columns. Of a rule over a sensitive column no row is ever named.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from trainworthy.lifecycle.contract.batches import batches
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.polars_masks import broken_by
from trainworthy.lifecycle.contract.polars_unique import all_duplicates, is_duplicate
from trainworthy.lifecycle.contract.result import MAX_NAMED_ROWS, RuleResult
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.contract.table import Table, read_table
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import sync_folder

# These count no rows that could be named.
_NO_ROWS = ("type", "row_count", "distribution")


class FailingRows(Frozen):
    """All failing rows of a rule, as a Parquet file."""

    rule: str
    rows: int
    file: str


def with_failing_rows(table: Table, contract: Contract, results: Sequence[RuleResult]) -> tuple[RuleResult, ...]:
    """The results, each failed one with up to MAX_NAMED_ROWS of its rows."""
    rules = [result.rule for result in results if _has_rows(result, contract)]
    least: dict[str, pl.DataFrame] = {}
    for rule, rows in _failing(table, contract, rules):
        before = least.get(rule.id)
        least[rule.id] = first_rows(rows if before is None else before.vstack(rows))
    return tuple(_with_rows(result, contract, least.get(result.rule.id)) for result in results)


def _with_rows(result: RuleResult, contract: Contract, rows: pl.DataFrame | None) -> RuleResult:
    if rows is not None:
        return result.model_copy(update={"failing_rows": plain_rows(rows)})
    return result.model_copy(update={"withheld": True}) if is_withheld(result, contract) else result


def is_withheld(result: RuleResult, contract: Contract) -> bool:
    """True if the result's rows exist and may not be shown."""
    counts_rows = result.status == "fail" and result.rule.kind not in _NO_ROWS
    return counts_rows and bool(set(contract.sensitive_columns) & set(result.rule.columns))


def _has_rows(result: RuleResult, contract: Contract) -> bool:
    failed = result.status == "fail" and result.rule.kind not in _NO_ROWS and bool(result.count)
    return failed and not is_withheld(result, contract)


def shown_columns(table: Table, contract: Contract, rule: Rule) -> list[str]:
    """The key's columns and the rule's, without those that are sensitive or can't be read."""
    named = dict.fromkeys((*contract.primary_key, *rule.columns))
    hidden = {*contract.sensitive_columns, *table.conflicts}
    return [name for name in named if name in table.types and name not in hidden]


def _failing(table: Table, contract: Contract, rules: Sequence[Rule]) -> Iterator[tuple[Rule, pl.DataFrame]]:
    """Batch after batch, the rows of each rule that break it, with the columns that are shown."""
    if not rules:
        return
    shown = {rule.id: shown_columns(table, contract, rule) for rule in rules}
    shared = {rule.id: all_duplicates(table, rule.columns) for rule in rules if rule.kind == "unique"}
    columns = tuple(dict.fromkeys(name for rule in rules for name in (*rule.columns, *shown[rule.id])))
    for frame in batches(table, columns):
        for rule in rules:
            unique = rule.kind == "unique"
            broken = is_duplicate(frame, rule.columns, shared[rule.id]) if unique else broken_by(rule, table)
            rows = frame.filter(broken)
            yield rule, rows.select([rows.get_column(name) for name in shown[rule.id]])


def named_rows(table: Table, contract: Contract, rule: Rule, row_numbers: Sequence[int]) -> tuple[dict[str, Any], ...]:
    """Up to MAX_NAMED_ROWS of the rows with these numbers in the table."""
    numbers, first, least = pl.Series(row_numbers, dtype=pl.Int64), 0, pl.DataFrame()
    for frame in batches(table, shown_columns(table, contract, rule)) if row_numbers else ():
        here = numbers.filter(numbers.is_between(first, first + len(frame) - 1)) - first
        least = first_rows(least.vstack(frame[here]) if least.width else frame[here])
        first += len(frame)
    return plain_rows(least)


def first_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The first rows by key and then by the other columns: an order that holds for every engine."""
    unsortable = {name for name, kind in rows.schema.items() if kind.is_nested() or kind == pl.Object}
    by = [place for place, name in enumerate(rows.columns) if name not in unsortable]
    if len(rows) <= 1 or not by:
        return rows.head(MAX_NAMED_ROWS)
    order = pl.DataFrame({str(place): rows.to_series(place) for place in by})
    places = order.select(pl.arg_sort_by(order.columns, nulls_last=True, maintain_order=True).head(MAX_NAMED_ROWS))
    return rows[places.to_series()]


def plain_rows(rows: pl.DataFrame) -> tuple[dict[str, Any], ...]:
    """Rows as JSON: ISO 8601 for dates and times."""
    texts = [_text(values) if values.dtype.is_temporal() else values for values in rows]
    return tuple({key: _plain(value) for key, value in row.items()} for row in pl.DataFrame(texts).to_dicts())


def _text(values: pl.Series) -> pl.Series:
    if isinstance(values.dtype, pl.Datetime):
        return values.dt.to_string("%Y-%m-%dT%H:%M:%S%.f" + ("+00:00" if values.dtype.time_zone else ""))
    return values.cast(pl.String)


def _plain(value: Any) -> Any:
    """Infinite floats and what JSON does not know as text."""
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def write_failing_rows(
    folder: Path, contract: Contract, results: Sequence[RuleResult], target: Path
) -> tuple[FailingRows, ...]:
    """Make `target` the folder of each failed rule's rows, `<rule>.parquet`, in the files' order.

    It is replaced as a whole, so that it holds the files of one judgement and none of an earlier one.
    """
    rules = [result.rule for result in results if _has_rows(result, contract)]
    if not rules and not target.exists():
        return ()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, on the same disk; no other process knows its name.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        written = Path(scratch, "written")
        written.mkdir()
        rows_of = _written_rows(_failing(read_table(folder), contract, rules), written)
        _install(written, target, Path(scratch))
    sync_folder(target.parent)
    return tuple(FailingRows(rule=rule.id, rows=rows_of[rule.id], file=f"{file_name(rule)}.parquet") for rule in rules)


def _written_rows(failing: Iterator[tuple[Rule, pl.DataFrame]], folder: Path) -> dict[str, int]:
    """How many rows of each rule were written to its file."""
    writers: dict[str, pq.ParquetWriter] = {}
    rows_of: dict[str, int] = {}
    try:
        for rule, rows in failing:
            content = rows.to_arrow()
            if rule.id not in writers:
                writers[rule.id] = pq.ParquetWriter(folder / f"{file_name(rule)}.parquet", content.schema)
            if len(rows):
                writers[rule.id].write_table(content)
            rows_of[rule.id] = rows_of.get(rule.id, 0) + len(rows)
    finally:
        for writer in writers.values():
            writer.close()
    return rows_of


def _install(written: Path, target: Path, scratch: Path) -> None:
    """Put a folder in the target's place, also while another process puts its own there: the last one stays."""
    for number in itertools.count():
        try:
            written.replace(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        with suppress(FileNotFoundError):  # the other process has just moved it away
            target.replace(scratch / f"before-{number}")


def file_name(rule: Rule) -> str:
    """The rule's id if it is a plain file name; else as much of it as is, with a hash that tells it from others."""
    plain = re.sub(r"[^A-Za-z0-9_.\-]", "_", rule.id)[:100].lstrip(".")
    return plain if plain == rule.id else f"{plain}-{hashlib.sha256(rule.id.encode()).hexdigest()[:8]}"
