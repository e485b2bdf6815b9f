"""Rows that a training script holds out: by the rule by which the use case splits, and never across a time or group."""

import numpy as np
import pandas as pd
import pytest
from split_specs import rows, spec

from trainworthy.lifecycle.data.split.held_out import held_out_columns, hold_out
from trainworthy.lifecycle.errors import TrainingError

SHARE = 0.1
SPECS = {
    "time": spec("time"),
    "time_and_group": spec("time_and_group"),
    "group": spec("group"),
    "stratified": spec("stratified"),
    "hash": spec("hash"),
    "hash_of_columns": spec("hash", columns=["customer"]),
}
# One after the other in no order of time or group, as a stage's rows may be.
ROWS = rows().sample(frac=1.0, random_state=3).reset_index(drop=True)


def held(kind: str, share: float = SHARE, seed: int = 0, of: pd.DataFrame = ROWS) -> tuple[pd.DataFrame, pd.DataFrame]:
    numbers = hold_out(of[list(held_out_columns(SPECS[kind]))], SPECS[kind], share, seed)
    assert all(some.dtype == np.int64 and (np.diff(some) > 0).all() for some in numbers)
    training, held_out = (of.iloc[some] for some in numbers)
    assert not set(training.index) & set(held_out.index)
    return training, held_out


@pytest.mark.parametrize("kind", SPECS)
def test_each_kind_holds_out_about_the_share_and_the_same_again(kind):
    training, held_out = held(kind)
    if kind != "time_and_group":
        assert len(training) + len(held_out) == len(ROWS)
        assert len(held_out) == pytest.approx(SHARE * len(ROWS), rel=0.1)
    for again in (held(kind), held(kind, of=ROWS.copy())):
        assert [list(some.index) for some in again] == [list(training.index), list(held_out.index)]


def test_split_by_time_holds_out_the_latest_whole_days():
    training, held_out = held("time")
    assert training["when"].max() < held_out["when"].min()
    assert not set(training["day"]) & set(held_out["day"])
    assert held_out["day"].nunique() == 12
    # Of time nothing is drawn.
    assert list(held("time", seed=9)[1].index) == list(held_out.index)


def test_split_by_hours_holds_out_the_latest_whole_instants():
    hours = spec("time", embargo="24h")
    training, held_out = (ROWS.iloc[some] for some in hold_out(ROWS[["when"]], hours, 0.004, 0))
    assert training["when"].max() < held_out["when"].min()
    assert held_out["day"].nunique() == 1
    assert set(ROWS["day"][held_out.index]) & set(training["day"])


@pytest.mark.parametrize("kind", ["group", "hash_of_columns"])
def test_split_by_groups_holds_out_whole_ones_that_the_seed_draws(kind):
    training, held_out = held(kind)
    assert not set(training["customer"]) & set(held_out["customer"])
    assert set(held(kind, seed=1)[1]["customer"]) != set(held_out["customer"])
    assert training["when"].max() > held_out["when"].min()


def test_split_by_time_and_group_holds_out_late_rows_of_groups_that_begin_late():
    training, held_out = held("time_and_group")
    assert training["when"].max() < held_out["when"].min()
    assert not set(training["customer"]) & set(held_out["customer"])
    left_out = ROWS.drop([*training.index, *held_out.index])
    assert left_out["when"].min() > training["when"].max()
    assert set(left_out["customer"]) <= set(training["customer"])
    assert len(held_out) + len(left_out) == pytest.approx(SHARE * len(ROWS), rel=0.1)


@pytest.mark.parametrize("kind", ["hash", "stratified"])
def test_split_by_rows_holds_out_rows_that_the_seed_draws(kind):
    assert len(held(kind)[1]) == SHARE * len(ROWS)
    assert set(held(kind, seed=1)[1].index) != set(held(kind)[1].index)
    assert set(held(kind)[0]["customer"]) & set(held(kind)[1]["customer"])


def test_large_group_is_held_out_whole_or_not_at_all():
    two = ROWS.assign(customer=np.where(np.arange(len(ROWS)) % 4, "large", "small"))
    sizes = {len(held("group", seed=seed, of=two)[1]) for seed in range(10)}
    assert sizes == {len(ROWS) // 4, 3 * len(ROWS) // 4}


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), True, "0.1", None])
def test_share_that_is_none_is_refused(share):
    with pytest.raises(TrainingError, match="not between 0 and 1") as raised:
        held("time", share)
    assert "0.1" in raised.value.fix
    assert raised.value.value == share or share != share


TOO_SMALL = {
    "one_day": ("time", ROWS[ROWS["day"] == ROWS["day"].max()], "fewer than two days in when"),
    "one_group": ("group", ROWS.assign(customer="a"), "fewer than two groups of customer"),
    "no_new_group": (
        "time_and_group", ROWS.assign(customer="a"), "no group of customer begins in the last rows of the stage"
    ),
    "one_row": ("hash", ROWS.head(1), "too few rows to hold out this share"),
    "four_rows": ("group", ROWS.head(4), "too few rows to hold out this share"),
    "no_row": ("time", ROWS.head(0), "too few rows to hold out this share"),
}  # fmt: skip


@pytest.mark.parametrize("fault", TOO_SMALL)
def test_stage_that_is_too_small_is_refused_with_what_to_do(fault):
    kind, few, problem = TOO_SMALL[fault]
    with pytest.raises(TrainingError, match=problem) as raised:
        held(kind, of=few)
    assert "rows" in str(raised.value.value)
    assert "stages in use_case.yaml" in raised.value.fix
    if fault == "one_row":
        held(kind, of=ROWS.head(10))
