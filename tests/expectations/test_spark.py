"""Great Expectations on Spark gives every rule the status, count, words and failing rows of the other engines."""

import importlib.util
import os
import shutil
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from test_engines_agree import cases, contract, said, written

from trainworthy.expectations import validate as great_expectations
from trainworthy.lifecycle.contract import polars_engine
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule
from trainworthy.lifecycle.errors import SettingsError

FLIGHTS = Path(__file__).parents[2] / "use_cases" / "flight_delays"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def spark():
    """One local session for all tests; skipped without pyspark or Java, but not in CI."""
    lacking = [] if importlib.util.find_spec("pyspark") else ["pyspark"]
    lacking += [] if shutil.which("java") or os.environ.get("JAVA_HOME") else ["Java"]
    if lacking and os.environ.get("CI"):
        pytest.fail(f"{lacking} is missing; CI must install it")
    if lacking:
        pytest.skip(f"{lacking} is not installed")
    from trainworthy.expectations.spark import spark_session

    with spark_session() as session:
        yield session


def on_spark(folder, wanted):
    from trainworthy.expectations.spark import validate_files

    return validate_files(folder, wanted)


def assert_equal(folder, wanted, reference=great_expectations):
    """Spark's results, held equal to the reference's."""
    found = on_spark(folder, wanted)
    for ours, theirs in zip(found, reference.validate_files(folder, wanted), strict=True):
        assert said(ours) == said(theirs), (ours.rule, ours.error, theirs.error)
        assert (ours.error is None) == (theirs.error is None)
    return {result.rule.id: result for result in found}


