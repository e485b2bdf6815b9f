"""Judges a folder of Parquet files with Great Expectations on Spark: the verdicts of validate_frame, rule by rule.

For data above one machine's memory. All rules share one frame, in which what pandas does beside the expectations is
done by Spark first: NaN becomes null, instants become microseconds, hours local ones. What Spark can't judge as the
reference does has the status error and a reason, never a pass. No rows are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from expectations.suite import ACCEPTED, MISSING, expectation
from expectations.validate import _raised, _reason, _result
from lifecycle.contract.model import Contract
from lifecycle.contract.result import RuleResult
from lifecycle.contract.rule import Kind, Rule, within
from lifecycle.data.content import parquet_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOT_ON_SPARK: tuple[Kind, ...] = ("null_together", "references", "distribution")
KINDS = tuple(kind for kind in get_args(Kind) if kind not in NOT_ON_SPARK)
# What Java's regular expressions read otherwise than Python's.
_FOREIGN_PATTERN = re.compile(r"\\[ZzAQEGpP]|\(\?[P(#]|&&|\[[^\]]*\[|\$.*\n|(?<!\\)\(\?[aLu]")


def validate_files(folder: Path, contract: Contract) -> tuple[RuleResult, ...]:
    """What each of the contract's rules finds in the rows of a folder of Parquet files, in the contract's order.

    Uses the Spark session that is there, else starts a local one. Raises DatasetError for a folder without files.
    """
    spark = _session()
    sensitive = set(contract.sensitive_columns)
    try:
        written = _written_types(folder)
        rows = _as_pandas_reads(spark.read.parquet(*map(str, parquet_files(folder).values())), written)
        total = rows.count()
        types = _logical_types(rows, total, written)
    except Exception as error:  # whatever Spark stumbles over, no rule is evaluated, and each says so
        return tuple(
            RuleResult(rule=rule, status="error", rows=0, error=_reason(error, rule, sensitive))
            for rule in contract.rules
        )
    found = {rule.id: _typed(rule, types, total) for rule in contract.rules if rule.kind == "type"}
    prepared: dict[str, tuple[Rule, list[Any]]] = {}
    for place, rule in enumerate(contract.rules):
        if rule.kind == "type":
            continue
        try:
            prepared[rule.id] = _prepared(rule, rows, types, f"r{place}")
        except _NotJudgedError as reason:
            found[rule.id] = RuleResult(rule=rule, status="error", rows=total, error=str(reason))
    for identifier, answer in _answers(rows, prepared).items():
        rule = prepared[identifier][0]
        if total == 0 and rule.kind != "row_count" and _raised(answer) is None:
            # Spark's sum over no rows is null, where pandas counts none.
            answer.result["unexpected_count"] = 0
        result = _result(rule, answer, total, sensitive)
        found[identifier] = result.model_copy(update={"rule": next(r for r in contract.rules if r.id == identifier)})
    return tuple(found[rule.id] for rule in contract.rules)


def _typed(rule: Rule, types: dict[str, str], rows: int) -> RuleResult:
    """Whether a column holds its type: a matter of the files' schema, which needs no expectation on rows."""
    held = types.get(rule.columns[0], MISSING)
    wanted = rule.parameters["logical_type"]
    count = int(held not in ACCEPTED.get(wanted, [wanted]))
    told = "the column is missing" if held == MISSING else f"holds {held}"
    status = "pass" if within(rule.parameters["bound"], count, rows) else "fail"
    return RuleResult(rule=rule, status=status, rows=rows, count=count, observed=told)


class _NotJudgedError(Exception):
    """Why Spark does not judge a rule."""


def _session() -> SparkSession:
    """A session in UTC, of its own where one is there; else a local one on the loopback, without a UI."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    builder: Any = SparkSession.builder
    for name, value in {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "8",
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    session = there.newSession() if there else builder.master("local[*]").appName("trainworthy").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _as_pandas_reads(rows: DataFrame, written: dict[str, set[str]]) -> DataFrame:
    """NaN as null, and a column without a type as texts."""
    from pyspark.sql import functions as F  # noqa: N812, as everybody calls it

    def read(name: str, kind: str) -> Any:
        column = F.col(_quoted(name))
        if kind in ("float", "double"):
            return F.when(~F.isnan(column), column).alias(name)
        return F.lit(None).cast("string").alias(name) if written[name] == {"null"} else column

    return rows.select([read(name, kind) for name, kind in rows.dtypes])


def _quoted(name: str) -> str:
    """A column's name as Spark reads it: a dot would be a field."""
    return f"`{name.replace('`', '``')}`"


