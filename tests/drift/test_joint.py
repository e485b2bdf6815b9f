"""What columns say of each other, between splits: slipped and exchanged columns, and healthy tables that move."""

import numpy as np
import pandas as pd
import pytest
from frames import SPLIT, contract, shop_rows, written

from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.drift.check import drift_check
from trainworthy.lifecycle.drift.joint import FLOOR, JOINT, joint_shifts
from trainworthy.lifecycle.spec.split import SPLITS, GroupSplit, Shares

COLUMNS = ("temperature", "distance", "fare", "minutes", "kind", "late")
BY_GROUP = GroupSplit(
    by="group", group="customer", salt="v1", shares=Shares(validation=0.15, calibration=0.1, benchmark=0.2),
    resample_by="customer",
)  # fmt: skip


def rides(seed: int = 0) -> pd.DataFrame:
    """A shop's days with fares and minutes that follow the distance; season, trend in prices, and other days."""
    rows, generator = shop_rows(seed=seed), np.random.default_rng(seed + 1)
    age = (rows["day"] - rows["day"].min()).dt.days
    rows["fare"] = rows["distance"] * (1 + age / 400) * np.exp(generator.normal(0, 0.2, len(rows)))
    rows["minutes"] = rows["distance"] / 30 + generator.normal(0, 8, len(rows)) + 5 * np.sin(age / 30)
    rows["kind"] = np.where(rows["distance"] > 2000, "far", np.where(generator.random(len(rows)) < 0.3, "some", "near"))
    return rows


def changed(folder, split, change):
    path = folder / f"{split}.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    return SplitFiles(folder)


@pytest.mark.parametrize("seed", [0, 1])
def test_season_and_trend_are_no_change_of_what_columns_say_of_each_other(tmp_path, seed):
    assert joint_shifts(written(rides(seed), tmp_path), COLUMNS, SPLIT) == []


@pytest.mark.parametrize(
    ("split", "where"),
    [
        ("benchmark", {"benchmark against calibration"}),
        ("validation", {"validation against the training rows before", "calibration against validation"}),
    ],
)
def test_column_of_the_row_before_is_named_with_the_split_though_its_values_are_the_same(tmp_path, split, where):
    written(rides(), tmp_path)

    def slip(rows):
        return rows.assign(fare=np.roll(rows["fare"].to_numpy(), 1))

    found = joint_shifts(changed(tmp_path, split, slip), COLUMNS, SPLIT)
    assert {one.where for one in found} == where
    assert {one.column for one in found} <= {"fare", "distance"}
    assert all(one.code == JOINT and one.observed > one.threshold >= FLOOR for one in found)


def test_drift_warns_of_a_slipped_label_and_stops_nothing(tmp_path):
    rows = shop_rows()
    rows["late"] = (rows["distance"] > 1500).astype("int8")
    healthy = drift_check(written(rows, tmp_path), contract(), SPLIT)
    slipped = changed(tmp_path, "benchmark", lambda rows: rows.assign(late=np.roll(rows["late"].to_numpy(), 1)))
    found = drift_check(slipped, contract(), SPLIT)
    assert healthy.status == "pass"
    assert (found.status, found.severity) == ("fail", "warning")
    assert [row["code"] for row in found.details if row["status"] == "fail"] == [JOINT]


def by_group(folder, seed=0):
    generator = np.random.default_rng(seed)
    for number, split in enumerate(SPLITS):
        count = 700 if split == "training" else 200
        customer = np.repeat(np.arange(count) + 1000 * number, 6)
        height = generator.normal(170, 10, count)[customer - 1000 * number]
        rows = pd.DataFrame(
            {"customer": customer, "height": height, "weight": height + generator.normal(0, 8, len(height))}
        )
        rows.to_parquet(folder / f"{split}.parquet", index=False)
    return SplitFiles(folder)


def test_splits_that_chance_dealt_say_the_same_and_an_exchanged_column_is_found(tmp_path):
    assert joint_shifts(by_group(tmp_path), ("height", "weight"), BY_GROUP) == []

    def exchange(rows):
        return rows.assign(weight=np.random.default_rng(2).permutation(rows["weight"].to_numpy()))

    (found,) = joint_shifts(changed(tmp_path, "calibration", exchange), ("height", "weight"), BY_GROUP)
    assert found.where == "calibration against the training rows before"


def test_columns_that_have_no_ranks_are_left_out(tmp_path):
    rows = rides()
    rows = rows.assign(tags=pd.Series([["a"]] * len(rows), index=rows.index), nothing=None)
    assert joint_shifts(written(rows, tmp_path), (*COLUMNS, "tags", "nothing", "empty"), SPLIT) == []


def test_too_few_rows_or_columns_are_not_judged(tmp_path):
    files = written(rides().groupby("day").head(3), tmp_path)
    assert joint_shifts(files, COLUMNS, SPLIT) == []
    assert joint_shifts(files, COLUMNS[:1], SPLIT) == []
