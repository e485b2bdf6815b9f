"""Great Expectations on Spark gives the verdicts that it gives on pandas, rule by rule."""

import importlib.util
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from test_validate_frame import contract, rows, table  # noqa: F401, a fixture

from expectations.validate import validate_frame
from lifecycle.contract.rule import make_rule
from lifecycle.data.files import read_columns

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def spark():
    """Skipped without pyspark or Java, but not in CI."""
    lacking = [name for name in ("pyspark",) if importlib.util.find_spec(name) is None]
    lacking += [] if shutil.which("java") or os.environ.get("JAVA_HOME") else ["Java"]
    if lacking and os.environ.get("CI"):
        pytest.fail(f"{lacking} is missing; CI must install it")
    if lacking:
        pytest.skip(f"{lacking} is not installed")
    yield
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def bad(frame):
    """Each column with a fault of its own."""
    frame = frame.copy()
    place = frame.index
    frame.loc[place[7], "at"] = pd.Timestamp("2014-01-01T05:00Z")
    frame.loc[place[8], "at"] = pd.NaT
    frame.loc[place[7], "date"] = pd.Timestamp("2012-12-31")
    frame.loc[place[7], "hour"] = 24
    frame.loc[place[9], "low"] = -np.inf
    frame.loc[place[10], "low"] = np.nan
    frame.loc[place[11], "high"] = 3.0
    frame.loc[place[12], "copy"] = 99.0
    frame.loc[place[13], "origin"] = "EWX"
    frame.loc[place[14], "tail"] = "N8"
    frame.loc[place[15], "tail"] = "X123456"
    frame.loc[place[16], "tail"] = None
    frame.loc[place[17], "tail"] = "n/a"
    frame.loc[place[18], "model"] = "?"
    frame.loc[place[19], "flight"] = 8
    frame.loc[place[20], "secret"] = "z"
    return frame


CHANGES = {
    "healthy": lambda frame: frame,
    "bad": bad,
    "empty": lambda frame: frame.head(0),
    "null": lambda frame: frame.assign(low=np.nan, high=np.nan, origin=None, tail=None),
    "missing": lambda frame: frame.drop(columns=["low", "tail"]),
    "other types": lambda frame: frame.assign(hour=frame["hour"].astype("float64"), low=range(len(frame)), flag="yes"),
    "without a zone": lambda frame: frame.assign(at=frame["at"].dt.tz_localize(None)),
    "integers with nulls": lambda frame: frame.assign(
        hour=frame["hour"].astype("Int64").where(frame["hour"] > 3),
        flag=frame["flag"].astype("boolean").mask(frame["hour"] > 3),
    ),
    "moments as days": lambda frame: frame.assign(date=frame["date"] + pd.Timedelta(hours=1)),
    "twice": lambda frame: pd.concat([frame, frame]),
    "odd texts": lambda frame: frame.assign(tail=[f"N٣{place}" for place in range(len(frame))], model="é😀"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_validate_files_agrees_with_validate_frame(rows, tmp_path, change):  # noqa: F811
    from expectations.spark import validate_files

    frame = CHANGES[change](rows)
    for place, part in enumerate(np.array_split(np.arange(len(frame)), 2)):
        frame.iloc[part].to_parquet(tmp_path / f"part{place}.parquet", index=False)
    wanted = contract()
    # By status and count, not by words.
    compared = {
        result.rule.id: (result.status, result.count) for result in validate_frame(read_columns(tmp_path), wanted)
    }
    found = {result.rule.id: (result.status, result.count) for result in validate_files(tmp_path, wanted)}
    assert found == compared
    assert list(found) == [rule.id for rule in wanted.rules]


def test_validate_files_rule_that_spark_does_not_judge_is_an_error(rows, tmp_path):  # noqa: F811
    from expectations.spark import validate_files

    rows.to_parquet(tmp_path / "part.parquet", index=False)
    bound = {"operator": "mustBe", "value": 0, "unit": "rows"}
    extra = (
        make_rule("apart", "null_together", ("low", "high"), bound=bound),
        make_rule("java", "pattern", ("tail",), pattern=r"(?P<sign>N)[0-9]+\Z", bound=bound),
    )
    wanted = contract()
    results = validate_files(tmp_path, wanted.model_copy(update={"rules": (*wanted.rules[:3], *extra)}))
    assert [result.status for result in results[3:]] == ["error", "error"]
    assert [result.status for result in results[:3]] == ["pass"] * 3
    assert "not judged on Spark" in str(results[3].error)
