"""Rules as Spark columns: a mark that is true in the rows that break a rule; of a distribution, a mark for each bin."""

# pyspark is an extra: the types are checked where it is installed.
# pyright: reportMissingImports=false

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from trainworthy.expectations.spark_rows import DAY, NANOSECONDS, divided, literal, own_column, spark_type
from trainworthy.lifecycle.contract.literals import bounds, float_limits, listed, place, whole_edges, whole_interval
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.contract.table import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_COMPARED = ("range", "length", "pattern", "allowed", "less_or_equal", "equal", "hour_in_zone", "references")


def marks(rule: Rule, table: Table, known: str) -> list[Column]:
    """What is summed for a rule; `known` is the column that `with_known_keys` added."""
    if rule.kind == "distribution":
        return _bins(rule, table)
    return [_broken(rule, table, known)]


def _broken(rule: Rule, table: Table, known: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    own = [own_column(name) for name in rule.columns]
    first, kind, parameters = own[0], table.types[rule.columns[0]], rule.parameters
    if rule.kind in _COMPARED:
        if any(table.held(name) == "null" for name in rule.columns):
            return F.lit(False)
        return _all(column.isNotNull() for column in own) & _unequal(rule, table, known)
    match rule.kind:
        case "type":
            # A wall-clock time that is no midnight.
            return F.pmod(first, F.lit(DAY // NANOSECONDS[kind.unit])) != 0
        case "nulls":
            return first.isNull()
        case "null_together":
            return _any(column.isNull() for column in own) & ~_all(column.isNull() for column in own)
        case "missing":
            nulls = first.isNull() if None in parameters["values"] else F.lit(False)
            return nulls | (first.isNotNull() & _is_listed(first, parameters["values"], kind))
        case "unique":
            from pyspark.sql import Window

            shared = F.count(F.lit(1)).over(Window.partitionBy(*own)) > 1
            return shared & first.isNotNull() if len(own) == 1 else shared
    raise AssertionError(rule)


def _unequal(rule: Rule, table: Table, known: str) -> Column:
    """True in the rows without a null that break the rule."""
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812

    first, kind, parameters = own_column(rule.columns[0]), table.types[rule.columns[0]], rule.parameters
    match rule.kind:
        case "allowed":
            return ~_is_listed(first, parameters["values"], kind)
        case "length":
            return _outside(F.length(first), parameters, pa.float64())
        case "range" if pa.types.is_floating(kind):
            return _outside(first, float_limits(parameters, kind), kind)
        case "range":
            low, high = whole_interval(parameters, kind)
            return F.lit(True) if low > high else ~first.between(literal(low, kind), literal(high, kind))
        case "pattern":
            return ~_found(parameters["pattern"])(first)
        case "hour_in_zone":
            micros = divided(first, 1000) if kind.unit == "ns" else first * (NANOSECONDS[kind.unit] // 1000)
            local = F.from_utc_timestamp(F.timestamp_micros(micros), parameters["zone"])
            return F.hour(local).cast("double") != own_column(rule.columns[1]).cast("double")
        case "references":
            return F.col(known).isNull()
    a, b = _comparable(rule, table)
    return a > b if rule.kind == "less_or_equal" else a != b


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(operator.and_, conditions)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(operator.or_, conditions)


def _is_listed(column: Column, wanted: Iterable[Any], kind: pa.DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    known = [literal(value, kind) for value in listed(wanted, kind)]
    return column.isin(*known) if known else F.lit(False)


def _outside(column: Column, limits: Mapping[str, Any], kind: pa.DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    breaks = {"minimum": operator.lt, "exclusive_minimum": operator.le,
              "maximum": operator.gt, "exclusive_maximum": operator.ge}  # fmt: skip
    ends = [breaks[name](column, literal(value, kind)) for name, value in limits.items() if name in breaks]
    return _any([F.lit(False), *ends])


def _found(pattern: str) -> Any:
    """Python's `re.search` in Spark's own Python workers: Java reads some expressions otherwise."""
    from pyspark.sql import functions as F  # noqa: N812

    search = re.compile(pattern).search
    return F.udf(lambda value: None if value is None else search(value) is not None, "boolean")


def _comparable(rule: Rule, table: Table) -> tuple[Column, Column]:
    """Both columns as numbers of one kind; an integer beside a float is a float."""
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812

    first, second = (own_column(name) for name in rule.columns)
    kinds = [table.types[name] for name in rule.columns]
    if any(map(pa.types.is_floating, kinds)):
        return first.cast("double"), second.cast("double")
    if kinds[0] == kinds[1]:
        return first, second
    units = [NANOSECONDS[kind.unit] if pa.types.is_timestamp(kind) else DAY for kind in kinds]
    units = [1, 1] if pa.uint64() in kinds else units
    wide = [
        column.cast("decimal(20,0)") * F.lit(str(unit)).cast("decimal(17,0)")
        for column, unit in zip((first, second), units, strict=True)
    ]
    return wide[0], wide[1]


def with_known_keys(rows: DataFrame, rule: Rule, table: Table, known: str) -> DataFrame:
    """The rows; for a rule on keys of another table, with a column that is true where they are known, else null."""
    from pyspark.sql import functions as F  # noqa: N812

    if rule.kind != "references" or any(table.held(name) == "null" for name in rule.columns):
        return rows
    kinds = [table.types[name] for name in rule.columns]
    placed = {tuple(map(place, key, kinds)) for key in rule.parameters["keys"]}
    # Each key once: a row that met two would be two rows.
    texts = [tuple(map(str, key)) for key in placed if None not in key]
    names = [f"{known}_{number}" for number in range(len(kinds))]
    schema = ", ".join(f"{name} string" for name in names)
    found = rows.sparkSession.createDataFrame(texts, schema).withColumn(known, F.lit(True))
    alike = (
        own_column(own) == F.col(name).cast(spark_type(kind))
        for own, name, kind in zip(rule.columns, names, kinds, strict=True)
    )
    return rows.join(F.broadcast(found), _all(alike), "left").drop(*names)


def _bins(rule: Rule, table: Table) -> list[Column]:
    """True in a bin's rows, a mark for each bin (rule.py)."""
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812

    name, kind, bins = rule.columns[0], table.types[rule.columns[0]], len(rule.parameters["counts"])
    first, held = own_column(name), table.held(name)
    if held == "null":
        inner = [F.lit(False)] * (bins - 1)
    elif "edges" in rule.parameters:
        edges = whole_edges(rule.parameters["edges"], kind)
        highest = math.inf if pa.types.is_floating(kind) else bounds(kind)[1]
        reached = [F.lit(False) if edge > highest else first >= literal(edge, kind) for edge in edges]
        inner = [a & ~b for a, b in zip([F.lit(True), *reached], [*reached, F.lit(False)], strict=True)]
    else:
        placed: dict[Any, int] = {}
        for at, value in enumerate(rule.parameters["values"]):
            placed.setdefault(place(value, kind), at)
        at_place = {at: first == literal(value, kind) for value, at in placed.items() if value is not None}
        others = ~_is_listed(first, rule.parameters["values"], kind)
        inner = [*(at_place.get(at, F.lit(False)) for at in range(bins - 2)), others]
    return [*(first.isNotNull() & one for one in inner), first.isNull()]
