"""Judges a folder of Parquet files with Great Expectations on Spark: the verdicts of the other engines, rule by rule.

For data above one machine's memory. Spark marks the rows that break a rule (spark_marks.py), and Great Expectations
sums the marks: sums alone share one pass over the rows, counts of unexpected values take a Spark job each. What Spark
can't read as the reference does has the status error and a reason, never a pass.
"""

# pyspark is an extra: the types are checked where it is installed.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.expectations.imported import import_great_expectations
from trainworthy.expectations.spark_marks import marks, with_known_keys
from trainworthy.expectations.spark_rows import read_rows
from trainworthy.expectations.validate import raised_message
from trainworthy.lifecycle.contract.fused import judged
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.result import RuleResult
from trainworthy.lifecycle.contract.rule import Rule, surplus
from trainworthy.lifecycle.contract.table import Table, read_table
from trainworthy.lifecycle.errors import DatasetError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

    found: dict[str, int | str] = {}
    rows, unread = read_rows(spark, table, list(dict.fromkeys(name for rule in rules for name in rule.columns)))
    marked: dict[str, list[str]] = {}
    columns = [F.lit(1).alias("row")]
    for rule in rules:
        reasons = [unread[name] for name in rule.columns if name in unread]
        if reasons:
            found[rule.id] = reasons[0]
            continue
        known = f"known_{len(columns)}"
        rows, own = with_known_keys(rows, rule, table, known), marks(rule, table, known)
        marked[rule.id] = [f"mark_{len(columns) + place}" for place in range(len(own))]
        columns += [F.when(one, 1).otherwise(0).alias(name) for one, name in zip(own, marked[rule.id], strict=True)]
    sums = _sums(engine, rows.select(columns), [name for names in marked.values() for name in names], table)
    for rule in rules:
        if rule.id in marked:
            own = [sums[name] for name in marked[rule.id]]
            found[rule.id] = surplus(own, rule.parameters["counts"]) if rule.kind == "distribution" else own[0]
    return found


def _sums(engine: Any, frame: DataFrame, names: Sequence[str], table: Table) -> dict[str, int]:
    """Great Expectations' sum of each column. Raises DatasetError if Spark sees other rows than there are."""
    import great_expectations as gx
    import great_expectations.expectations as gxe

    expected: Any = gxe
    asked = [expected.ExpectColumnSumToBeBetween(column=name, min_value=0, meta={"sum": name}) for name in names]
    asked.append(expected.ExpectTableRowCountToBeBetween(min_value=0, meta={"sum": ""}))
    suite = gx.ExpectationSuite(name="contract", expectations=asked)
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
