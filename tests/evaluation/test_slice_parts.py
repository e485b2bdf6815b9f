"""Which rows each declared slice has."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.slice_parts import columns_of_parts, slice_parts
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec

ROWS = pd.DataFrame(
    {
        "flight": np.arange(300),
        "small": (np.arange(300) % 200).astype("uint8"),
        "day": pd.date_range("2024-01-01", periods=300, freq="h", tz="UTC"),
        "date": [dt.date(2024, 1, 1 + number % 28) for number in range(300)],
        "origin": ["EWR", "JFK", None] * 100,
        "wind": np.where(np.arange(300) % 7 == 0, np.nan, np.arange(300) % 50),
    }
)
ANSWERS = pd.DataFrame({"slice:origin": ROWS["origin"], "slice:flight": ROWS["flight"] % 100})


def benchmark(*slices, **changed) -> BenchmarkSpec:
    plain = {
        "primary": {"metric": "log_loss", "margin": 0.01},
        "baselines": ["prior", "linear"],
        "latency_ms": 1,
        "size_mb": 1,
        "slice_rows": 50,
        "slices": slices,
    }
    return BenchmarkSpec.model_validate({**plain, **changed})


def parts(*slices, folder=Path(), key=("flight",), rows=ROWS):
    return slice_parts(benchmark(*slices), ANSWERS, rows, folder, key)


def test_a_condition_holds_for_the_rows_that_meet_it_and_for_none_with_a_missing_value():
    (part,) = parts({"where": 'origin == "EWR" and wind > 20', "name": "windy"})
    assert part.name == "windy"
    wanted = (ROWS["origin"] == "EWR") & (ROWS["wind"] > 20)
    assert (part.mask == wanted.to_numpy()).all()
    assert part.mask.sum() > 0


def test_a_column_that_decides_has_a_slice_a_value_and_one_for_the_small_ones_together():
    found = parts({"column": "origin", "at_most": 0.3}, {"column": "flight", "at_most": 0.3})
    names = [part.name for part in found]
    assert {"origin=EWR", "origin=JFK", "origin missing"} == set(names[:3])
    # Numbers of more than ten values are cut at their quartiles, and each has 75 rows.
    assert len(names) == 7
    assert np.sum([part.mask for part in found[:3]], axis=0).tolist() == [1] * 300
    few = slice_parts(benchmark({"column": "origin", "at_most": 1}, slice_rows=101), ANSWERS, ROWS, Path(), ())
    assert [(part.name, int(part.mask.sum())) for part in few] == [("origin: small values", 300)]


def test_a_column_that_decides_nothing_has_no_part():
    assert parts("origin") == ()
    assert columns_of_parts(benchmark("origin"), ("flight",)) == ()


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        (("flight",), ["flight", "3", "5", "5", "999"]),
        (("day",), ["day", "2024-01-01 03:00:00+00:00", "2024-01-01T05:00:00Z", "2030-01-01T00:00:00Z"]),
        (("date", "flight"), ["note,date,flight", "a,2024-01-04,3", "b,2024-01-06,5", "c,2024-01-06,4"]),
    ],
)
def test_a_file_holds_for_the_rows_whose_key_it_names(tmp_path, key, lines):
    (tmp_path / "slices").mkdir()
    (tmp_path / "slices" / "some.csv").write_text("\n".join(lines) + "\n")
    declared = {"rows": "slices/some.csv", "name": "some"}
    assert columns_of_parts(benchmark(declared), key) == key
    (part,) = parts(declared, folder=tmp_path, key=key)
    assert np.flatnonzero(part.mask).tolist() == [3, 5]
    assert part.unmatched == 1


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        (None, ("flight",), "cannot be read"),
        ("", ("flight",), "cannot be read"),
        ("fligt\n3\n", ("flight",), "lacks the primary key's flight"),
        ("flight\nthree\n", ("flight",), "line 2 of a slice's file has no value that flight"),
        ("day\nyesterday\n", ("day",), "line 2 of a slice's file has no value that day"),
        ("flight\n3\n", (), "needs a primary key"),
        # A number that the column's type would change names another row.
        ("flight\n3\n3.5\n", ("flight",), "line 3 of a slice's file"),
        ("flight\n3\n99999999999999999999999\n", ("flight",), "line 3 of a slice's file"),
        ("small\n300\n", ("small",), "line 2 of a slice's file"),
    ],
)
def test_a_file_that_names_no_rows_says_what_is_wrong(tmp_path, text, key, told):
    if text is not None:
        (tmp_path / "slices").mkdir()
        (tmp_path / "slices" / "some.csv").write_text(text)
    with pytest.raises(EvaluationError, match=told):
        parts({"rows": "slices/some.csv"}, folder=tmp_path, key=key)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"column": "a", "where": "a > 1"},
        {"where": "a > 1", "at_most": 1, "at_least": 0},
        {"where": "a > 1", "metric": "auc"},
        {"where": "a > 1", "on_underpowered": "warn"},
        {"where": "a > 1", "champion_margin": 0},
        {"rows": "../slices/some.csv"},
        {"rows": "slices/../some.csv"},
        {"rows": "some.csv"},
        {"rows": "/slices/some.csv"},
        5,
    ],
)
def test_a_slice_that_says_too_little_or_too_much_is_refused(wrong):
    with pytest.raises(ValueError, match="validation error"):
        benchmark(wrong)


def test_two_slices_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two slices are called x"):
        benchmark({"where": "a > 1", "name": "x"}, {"where": "a < 1", "name": "x"})


def test_a_value_and_a_condition_of_one_name_are_refused():
    same = {"where": "wind > 5", "name": "origin=EWR", "at_most": 1}
    with pytest.raises(EvaluationError, match="two slices of the benchmark have one name"):
        parts({"column": "origin", "at_most": 1}, same, folder=Path())


def test_a_column_alone_is_written_as_its_name():
    spec = benchmark("origin", {"where": "wind > 1", "at_most": 0.5})
    assert spec.model_dump(mode="json")["slices"] == ["origin", {"where": "wind > 1", "at_most": 0.5}]
    assert BenchmarkSpec.model_validate(spec.model_dump()) == spec


def test_a_single_small_value_has_its_own_name():
    rare = ANSWERS.copy()
    rare["slice:origin"] = np.where(np.arange(len(rare)) < 30, "LGA", "EWR")
    found = slice_parts(benchmark({"column": "origin", "at_most": 0.3}), rare, ROWS, Path(), ())
    assert [(part.name, int(part.mask.sum())) for part in found] == [("origin=EWR", 270), ("origin=LGA", 30)]
    rare["slice:origin"] = np.where(np.arange(len(rare)) < 3, "LGA", "EWR")
    found = slice_parts(benchmark({"column": "origin", "at_most": 0.3}), rare, ROWS, Path(), ())
    assert found[1].name == "origin: small values"
