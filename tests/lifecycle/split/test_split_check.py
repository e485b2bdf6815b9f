"""Each fault that can be cut into splits, planted in the rows: the check asks nothing of how they were cut."""

import numpy as np
import pandas as pd
import pytest
from split_specs import CONTRACT, KINDS, LABEL, rows, spec

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.split import SPLITS, split_rows, splits_check

ROWS = rows()


def checked(by: str, change=lambda splits: None, **changes):
    declared = spec(by, **changes)
    splits = split_rows(ROWS, declared, CONTRACT)
    change(splits)
    return splits_check(splits, declared, CONTRACT.label, CONTRACT.primary_key, len(ROWS))


def found(check, told: str) -> None:
    assert check.stops
    assert check.fix
    assert told in check.evidence


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize("name", SPLITS)
def test_empty_split_and_one_of_one_class_are_found(by, name):
    found(checked(by, lambda splits: splits.update({name: splits[name].head(0)})), f"{name} has no rows")
    one_class = lambda splits: splits.update({name: splits[name].assign(**{LABEL: 1})})
    found(checked(by, one_class), f"{name} has one class only")


@pytest.mark.parametrize("by", sorted(KINDS.keys() - {"stratified"}))
@pytest.mark.parametrize("absent", ["benchmark", "training", None])
def test_class_that_the_benchmark_lacks_is_a_warning_and_one_that_training_lacks_a_failure(by, absent):
    label = Label(name=LABEL, version=1, column=LABEL, type="class", classes=("dry", "rain", "snow"))
    declared = spec(by)
    splits = split_rows(ROWS, declared, CONTRACT)
    for name, split in splits.items():
        places = np.arange(len(split)) % (2 if name == absent else 3)
        splits[name] = split.assign(**{LABEL: places.astype("int8")})
    check = splits_check(splits, declared, label, CONTRACT.primary_key, len(ROWS))
    if absent == "training":
        found(check, "validation has classes that training lacks: snow")
    elif absent:
        assert (check.status, check.severity, check.stops) == ("fail", "warning", False)
        assert check.evidence.startswith("benchmark has no row of snow: nothing will be measured of it")
    else:
        assert (check.status, check.fix) == ("pass", "")


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize("before", ["training", "validation", "calibration"])
def test_row_in_two_splits_is_found(by, before):
    def shared(splits):
        splits[before] = pd.concat([splits[before], splits["benchmark"].head(3)])

    found(checked(by, shared), f"{before} and benchmark share 3 rows")


@pytest.mark.parametrize("by", KINDS)
def test_rows_of_one_key_in_two_splits_are_found(by):
    def twice(splits):
        part, other = splits["training"], splits["benchmark"]
        ids = part["row_id"].to_numpy().copy()
        ids[:2] = other["row_id"].to_numpy()[:2]
        splits["training"] = part.assign(row_id=ids)

    found(checked(by, twice), "training and benchmark share 2 values of row_id")


@pytest.mark.parametrize("by", ["group", "time_and_group"])
def test_group_in_two_splits_is_found(by):
    def shared(splits):
        part = splits["validation"]
        other = splits["benchmark"]["customer"].iloc[0]
        splits["validation"] = part.assign(customer=part["customer"].where(part.index != part.index[0], other))

    found(checked(by, shared), "validation and benchmark share 1 values of customer")


def test_values_that_are_hashed_together_in_two_splits_are_found():
    def swap(splits):
        moved = splits["benchmark"].head(1)
        splits["training"] = pd.concat([splits["training"], moved])
        splits["benchmark"] = splits["benchmark"].iloc[1:]

    found(checked("hash", swap, columns=["day", "shop"]), "share 1 values of day, shop")


@pytest.mark.parametrize("by", ["time", "time_and_group"])
def test_row_inside_the_embargo_is_found(by):
    def late(splits):
        part, start = splits["training"], splits["validation"]["when"].min()
        when = part["when"].where(part.index != part.index[-1], start.normalize() - pd.Timedelta("1h"))
        splits["training"] = part.assign(when=when)

    found(checked(by, late), "training ends 0 whole days before validation; the embargo is 1d")
    found(checked(by, late, embargo="12h"), "training ends ")


@pytest.mark.parametrize("name", ["validation", "calibration", "benchmark"])
def test_window_that_is_longer_than_declared_is_found(name):
    declared = spec("time")
    splits = split_rows(ROWS, declared, CONTRACT)
    windows = {"validation": "13d", "calibration": "9d", "benchmark": {"window": "19d"}}
    check = splits_check(splits, spec("time", **{name: windows[name]}), CONTRACT.label, CONTRACT.primary_key)
    found(check, f"{name} is longer than")


@pytest.mark.parametrize("name", ["validation", "benchmark"])
def test_too_few_groups_of_the_intervals_or_of_the_split_are_found(name):
    def few(column):
        def change(splits):
            kept = splits[name][column].unique()[:7]
            splits[name] = splits[name][splits[name][column].isin(kept)]

        return change

    found(checked("hash", few("day")), f"{name} has 7 groups of day; intervals need 8")
    found(checked("group", few("customer")), f"{name} has 7 groups of customer; intervals need 8")


def test_shares_that_miss_the_declared_ones_in_a_stratum_are_found():
    def move(splits):
        moved = splits["benchmark"][splits["benchmark"]["shop"] == "west"].head(5)
        splits["training"] = pd.concat([splits["training"], moved])
        splits["benchmark"] = splits["benchmark"].drop(moved.index)

    found(checked("stratified", move), "benchmark misses its share of 0.2 in ")


def test_strata_that_are_too_small_for_their_shares_are_found():
    found(checked("stratified", strata=["customer"]), "strata are too small, name fewer columns in strata")


def test_healthy_splits_without_a_key_are_compared_by_row_number():
    declared = spec("time")
    splits = split_rows(ROWS, declared, CONTRACT)
    assert splits_check(splits, declared, CONTRACT.label).status == "pass"
    splits["validation"] = pd.concat([splits["validation"], splits["training"].tail(1)])
    found(splits_check(splits, declared, CONTRACT.label), "training and validation share 1 rows")