_TYPES = {"string": "string", "boolean": "boolean", "date": "date", "timestamp": "timestamp",
          "float": "number", "double": "number"}  # fmt: skip
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def _logical_types(rows: DataFrame, total: int, written: dict[str, set[str]]) -> dict[str, str]:
    """The logical type that pandas would see in each column."""
    from pyspark.sql import functions as F  # noqa: N812

    kinds = dict(rows.dtypes)
    asked = [F.count(_quoted(name)).alias(f"known_{place}") for place, name in enumerate(kinds)]
    for place, (name, kind) in enumerate(kinds.items()):
        if kind == "timestamp_ntz":
            whole = F.date_trunc("day", _quoted(name)) == F.col(_quoted(name))
            asked.append(F.min(whole.cast("int")).alias(f"days_{place}"))
    counted = rows.agg(*asked).first()
    assert counted is not None
    found: dict[str, str] = {}
    for place, (name, kind) in enumerate(kinds.items()):
        known = counted[f"known_{place}"]
        if written[name] == {"null"}:
            found[name] = "empty"
        elif kind in _INTEGERS:
            nullable = all(form[:3] in ("Int", "UIn") for form in written[name])
            found[name] = "integer" if known == total or nullable else "number"
        elif kind == "timestamp_ntz":
            found[name] = "timestamp" if counted[f"days_{place}"] == 0 else "date"
        elif kind in ("date", "boolean") and known == 0:
            # pandas holds these as objects unless its own type stands in the file, and no object has a type then.
            typed = written[name] <= {"boolean"} or (total == 0 and written[name] <= {"bool", "boolean"})
            found[name] = "boolean" if typed and kind == "boolean" else "empty"
        else:
            found[name] = _TYPES.get(kind, kind)
    return found


def _written_types(folder: Path) -> dict[str, set[str]]:
    """For each column the types that pandas left in the files: `null` for a column without a type, "" if none."""
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, set[str]] = {}
    for path in parquet_files(folder).values():
        schema = pq.read_schema(path)
        metadata = (schema.metadata or {}).get(b"pandas")
        listed = json.loads(metadata)["columns"] if metadata else []
        told = {column["field_name"]: str(column["numpy_type"]) for column in listed}
        for field in schema:
            form = "null" if pa.types.is_null(field.type) else told.get(field.name, "")
            found.setdefault(field.name, set()).add(form)
    return found


def _prepared(rule: Rule, rows: DataFrame, types: dict[str, str], prefix: str) -> tuple[Rule, list[Any]]:
    """The rule on columns of its own, and these columns. Raises _NotJudgedError."""
    from pyspark.sql import functions as F  # noqa: N812

    if rule.kind not in KINDS:
        raise _NotJudgedError(f"rules of kind {rule.kind} are not judged on Spark")
    absent = [name for name in rule.columns if name not in types]
    if absent:
        raise _NotJudgedError(f"the column {', '.join(absent)} is missing")
    names = tuple(f"{prefix}_{place}" for place in range(len(rule.columns)))
    values = [F.col(_quoted(name)) for name in rule.columns]
    parameters = dict(rule.parameters)
    if rule.kind == "pattern":
        if _FOREIGN_PATTERN.search(parameters["pattern"]):
            raise _NotJudgedError("Java reads this pattern otherwise than Python")
        parameters["pattern"] = f"(?U){parameters['pattern']}"
    elif rule.kind == "hour_in_zone":
        if dict(rows.dtypes)[rule.columns[0]] != "timestamp":
            raise _NotJudgedError(f"{rule.columns[0]} has no time zone, so its hour in {parameters['zone']} is unknown")
        values[0] = F.hour(F.from_utc_timestamp(values[0], parameters["zone"]))
    elif rule.kind == "range" and any(isinstance(value, str) for value in parameters.values()):
        values = [_microseconds(rule, dict(rows.dtypes)[rule.columns[0]], values[0])]
    elif rule.kind == "missing" and None in parameters["values"]:
        listed = [value for value in parameters["values"] if value is not None]
        values = [F.when(~values[0].isin(listed), values[0])] if listed else values
    columns = [value.alias(name) for value, name in zip(values, names, strict=True)]
    return rule.model_copy(update={"columns": names, "parameters": parameters}), columns


def _microseconds(rule: Rule, kind: str, value: Any) -> Any:
    """The instants as microseconds since 1970. Raises _NotJudgedError where limits and column don't fit together."""
    from pyspark.sql import functions as F  # noqa: N812

    (name,) = rule.columns
    if kind not in ("timestamp", "timestamp_ntz", "date"):
        raise _NotJudgedError(f"{name} holds {kind}, so it can't be compared with an instant")
    limits = [limit for limit in rule.parameters.values() if isinstance(limit, str)]
    if any((datetime.fromisoformat(limit).tzinfo is not None) != (kind == "timestamp") for limit in limits):
        raise _NotJudgedError(f"{name} and its limits must both have a time zone, or none: {', '.join(limits)}")
    return F.unix_micros(value.cast("timestamp")).cast("double")


def _answers(rows: DataFrame, prepared: dict[str, tuple[Rule, list[Any]]]) -> dict[str, Any]:
    """Great Expectations' answer to each rule; a rule that keeps the others from an answer is asked alone."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [column for _, own in prepared.values() for column in own]
    frame = rows.select(F.lit(1).alias("row"), *columns).persist()
    try:
        engine = _engine()
        rules = [rule for rule, _ in prepared.values()]
        answers = _validated(engine, frame, rules)
        for rule in rules:
            if _raised(answers.get(rule.id)) is not None:
                answers |= _validated(engine, frame, [rule])
    finally:
        frame.unpersist()
    return {rule.id: answers.get(rule.id) for rule in rules}


def _engine() -> Any:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_spark("contract", persist=False).add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all")


def _validated(engine: Any, frame: DataFrame, rules: Sequence[Rule]) -> dict[str, Any]:
    import great_expectations as gx

    batch = engine.get_batch({"dataframe": frame})
    suite = gx.ExpectationSuite(name="contract", expectations=[expectation(rule) for rule in rules])
    answer = batch.validate(suite, result_format="BASIC")
    return {result.expectation_config.meta["rule"]: result for result in answer.results}
