"""The rows of a table as Spark columns whose values are those of the other engines: instants as ticks, NaN as null."""

# pyspark is an extra: the types are checked where it is installed.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from trainworthy.lifecycle.contract.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NANOSECONDS = {"ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9
_INTEGERS = ("tinyint", "smallint", "int", "bigint", "decimal(20,0)")
# The types of Spark in which values of a logical type may be read.
_READ_AS = {
    "string": ("string",),
    "boolean": ("boolean",),
    "integer": _INTEGERS,
    "number": ("float", "double", *_INTEGERS),
    "date": ("date",),
}


class _UnreadError(Exception):
    """What Spark reads otherwise than it is written."""


def quoted(name: str) -> Column:
    """A column by its name, in which a dot is no field."""
    from pyspark.sql import functions as F  # noqa: N812, as everybody calls it

    return F.col(f"`{name.replace('`', '``')}`")


def own_name(name: str) -> str:
    """What a column of the table is called beside columns that are none of its."""
    return f"column {name}"


def own_column(name: str) -> Column:
    """A column of the table in the rows that `read_rows` gives."""
    return quoted(own_name(name))


def read_rows(spark: SparkSession, table: Table, columns: Sequence[str]) -> tuple[DataFrame, dict[str, str]]:
    """The columns of all files in the table's types, and why some are not among them.

    Spark takes one file's schema for all, so files of different schemas are read apart.
    """
    from pyspark.sql import functions as F  # noqa: N812

    alike: dict[str, list[str]] = {}
    for path in table.paths:
        alike.setdefault(_schema(path), []).append(str(path))
    parts, unread = [spark.read.parquet(*paths) for paths in alike.values()], {}
    for name in columns:
        try:
            for part in parts:
                _values(name, dict(part.dtypes)[name], table)
        except _UnreadError as reason:
            unread[name] = str(reason)
    read = [name for name in columns if name not in unread]
    rows = None
    for part in parts:
        kinds = dict(part.dtypes)
        own = part.select(
            F.lit(1).alias("row"), *(_values(name, kinds[name], table).alias(own_name(name)) for name in read)
        )
        rows = own if rows is None else rows.unionAll(own)
    assert rows is not None, table
    return rows, unread


def _schema(path: Path) -> str:
    return str(pq.read_schema(path).remove_metadata())


def _values(name: str, read_as: str, table: Table) -> Column:
    """A column that Spark reads in this type, in the table's: instants as ticks, NaN as null, no negative zero.

    Raises _UnreadError where Spark reads something else than is written.
    """
    from pyspark.sql import functions as F  # noqa: N812

    column, held, kind = quoted(name), table.held(name), table.types[name]
    aware = "timestamp" if held == "timestamp" and table.is_aware(name) else "timestamp_ntz"
    allowed = (aware, "bigint") if held == "timestamp" else _READ_AS.get(held)
    if held == "null":
        return F.lit(None).cast("double")
    if allowed is None:
        # Of other types only nulls are counted.
        return F.when(column.isNotNull(), 0.0)
    if read_as not in allowed:
        raise _UnreadError(f"{name}: Spark reads {held} as {read_as}")
    if held == "number":
        number = column.cast("double")
        return F.when(~F.isnan(number), number + 0.0)
    if held == "date":
        return F.unix_date(column).cast("bigint")
    if held == "timestamp" and read_as != "bigint":
        micros, unit = F.unix_micros(column.cast("timestamp")), NANOSECONDS[kind.unit]
        return divided(micros, unit // 1000) if unit >= 1000 else micros * (1000 // unit)
    return column.cast(spark_type(kind))


def spark_type(kind: pa.DataType) -> str:
    """The type of a column's values (see `_values`)."""
    if kind == pa.uint64():
        return "decimal(20,0)"
    if pa.types.is_string(kind):
        return "string"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "double" if pa.types.is_floating(kind) else "bigint"


def literal(value: Any, kind: pa.DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    # As text, since Spark takes no integer above 2^63 from Python.
    return F.lit(str(value)).cast(spark_type(kind))


def divided(numbers: Column, by: int) -> Column:
    """Whole numbers divided and rounded down; Spark's own division is one of floats, or towards zero."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.call_function("div", numbers - F.pmod(numbers, F.lit(by)), F.lit(by))
