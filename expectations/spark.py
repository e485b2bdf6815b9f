"""Judges a folder of Parquet files with Great Expectations on Spark: the verdicts of the other engines, rule by rule.

For data above one machine's memory. Spark marks the rows that break a rule (of a distribution, a mark for each bin),
and Great Expectations sums the marks: sums alone share one pass over the rows, counts of unexpected values take a Spark
job each. What Spark can't read as the reference does has the status error and a reason, never a pass.
"""

from __future__ import annotations

import math
import operator
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trainworthy.expectations.imported import import_great_expectations
from trainworthy.expectations.spark_rows import DAY, NANOSECONDS, divided, literal, own_column, read_rows, spark_type
from trainworthy.expectations.validate import raised_message
from trainworthy.lifecycle.contract.literals import bounds, float_limits, listed, place, whole_edges, whole_interval
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.polars_engine import judged
from trainworthy.lifecycle.contract.result import RuleResult
from trainworthy.lifecycle.contract.rule import Rule, surplus
from trainworthy.lifecycle.contract.table import Table, read_table
from trainworthy.lifecycle.errors import DatasetError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# pyspark is an extra: the types are checked where it is installed.
# pyright: reportMissingImports=false


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
            return ~_search_udf(parameters["pattern"])(first)
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


def _is_listed(column: Column, values: Iterable[Any], kind: pa.DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    known = [literal(value, kind) for value in listed(values, kind)]
    return column.isin(*known) if known else F.lit(False)


def _outside(column: Column, limits: Mapping[str, Any], kind: pa.DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    breaks = {"minimum": operator.lt, "exclusive_minimum": operator.le,
              "maximum": operator.gt, "exclusive_maximum": operator.ge}  # fmt: skip
    ends = [breaks[name](column, literal(value, kind)) for name, value in limits.items() if name in breaks]
    return _any([F.lit(False), *ends])


def _search_udf(pattern: str) -> Any:
    """Python's `re.search` in Spark's own Python workers: Java reads some expressions otherwise."""
    from pyspark.sql import functions as F  # noqa: N812

    search = re.compile(pattern).search
    return F.udf(lambda value: None if value is None else search(value) is not None, "boolean")


def _comparable(rule: Rule, table: Table) -> tuple[Column, Column]:
    """Both columns as numbers of one kind; an integer beside a float is a float."""
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
    known_keys = rows.sparkSession.createDataFrame(texts, schema).withColumn(known, F.lit(True))
    alike = (
        own_column(own) == F.col(name).cast(spark_type(kind))
        for own, name, kind in zip(rule.columns, names, kinds, strict=True)
    )
    return rows.join(F.broadcast(known_keys), _all(alike), "left").drop(*names)


def _bins(rule: Rule, table: Table) -> list[Column]:
    """True in a bin's rows, a mark for each bin (rule.py)."""
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
        unlisted = ~_is_listed(first, rule.parameters["values"], kind)
        inner = [*(at_place.get(at, F.lit(False)) for at in range(bins - 2)), unlisted]
    return [*(first.isNotNull() & in_bin for in_bin in inner), first.isNull()]


# pyspark is an extra: the types are checked where it is installed.
# pyright: reportMissingImports=false


# Instants are judged in UTC, as they are written: no calendar is corrected, nanoseconds stay, and `a` is not `A`.
_READING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}


def validate_files(folder: Path, contract: Contract) -> tuple[RuleResult, ...]:
    """What each of the contract's rules finds in a folder of Parquet files, in the contract's order.

    Uses the Spark session that is active, else a local one that ends with the call. Raises DatasetError for a file
    that can't be read, and SettingsError without Java.
    """
    table = read_table(folder)
    with spark_session() as spark:
        engine = _engine()
        return judged(table, contract, lambda table, rules: _one_pass(spark, engine, table, rules))


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A session with settings of its own; a local one listens on the loopback alone and has no UI."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is None and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        fix = "install Java 17 (apt-get install openjdk-17-jre-headless), or write validation: {engine: auto}"
        raise SettingsError("validation.engine is spark, and Spark finds no Java", value="java", fix=fix)
    # Spark's workers are of this Python; its own default is whatever python3 is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    for name, value in _LOCAL.items():
        builder = builder.config(name, value)
    session = there.newSession() if there else builder.master("local[*]").appName("trainworthy").getOrCreate()
    for name, value in _READING.items():
        session.conf.set(name, value)
    try:
        yield session
    finally:
        if there is None:
            session.stop()


def _engine() -> Any:
    """The definition of a batch of rows, in a context that lives in memory and prints nothing."""
    import_great_expectations()
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # Kept in memory, the rows would be read no faster: there is one pass.
    asset = context.data_sources.add_spark("contract", persist=False).add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all")


def _one_pass(spark: SparkSession, engine: Any, table: Table, rules: Sequence[Rule]) -> dict[str, int | str]:
    """Each rule's count, or why it has none. Raises whatever Spark or Great Expectations stumble over."""
    from pyspark.sql import functions as F  # noqa: N812, as everybody calls it

    counts: dict[str, int | str] = {}
    rows, unread = read_rows(spark, table, list(dict.fromkeys(name for rule in rules for name in rule.columns)))
    marked: dict[str, list[str]] = {}
    columns = [F.lit(1).alias("row")]
    for rule in rules:
        reasons = [unread[name] for name in rule.columns if name in unread]
        if reasons:
            counts[rule.id] = reasons[0]
            continue
        known = f"known_{len(columns)}"
        rows, own = with_known_keys(rows, rule, table, known), marks(rule, table, known)
        marked[rule.id] = [f"mark_{len(columns) + place}" for place in range(len(own))]
        columns += [F.when(mark, 1).otherwise(0).alias(name) for mark, name in zip(own, marked[rule.id], strict=True)]
    sums = _sums(engine, rows.select(columns), [name for names in marked.values() for name in names], table)
    for rule in rules:
        if rule.id in marked:
            own = [sums[name] for name in marked[rule.id]]
            counts[rule.id] = surplus(own, rule.parameters["counts"]) if rule.kind == "distribution" else own[0]
    return counts


def _sums(engine: Any, frame: DataFrame, names: Sequence[str], table: Table) -> dict[str, int]:
    """Great Expectations' sum of each column. Raises DatasetError if Spark sees other rows than there are."""
    import great_expectations as gx
    import great_expectations.expectations as gxe

    expected: Any = gxe
    sum_expectations = [
        expected.ExpectColumnSumToBeBetween(column=name, min_value=0, meta={"sum": name}) for name in names
    ]
    sum_expectations.append(expected.ExpectTableRowCountToBeBetween(min_value=0, meta={"sum": ""}))
    suite = gx.ExpectationSuite(name="contract", expectations=sum_expectations)
    answers = engine.get_batch({"dataframe": frame}).validate(suite, result_format="BASIC").results
    reason = next((reason for reason in map(raised_message, answers) if reason is not None), None)
    if reason is not None:
        raise RuntimeError(reason)
    sums = {answer.expectation_config.meta["sum"]: answer.result.get("observed_value") for answer in answers}
    if sums[""] != table.rows:
        fix = "write validation: {engine: auto}"
        raise DatasetError(f"Spark reads {sums['']} of {table.rows} rows", value=str(table.paths[0].parent), fix=fix)
    # Of no rows there is no sum.
    return {name: int(sums[name]) if table.rows else 0 for name in names}
