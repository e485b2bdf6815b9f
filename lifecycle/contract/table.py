"""What a folder of Parquet files holds, as the rules see it: one type a column, by the files' schema, not their values.

All engines judge by the same types, so an integer column with nulls is an integer for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.common_type import common_type, plain_type
from trainworthy.lifecycle.files.content import parquet_files

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = ("integer", "number", "null")
_INSTANTS = ("date", "timestamp", "null")


@dataclass(frozen=True)
class Table:
    """The files in order, their rows, and each column's type.

    `conflicts` says of a column that some files lack or hold with another type why no rule can judge it.
    """

    paths: tuple[Path, ...]
    rows: int
    types: dict[str, pa.DataType]
    conflicts: dict[str, str] = field(default_factory=dict)

    def held(self, column: str) -> str:
        """The standard's logical type of the column, `null` for one without values, or another type's own name.

        A timestamp without a zone is a `timestamp` here; that it is a `date` if all are at midnight, its values tell.
        """
        return logical_name(self.types[column])

    def is_aware(self, column: str) -> bool:
        """True for instants, false for wall-clock times and dates."""
        return getattr(self.types[column], "tz", None) is not None


def read_table(folder: Path) -> Table:
    """The table in a folder of Parquet files. Raises DatasetError for a file that can't be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths, rows, schemas = list(parquet_files(folder).values()), 0, []
    for path in paths:
        try:
            metadata = pq.read_metadata(path)
            rows += metadata.num_rows
            schemas.append(metadata.schema.to_arrow_schema())
        except (pa.ArrowException, OSError) as error:
            fix = "remove the file and fetch it again"
            raise DatasetError(f"{path.name} can't be read as Parquet: {error}", value=str(path), fix=fix) from None
    return table_of(paths, rows, schemas)


def table_of(paths: Iterable[Path], rows: int, schemas: list[pa.Schema]) -> Table:
    """The table of files with these schemas, in the same order."""
    paths, types, conflicts = tuple(paths), {}, {}
    for name in dict.fromkeys(name for schema in schemas for name in schema.names):
        places = [schema.get_all_field_indices(name) for schema in schemas]
        held_types = [schema.field(place[0]).type for schema, place in zip(schemas, places, strict=True) if place]
        common = common_type(held_types)
        lacking = [path.name for path, place in zip(paths, places, strict=True) if not place]
        if lacking:
            conflicts[name] = f"the column is missing in {', '.join(lacking[:3])}"
        elif any(len(place) > 1 for place in places):
            conflicts[name] = "the column is there twice"
        elif common is None:
            conflicts[name] = "holds " + " and ".join(sorted({logical_name(plain_type(kind)) for kind in held_types}))
        types[name] = common or plain_type(held_types[0])
    return Table(paths, rows, types, conflicts)


def logical_name(kind: pa.DataType) -> str:
    """The standard's logical type of an Arrow type, or the type's own name if there is none."""
    import pyarrow as pa

    types = pa.types
    if types.is_string(kind):
        return "string"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind):
        return "number"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_date(kind):
        return "date"
    return "timestamp" if types.is_timestamp(kind) else str(kind)


def type_held(column: str, table: Table, all_midnight: bool) -> str:
    """What a rule on the column's type sees; wall-clock times that are `all_midnight` are dates."""
    if column not in table.types:
        return "the column is missing"
    if column in table.conflicts:
        return table.conflicts[column]
    held = table.held(column)
    return "date" if held == "timestamp" and not table.is_aware(column) and all_midnight else held


def unjudged_because(rule: Rule, table: Table) -> str | None:
    """Why a rule can't be evaluated on this table, for every engine; None if it can. A `type` always can."""
    if rule.kind in ("type", "row_count"):
        return None
    absent = [name for name in rule.columns if name not in table.types]
    if absent:
        return f"the column {', '.join(absent)} is missing"
    for name in rule.columns:
        if name in table.conflicts:
            return f"{name}: {table.conflicts[name]}"
    if rule.kind in ("nulls", "null_together"):
        return None
    known = ("string", "boolean", *_NUMBERS, *_INSTANTS)
    for name in rule.columns:
        if table.held(name) not in known:
            return f"{name} holds {table.held(name)}, which no rule judges"
    return _misfit(rule, table)


def _misfit(rule: Rule, table: Table) -> str | None:
    from trainworthy.lifecycle.contract.literals import values_of

    first = rule.columns[0]
    held = table.held(first)
    if rule.kind in ("length", "pattern"):
        return None if held in ("string", "null") else f"{first} holds {held}, not text"
    if rule.kind == "hour_in_zone":
        if held != "timestamp" or not table.is_aware(first):
            return f"{first} has no time zone, so its hour in {rule.parameters['zone']} is unknown"
        second = table.held(rule.columns[1])
        return None if second in _NUMBERS else f"{rule.columns[1]} holds {second}, not an hour"
    if rule.kind in ("less_or_equal", "equal"):
        return _incomparable(rule, table)
    for name, values in zip(rule.columns, values_of(rule), strict=False):
        reason = _wrong_literal(rule, name, values, table)
        if reason:
            return reason
    return None


def _incomparable(rule: Rule, table: Table) -> str | None:
    first, second = rule.columns
    held, other = table.held(first), table.held(second)
    families: tuple[tuple[str, ...], ...] = (_NUMBERS, ("string", "null"), _INSTANTS)
    families += (("boolean", "null"),) if rule.kind == "equal" else ()
    if not any(held in family and other in family for family in families):
        return f"{first} holds {held} and {second} {other}, which can't be compared"
    instants = "null" not in (held, other) and held in _INSTANTS
    if instants and table.is_aware(first) != table.is_aware(second):
        return f"only one of {first} and {second} has a time zone, so they can't be compared"
    return None


def _wrong_literal(rule: Rule, name: str, values: list[Any], table: Table) -> str | None:
    """What keeps the values of a contract from being compared with the column's."""
    from trainworthy.lifecycle.contract.literals import as_instant, is_aware_instant

    held = table.held(name)
    if rule.kind == "range" and any(as_instant(value) is None for value in values) and held not in _NUMBERS:
        return f"{name} holds {held}, so it can't be compared with a number"
    if rule.kind == "range" and any(as_instant(value) is not None for value in values) and held not in _INSTANTS:
        return f"{name} holds {held}, so it can't be compared with an instant"
    if held not in ("date", "timestamp"):
        return None
    texts = [value for value in values if value is not None]
    if any(as_instant(value) is None for value in texts):
        return f"{name} holds {held}, and a listed value is no date or time"
    if any(is_aware_instant(value) != table.is_aware(name) for value in texts):
        has, need = ("a", "one") if table.is_aware(name) else ("no", "none")
        limits = ", ".join(str(value) for value in texts[:3])
        return f"{name} has {has} time zone, so its limits need {need}: {limits}"
    return None
