"""What use_case.yaml may say of a candidate beside its champion, and that a limit which was moved is told."""

import pandas as pd
import pytest
import toy_jobs
from pydantic import ValidationError

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.evaluation.suite import changed_limits, suite_of
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec


def benchmark(**limits: object) -> BenchmarkSpec:
    return toy_jobs.spec_with(benchmark={"at_most_champion": limits} if limits else {}).benchmark


def suite(declared: BenchmarkSpec):
    return suite_of("toy", declared, rows="r", label="l", code="c", files={})


def test_limits_beside_the_champion_are_by_quantity_and_none_is_set_by_itself():
    assert benchmark().ratio_limits == {}
    assert benchmark(latency=1.2, size=2).ratio_limits == {"latency": 1.2, "size": 2.0}


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"latency": 0}, "greater than 0"),
        ({"latency": -1.2}, "greater than 0"),
        ({"memory": float("inf")}, "finite number"),
        ({"memory": "1.2 x"}, "valid number"),
        ({"memory_mb": 1.2}, "Extra inputs are not permitted"),
        ({"latency": None}, "it limits nothing: give one of latency, batch_latency, cold_load, memory, size"),
    ],
)
def test_limits_beside_the_champion_that_say_nothing_are_refused(limits, problem):
    with pytest.raises(ValidationError, match=problem):
        benchmark(**limits)


def test_limit_beside_the_champion_is_the_suites_and_told_where_it_was_moved():
    none, some, more = (suite(benchmark(**limits)) for limits in ({}, {"latency": 1.2}, {"latency": 1.5, "size": 2}))
    assert len({one.sha256 for one in (none, some, more)}) == 3
    assert list(changed_limits(none, some)) == [("at_most_champion", None, {"latency": 1.2})]
    assert list(changed_limits(some, more)) == [
        ("at_most_champion.latency", 1.2, 1.5), ("at_most_champion.size", None, 2.0),
    ]  # fmt: skip
    # A suite from before there were such limits declared none.
    before = none.model_copy(update={"declared": {k: v for k, v in none.declared.items() if k != "at_most_champion"}})
    assert list(changed_limits(before, none)) == []


def test_first_rows_are_those_of_the_whole_file_with_its_types(splits):
    path = str(splits / "benchmark.parquet")
    whole = read_rows(path, toy_jobs.ROWS)
    pd.testing.assert_frame_equal(read_rows(path, toy_jobs.ROWS, limit=7), whole.head(7))
    pd.testing.assert_frame_equal(read_rows(path, toy_jobs.ROWS, limit=10**6), whole)