# A try takes some seconds.
@settings(
    max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
@given(cases())
def test_spark_any_table_and_rules_agrees_rule_by_rule(case):
    table, cut, wanted = case
    with tempfile.TemporaryDirectory() as name:
        written(table, cut, Path(name))
        assert_equal(Path(name), wanted)


def every_kind():
    """A rule of each kind, or more, on the table below."""
    known = [[1, 2**53], [2, None], [3, 7]]
    return [
        make_rule("rows", "row_count", (), bound=NO_ROW),
        *(make_rule(f"{name}.type", "type", (name,), bound=NO_ROW, logical_type=kind) for name, kind in TYPES.items()),
        *(make_rule(f"{name}.nulls", "nulls", (name,), bound=NO_ROW) for name in TYPES),
        *(make_rule(f"{name}.unique", "unique", (name,), bound=NO_ROW) for name in TYPES if name != "raw"),
        make_rule("key", "unique", ("id", "big"), bound=NO_ROW),
        make_rule("id.missing", "missing", ("id",), bound=NO_ROW, values=[None, 3, True, "3"]),
        make_rule("share.range", "range", ("share",), bound=NO_ROW, minimum=0, exclusive_maximum=1),
        make_rule("narrow.range", "range", ("narrow",), bound=NO_ROW, maximum=0.1),
        make_rule("big.range", "range", ("big",), bound=NO_ROW, maximum=2**53),
        make_rule("wide.range", "range", ("wide",), bound=NO_ROW, maximum=2**63),
        make_rule("at.range", "range", ("at",), bound=NO_ROW, exclusive_minimum="2013-03-10T01:59:00-05:00"),
        make_rule("exact.range", "range", ("exact",), bound=NO_ROW, maximum="2013-01-01T00:00:00+00:00"),
        make_rule("day.range", "range", ("day",), bound=NO_ROW, minimum="1500-01-01"),
        make_rule("name.length", "length", ("name",), bound=NO_ROW, minimum=1, maximum=2),
        make_rule("name.pattern", "pattern", ("name",), bound=NO_ROW, pattern=r"(?P<sign>\d|a)\Z"),
        make_rule("name.allowed", "allowed", ("name",), bound=NO_ROW, values=["a", "A", "٣"]),
        make_rule("share<narrow", "less_or_equal", ("share", "narrow"), bound=NO_ROW),
        make_rule("at<exact", "less_or_equal", ("at", "exact"), bound=NO_ROW),
        make_rule("id=big", "equal", ("id", "big"), bound=NO_ROW),
        make_rule("hour", "hour_in_zone", ("at", "hour"), bound=NO_ROW, zone="America/New_York"),
        make_rule("together", "null_together", ("id", "share", "raw"), bound=NO_ROW),
        make_rule("known", "references", ("id", "big"), bound=NO_ROW, keys=known),
        make_rule("shape", "distribution", ("share",), bound=NO_ROW, edges=[0, 0.5, 1], counts=[1, 1, 1, 1, 1]),
        make_rule("unseen", "distribution", ("name",), bound=NO_ROW, values=["a", "b"], counts=[3, 3, 0, 1]),
    ]


TYPES = {"id": "integer", "big": "integer", "wide": "integer", "share": "number", "narrow": "number", "name": "string",
         "flag": "boolean", "day": "date", "at": "timestamp", "exact": "timestamp", "hour": "integer",
         "raw": "string"}  # fmt: skip


def rows():
    """Integers with nulls, NaN and infinities, skipped and repeated hours, twins with nulls, ancient days."""
    at = [datetime(2013, 3, 10, 6, 59, tzinfo=UTC) + timedelta(minutes=minute) for minute in (0, 1, 2, 60)]
    nanoseconds = 1_356_998_400 * 10**9
    return pa.table(
        {
            "id": pa.array([1, 2, 2, None, None, 3], pa.int16()),
            "big": pa.array([2**53, 2**53 + 1, 2**53 + 1, None, None, 7], pa.int64()),
            "wide": pa.array([0, 2**63, 2**63 + 1, 2**64 - 1, None, 2**64 - 1], pa.uint64()),
            "share": [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, None],
            "narrow": pa.array([0.1, 0.2, None, float("nan"), 0.0, -0.0], pa.float32()),
            "name": pa.array(["a", "A", "a\n", "٣", "e\u0301😀", None]).dictionary_encode(),
            "flag": [True, False, None, None, True, True],
            "day": [date(1500, 1, 1), date(1499, 12, 31), None, date(2013, 1, 1), date(2013, 1, 1), date(1970, 1, 1)],
            "at": pa.array([*at, None, datetime(2013, 11, 3, 6, 30, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "exact": pa.array(
                [nanoseconds, nanoseconds + 1, None, nanoseconds, -1, 0], pa.timestamp("ns", "America/New_York")
            ),
            "hour": [1, 3, 2, 3, 4, 1],
            "raw": pa.array([b"x", None, b"y", None, b"z", None], pa.binary()),
        }
    )


CHANGES = {
    "odd values": lambda table: table,
    "empty": lambda table: table.slice(0, 0),
    "missing columns": lambda table: table.drop_columns(["share", "name", "at"]),
    "nulls alone": lambda table: pa.table({name: pa.nulls(len(table)) for name in table.column_names}),
    "names that Spark parses": lambda table: table.append_column("A.b`c d", table["id"]).append_column(
        "NAME", table["id"]
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_spark_rule_of_every_kind_agrees(tmp_path, change):
    wanted = every_kind()
    if change == "names that Spark parses":
        wanted += [make_rule(f"{name}.nulls_too", "nulls", (name,), bound=NO_ROW) for name in ("A.b`c d", "NAME")]
    written(CHANGES[change](rows()), 2, tmp_path)
    found = assert_equal(tmp_path, contract(tuple(wanted), ("id",)))
    assert {result.rule.kind for result in found.values()} == {rule.kind for rule in every_kind()}
    if change == "odd values":
        assert [result.rule.id for result in found.values() if result.status == "error"] == []
        assert (found["unseen"].count, found["name.pattern"].count, found["known"].count) == (4, 3, 2)


def test_spark_files_of_different_types_agree(tmp_path):
    whole = rows().select(["id", "exact", "name"])
    coarse = [pa.array([4, None], pa.int64()), pa.array([0, 1], pa.timestamp("ms", "UTC")), pa.array(["a", "b"])]
    pq.write_table(whole, tmp_path / "part-1.parquet")
    pq.write_table(pa.table(coarse, names=whole.column_names), tmp_path / "part-2.parquet")
    kept = [rule for rule in every_kind() if set(rule.columns) <= set(whole.column_names)]
    assert_equal(tmp_path, contract(tuple(kept), ("id",)))


def test_spark_instants_of_another_form_than_written_are_an_error_and_no_pass(tmp_path):
    """The old INT96 has no time zone for Arrow, and one for Spark."""
    table = pa.table({"at": pa.array([datetime(2013, 1, 1)], pa.timestamp("ns")), "low": [1]})
    pq.write_table(table, tmp_path / "part.parquet", use_deprecated_int96_timestamps=True)
    limit = {"minimum": "2012-01-01"}
    rules = (
        make_rule("at.range", "range", ("at",), bound=NO_ROW, **limit),
        make_rule("low.nulls", "nulls", ("low",), bound=NO_ROW),
    )
    found = on_spark(tmp_path, contract(rules, ("low",)))
    assert [result.status for result in found] == ["error", "pass"]
    assert "Spark reads timestamp as timestamp" in str(found[0].error)


def test_spark_rule_that_stops_the_pass_is_an_error_and_stops_no_other(tmp_path):
    written(rows(), None, tmp_path)
    # Python knows this zone; Java does not.
    zone = make_rule("hour", "hour_in_zone", ("at", "hour"), bound=NO_ROW, zone="localtime")
    others = [rule for rule in every_kind() if rule.id in ("id.nulls", "key", "known")]
    found = on_spark(tmp_path, contract((*others, zone), ("id",)))
    assert [result.status for result in found] == ["fail", "fail", "fail", "error"]


def test_spark_without_java_says_what_to_install(tmp_path, spark, monkeypatch):
    from pyspark.sql import SparkSession

    written(rows(), None, tmp_path)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SettingsError, match=r"(?s)Java.*engine: auto"):
        on_spark(tmp_path, contract(tuple(every_kind()), ("id",)))


def test_spark_january_of_the_flights_agrees_on_every_rule(tmp_path):
    from use_cases.flight_delays import dataset

    dataset.build(tmp_path / "january", 1, "0.0.3")
    found = assert_equal(tmp_path / "january", load_contract(FLIGHTS / "contract.yaml"), polars_engine)
    assert {result.status for result in found.values()} == {"pass"}
    assert len(found) > 200
