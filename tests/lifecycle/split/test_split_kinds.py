"""What each kind of split promises, on the rows that come out."""

import itertools

import numpy as np
import pandas as pd
import pytest
from split_specs import CONTRACT, KINDS, LABEL, SHARES, rows, spec

from trainworthy.lifecycle.data.split import SPLITS, split_columns, split_rows, splits_check
from trainworthy.lifecycle.errors import DatasetError

ROWS = rows()


def split(by: str, frame: pd.DataFrame = ROWS, **changes) -> dict[str, pd.DataFrame]:
    return split_rows(frame, spec(by, **changes), CONTRACT)


@pytest.mark.parametrize("by", KINDS)
def test_kind_gives_four_sound_splits_of_the_columns_that_it_names(by):
    columns = list(dict.fromkeys([*split_columns(spec(by), CONTRACT), *CONTRACT.primary_key, LABEL]))
    splits = split(by, ROWS[columns])
    assert tuple(splits) == SPLITS
    check = splits_check(splits, spec(by), CONTRACT.label, CONTRACT.primary_key, len(ROWS))
    assert check.status == "pass", check.evidence
    left_out = len(ROWS) - sum(map(len, splits.values()))
    assert f"{left_out} of {len(ROWS)} labelled rows" in check.evidence
    assert bool(left_out) == by.startswith("time")
    assert [detail["rows"] for detail in check.details] == [len(splits[name]) for name in SPLITS]


@pytest.mark.parametrize("by", KINDS)
def test_kind_asks_for_no_order_of_rows(by):
    shuffled = split(by, ROWS.sample(frac=1.0, random_state=3))
    for name, part in split(by).items():
        assert set(shuffled[name]["row_id"]) == set(part["row_id"])


@pytest.mark.parametrize("by", ["group", "hash"])
def test_rows_and_groups_stay_in_their_split_as_others_are_added(by):
    before, after = split(by, ROWS[ROWS["day"] < "2024-03-01"]), split(by)
    for name, part in before.items():
        assert set(part["row_id"]) <= set(after[name]["row_id"])


@pytest.mark.parametrize("by", ["group", "hash", "stratified"])
def test_another_salt_gives_another_assignment(by):
    assert set(split(by)["benchmark"]["row_id"]) != set(split(by, salt="v2")["benchmark"]["row_id"])


@pytest.mark.parametrize("by", ["group", "time_and_group"])
def test_group_lies_in_one_split(by):
    groups = {name: set(part["customer"]) for name, part in split(by).items()}
    assert sum(len(own) for own in groups.values()) == len(set.union(*groups.values()))


def test_shares_of_groups_are_about_the_declared_ones():
    groups = {name: part["customer"].nunique() for name, part in split("group").items()}
    total = ROWS["customer"].nunique()
    for name, share in SHARES.items():
        assert groups[name] / total == pytest.approx(share, abs=0.03)


def test_hash_of_named_columns_keeps_rows_that_share_them_together():
    splits = split("hash", columns=["day", "shop"])
    pairs = [set(zip(part["day"], part["shop"], strict=True)) for part in splits.values()]
    assert sum(map(len, pairs)) == len(set.union(*pairs)) == 360


def test_stratified_shares_are_exact_but_for_a_row_in_each_stratum():
    for name, part in split("stratified").items():
        share = spec("stratified").shares.of(name)
        sizes = ROWS.groupby([LABEL, "shop"]).size()
        assert (part.groupby([LABEL, "shop"]).size() - share * sizes).abs().max() <= 1


def test_stratified_takes_a_missing_value_as_a_stratum():
    splits = split("stratified", ROWS.assign(shop=ROWS["shop"].where(ROWS["shop"] != "west")))
    assert sum(map(len, splits.values())) == len(ROWS)
    assert splits["benchmark"]["shop"].isna().mean() == pytest.approx(ROWS["shop"].eq("west").mean(), abs=0.01)


def test_time_and_group_keeps_later_rows_of_new_groups_only_and_all_of_training():
    splits, in_time = split("time_and_group"), split("time")
    assert splits["training"].index.equals(in_time["training"].index)
    for name in ("validation", "calibration", "benchmark"):
        first = ROWS.groupby("customer")["when"].min()
        window = in_time[name]
        new = window["customer"].map(first) >= window["day"].min().tz_localize("UTC")
        assert splits[name].index.equals(window.index[new])


def test_champion_of_an_older_version_knows_no_group_of_the_benchmark():
    older = split("time_and_group", ROWS[ROWS["day"] < "2024-04-01"])
    seen = set().union(*(older[name]["customer"] for name in ("training", "validation", "calibration")))
    assert not seen & set(split("time_and_group")["benchmark"]["customer"])


def test_time_and_group_of_groups_that_recur_is_refused():
    stores = ROWS.assign(customer=ROWS["row_id"] % 300)
    with pytest.raises(DatasetError, match=r"nearly all groups of customer recur: 100\.0 %"):
        split("time_and_group", stores)


@pytest.mark.parametrize("by", ["group", "time_and_group"])
def test_group_without_a_value_is_refused(by):
    with pytest.raises(DatasetError, match="customer decides the split and has nulls"):
        split(by, ROWS.assign(customer=ROWS["customer"].where(ROWS["row_id"] != 7)))


HOURLY = pd.DataFrame(
    {
        "row_id": np.arange(1000),
        # Two rows a time, so that each cut could tear a tie.
        "when": np.repeat(pd.date_range("2024-03-01", periods=500, freq="h", tz="America/New_York"), 2),
        LABEL: np.arange(1000) % 2,
    }
).assign(day=lambda frame: frame["when"])
HOURS = {"embargo": "36h", "validation": "60h", "calibration": "40h", "benchmark": {"window": "4d"}}


def test_hours_cut_between_instants_and_never_inside_a_tie():
    splits = split("time", HOURLY, **HOURS)
    assert [len(splits[name]) / 2 for name in SPLITS[1:]] == [60, 40, 96]
    ends = {name: (part["when"].min(), part["when"].max()) for name, part in splits.items()}
    for before, after in itertools.pairwise(SPLITS):
        # Whole hours: the first instant after the gap is one hour past it.
        assert ends[after][0] - ends[before][1] == pd.Timedelta("37h")
    times = [set(part["when"]) for part in splits.values()]
    assert sum(map(len, times)) == len(set.union(*times))
    assert splits_check(splits, spec("time", **HOURS), CONTRACT.label, ("row_id",)).status == "pass"


def test_hours_of_a_column_of_days_are_refused():
    dates = ROWS.assign(day=ROWS["day"].dt.date)
    with pytest.raises(DatasetError, match="the split column day has no hours"):
        split("time", dates, column="day", embargo="36h")
