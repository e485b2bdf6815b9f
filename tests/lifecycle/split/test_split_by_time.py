import itertools

import numpy as np
import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.days import day_of
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import SPLITS, split_by_time, splits_check
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec.split import TimeSplit


def spec(**values) -> TimeSplit:
    found = toy_jobs.spec_with(split=values).split
    assert isinstance(found, TimeSplit)
    return found


SPEC = spec()
POSITIVE = Label(name="positive", version=1, column="positive")


def rows(days: int = 60, per_day: int = 10, seed: int = 0) -> pd.DataFrame:
    """`per_day` rows a day at random times of it, in random order."""
    generator = np.random.default_rng(seed)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.repeat(np.arange(days), per_day), unit="D")
    seconds = pd.to_timedelta(generator.integers(0, 86_400, len(day)), unit="s")
    positive = generator.integers(0, 2, len(day)).astype("int8")
    frame = pd.DataFrame({"when": day + seconds, "day": day, "positive": positive})
    return frame.sample(frac=1.0, random_state=seed)


def healthy() -> dict[str, pd.DataFrame]:
    return split_by_time(rows(), SPEC)


def test_splits_follow_each_other_in_time_the_embargo_apart():
    splits = split_by_time(rows(), spec(embargo="3d"))
    assert tuple(splits) == SPLITS
    spans = [day_of(splits[name], "day") for name in SPLITS]
    for before, after in itertools.pairwise(spans):
        assert after.min() - before.max() - 1 == 3
    assert [span.max() - span.min() + 1 for span in spans[1:]] == [14, 10, 20]
    assert splits["benchmark"]["day"].max() == rows()["day"].max()


def test_split_cuts_no_day_in_two_when_the_column_holds_times():
    splits = split_by_time(rows(), spec(column="when"))
    days = [set(splits[name]["day"]) for name in SPLITS]
    for number, own in enumerate(days):
        assert all(not own & other for other in days[number + 1 :])
    assert all((splits[name].groupby("day").size() == 10).all() for name in SPLITS)


def test_split_takes_days_in_the_columns_own_time_zone():
    frame = rows()
    local = frame.assign(when=frame["when"].dt.tz_localize("America/New_York", nonexistent="shift_forward"))
    for name, part in split_by_time(local, spec(column="when")).items():
        assert set(part["day"]) == set(split_by_time(frame, SPEC)[name]["day"])


def test_split_column_of_parquet_dates_is_cut_like_timestamps(tmp_path):
    frame = rows()
    frame.assign(day=frame["day"].dt.date).to_parquet(tmp_path / "rows.parquet")
    dates = pd.read_parquet(tmp_path / "rows.parquet")
    assert dates["day"].dtype == object
    for name, part in split_by_time(dates, SPEC).items():
        assert part.index.equals(split_by_time(frame, SPEC)[name].index)
        assert part["day"].dtype == object
    assert splits_check(split_by_time(dates, SPEC), SPEC, POSITIVE).status == "pass"


def test_rows_of_too_few_days_are_refused():
    assert len(split_by_time(rows(days=48), SPEC)["training"]) == 10
    with pytest.raises(DatasetError, match="too few days") as caught:
        split_by_time(rows(days=47), SPEC)
    assert "47 days" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(day=frame["day"].where(frame.index != 3)), "has nulls"),
        (lambda frame: frame.head(0), "is empty"),
        (lambda frame: frame.assign(day=frame["day"].astype(str)), "not a date or timestamp"),
        (lambda frame: frame.assign(day=frame["day"].dt.date.where(frame.index != 3)), "has nulls"),
        (lambda frame: frame.assign(day=None), "not a date or timestamp"),
        (lambda frame: frame.assign(day=frame["day"].dt.date.where(frame.index != 3, 7)), "not a date or timestamp"),
        (lambda frame: frame.assign(day=7), "not a date or timestamp"),
    ],
)
def test_split_column_without_dates_is_refused(change, message):
    with pytest.raises(DatasetError, match=message):
        split_by_time(change(rows()), SPEC)


def test_splits_check_passes_on_healthy_splits():
    check = splits_check(healthy(), SPEC, POSITIVE)
    assert check.status == "pass"
    assert all(name in check.evidence for name in SPLITS)


@pytest.mark.parametrize("name", SPLITS)
def test_splits_check_finds_an_empty_split_and_one_of_one_class(name):
    splits = healthy()
    for change, told in (
        (lambda part: part.head(0), f"{name} has no rows"),
        (lambda part: part.assign(positive=1), f"{name} has one class only"),
    ):
        check = splits_check({**splits, name: change(splits[name])}, SPEC, POSITIVE)
        assert check.stops
        assert told in check.evidence


def test_splits_check_tells_every_empty_split():
    check = splits_check({name: part.head(0) for name, part in healthy().items()}, SPEC, POSITIVE)
    assert all(f"{name} has no rows" in check.evidence for name in SPLITS)


@pytest.mark.parametrize(("before", "after"), [("training", "validation"), ("calibration", "benchmark")])
def test_splits_check_finds_overlapping_rows(before, after):
    splits = healthy()
    splits[before] = pd.concat([splits[before], splits[after].head(1)])
    check = splits_check(splits, SPEC, POSITIVE)
    assert check.stops
    assert f"{before} ends -" in check.evidence


def test_splits_check_finds_a_gap_that_is_shorter_than_the_embargo():
    check = splits_check(healthy(), spec(embargo="2d"), POSITIVE)
    assert check.stops
    assert "training ends 1 whole days before validation; the embargo is 2d" in check.evidence


def test_splits_check_finds_a_window_of_too_few_groups():
    check = splits_check(split_by_time(rows(), spec(validation="7d")), spec(validation="7d"), POSITIVE)
    assert check.stops
    assert "validation has 7 groups of day" in check.evidence


def test_label_is_the_column_above_its_threshold_and_rows_without_it_are_left_out():
    frame = pd.DataFrame({"score": [1.0, 0.0, -1.0, np.nan, 15.0]})
    labelled = with_label(frame, Label(name="late", version=1, column="score", greater_than=0))
    assert labelled["late"].tolist() == [1, 0, 0, 1]
    assert labelled["late"].dtype == "int8"
    assert "late" not in frame


def test_label_without_threshold_is_the_columns_own_value():
    label = Label(name="late", version=1, column="score")
    assert with_label(pd.DataFrame({"score": [1.0, 0.0, None]}), label)["late"].tolist() == [1, 0]
    assert with_label(pd.DataFrame({"score": [True, False]}), label)["late"].tolist() == [1, 0]
    with pytest.raises(DatasetError, match="other values than 0 and 1"):
        with_label(pd.DataFrame({"score": [0.0, 2.0]}), label)
