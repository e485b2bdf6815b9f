"""Rows without times: the splits' shares of nulls are compared, by group."""

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.drift.nulls import nulls_between_splits
from trainworthy.lifecycle.spec.split import SPLITS, GroupSplit, Shares

SPLIT = GroupSplit(
    by="group", group="customer", salt="v1", shares=Shares(validation=0.15, calibration=0.1, benchmark=0.2),
    resample_by="customer",
)  # fmt: skip


def written(folder, change=lambda rows, split: rows) -> SplitFiles:
    """Four splits of customers, some of whom have no age at all, and a score that is missing here and there."""
    generator = np.random.default_rng(0)
    for number, split in enumerate(SPLITS):
        customer = np.repeat(np.arange(60) + 100 * number, 12)
        old = generator.random(60).repeat(12) < 0.3
        rows = pd.DataFrame({
            "customer": customer, "age": np.where(old, np.nan, 40.0),
            "score": pd.Series(1, index=range(720), dtype="Int64").mask(generator.random(720) < 0.1), "place": "north",
        })  # fmt: skip
        change(rows, split).to_parquet(folder / f"{split}.parquet", index=False)
    return SplitFiles(folder)


def test_splits_that_chance_dealt_have_equal_nulls(tmp_path):
    found = nulls_between_splits(written(tmp_path), SPLIT)
    assert (found.name, found.status, found.severity) == ("history", "pass", "warning")
    assert "3 columns" in found.evidence


@pytest.mark.parametrize("lost", [np.nan, None])
def test_column_that_a_join_lost_in_one_split_is_named_with_both_shares(tmp_path, lost):
    def change(rows, split):
        return rows.assign(age=lost) if split == "benchmark" else rows

    found = nulls_between_splits(written(tmp_path, change), SPLIT)
    assert found.status == "fail"
    assert "age is null in 100% of benchmark and" in found.evidence
    assert [row["column"] for row in found.details] == ["age"]
