"""When the benchmark of a split by time moves on: with each version, with whole periods, or never."""

import pandas as pd
import pytest
from split_specs import CONTRACT, rows, spec

from trainworthy.lifecycle.data.split import split_rows, splits_check
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.protocol.checks import CheckResult

ROWS = rows(180)
PINNED = {"window": "20d", "roll": "pinned", "start": "2024-04-01"}
EVERY = {"window": "20d", "roll": {"every": "30d", "from": "2024-03-01"}}


def until(day: str, benchmark: dict, **changes) -> tuple[dict, CheckResult]:
    """The splits of a version whose newest rows are of that day, and their check."""
    declared = spec("time", benchmark=benchmark, **changes)
    splits = split_rows(ROWS[ROWS["day"] <= day], declared, CONTRACT)
    return splits, splits_check(splits, declared, CONTRACT.label, CONTRACT.primary_key)


def days(splits: dict, name: str = "benchmark") -> tuple[str, str]:
    return f"{splits[name]['day'].min():%m-%d}", f"{splits[name]['day'].max():%m-%d}"


@pytest.mark.parametrize("hours", [{}, {"embargo": "24h"}])
def test_pinned_benchmark_stays_as_rows_are_added_and_later_ones_belong_to_no_split(hours):
    first, check = until("2024-04-21", PINNED, **hours)
    later, later_check = until("2024-06-20", PINNED, **hours)
    assert check.status == later_check.status == "pass"
    assert days(first) == days(later) == ("04-01", "04-20")
    for name, part in later.items():
        assert part.index.equals(first[name].index)


def test_pinned_benchmark_that_has_not_wholly_arrived_is_refused():
    with pytest.raises(DatasetError, match="the pinned benchmark has not wholly arrived") as caught:
        until("2024-04-19", PINNED)
    assert "1 whole days of 20d from 2024-04-01" in str(caught.value)
    assert until("2024-04-20", PINNED)[1].status == "pass"


@pytest.mark.parametrize(
    ("newest", "window"),
    [
        ("2024-03-30", ("03-11", "03-30")),
        ("2024-04-28", ("03-11", "03-30")),
        ("2024-04-29", ("04-10", "04-29")),
        ("2024-06-20", ("05-10", "05-29")),
    ],
)
def test_benchmark_rolls_when_a_whole_further_period_has_arrived(newest, window):
    splits, check = until(newest, EVERY)
    assert check.status == "pass", check.evidence
    assert days(splits) == window


def test_first_period_that_has_not_wholly_arrived_is_refused():
    with pytest.raises(DatasetError, match="no period of the benchmark has wholly arrived"):
        until("2024-03-29", EVERY)


@pytest.mark.parametrize("name", ["training", "validation", "calibration"])
@pytest.mark.parametrize("day", ["2024-04-05", "2024-05-01"])
def test_rows_that_reach_into_or_past_the_frozen_window_are_found(name, day):
    splits, _ = until("2024-06-20", PINNED)
    splits[name] = pd.concat([splits[name], ROWS[ROWS["day"] == day].assign(row_id=-ROWS["row_id"]).head(1)])
    check = splits_check(splits, spec("time", benchmark=PINNED), CONTRACT.label, CONTRACT.primary_key)
    assert check.stops
    assert f"{name} ends -" in check.evidence


@pytest.mark.parametrize(
    ("benchmark", "told"),
    [(PINNED, "outside 20d from 2024-04-01, where it is pinned"), (EVERY, "not the end of a period of 30d")],
)
def test_benchmark_that_lies_elsewhere_than_declared_is_found(benchmark, told):
    splits, _ = until("2024-06-11", {"window": "20d", "roll": "each_version"})
    check = splits_check(splits, spec("time", benchmark=benchmark), CONTRACT.label, CONTRACT.primary_key)
    assert check.stops
    assert told in check.evidence
