"""The rows that the leakage battery reads of a large table: sorted files, rare labels and local days change nothing."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import leakage as tables
from trainworthy.lifecycle.contract.batches import BATCH_ROWS
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.leakage.battery import leakage_findings
from trainworthy.lifecycle.leakage.binning import RARE_ROWS, TRAINING_ROWS, cells_of, read_labelled, sampled
from trainworthy.lifecycle.leakage.duplicates import duplicates
from trainworthy.lifecycle.leakage.separability import power
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.tasks.binary import BINARY

ROWS = 400_000


def large(share: float, *, by_label: bool) -> pd.DataFrame:
    """A table split at random, in the order of its time or of its label."""
    generator = np.random.default_rng(3)
    label = generator.random(ROWS) < share
    made = pd.DataFrame(
        {
            "row_id": np.arange(ROWS),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(ROWS) * 200 // ROWS, unit="D"),
            "honest": generator.normal(size=ROWS) + label,
            "copy": label ^ (generator.random(ROWS) < 0.02),
            "note": np.where(label & (generator.random(ROWS) < 0.5), 1.0, np.nan),
            "label": label.astype("int8"),
            "split": generator.choice(list(tables.SHARES), ROWS, p=list(tables.SHARES.values())),
        }
    )
    return made.sort_values("label", kind="stable", ignore_index=True) if by_label else made


def written(rows: pd.DataFrame, folder) -> SplitFiles:
    """The splits in row groups as the snapshot writes them."""
    for name, part in rows.groupby("split"):
        part.drop(columns="split").to_parquet(folder / f"{name}.parquet", index=False, row_group_size=BATCH_ROWS)
    return SplitFiles(folder)


def found(rows: pd.DataFrame, folder) -> dict[str, Leak]:
    files, contract = written(rows, folder), tables.contract_of(rows)
    return {one.family: one for one in leakage_findings(files, contract, tables.SPLIT)}


@pytest.mark.parametrize(("share", "by_label"), [(0.05, True), (0.0003, False), (0.0003, True), (0.9997, True)])
def test_leakage_of_a_large_table_sorted_by_label_or_with_a_rare_one_is_measured(tmp_path, share, by_label):
    rows = large(share, by_label=by_label)
    families = found(rows, tmp_path)
    assert (families["single_feature"].status, families["single_feature"].columns) == ("fail", ("copy",))
    assert families["null_mask"].status == ("fail" if share < 0.9 else "pass")
    assert families["near_duplicates"].status in ("pass", "not_applicable")


@pytest.mark.parametrize(("share", "by_label"), [(0.05, True), (0.0003, False), (0.0003, True)])
def test_leakage_of_a_healthy_large_table_raises_no_alarm(tmp_path, share, by_label):
    families = found(large(share, by_label=by_label).drop(columns=["copy", "note"]), tmp_path)
    assert {one.status for one in families.values()} <= {"pass", "not_applicable"}


def test_leakage_of_a_large_table_with_too_few_rows_of_one_label_stays_insufficient(tmp_path):
    rows = large(0.3, by_label=False)
    rows["label"] = (rows.index < 15).astype("int8")
    assert found(rows, tmp_path)["single_feature"].status == "insufficient"


def test_power_of_a_feature_is_that_of_all_rows_though_a_rare_label_is_sampled_more_often(tmp_path):
    rows = large(0.01, by_label=True)
    files = written(rows, tmp_path)
    few = read_labelled(files, ["honest"], "label", BINARY)
    assert few.training_labels.mean() > 0.03 > 2 * few.training_labels[few.training_even].mean()
    assert few.training_share == pytest.approx(TRAINING_ROWS / few.training_counts.sum())
    measured = power(
        cells_of(few.training["honest"], few.held["honest"]), few.training_labels, few.held_labels, few.scored
    )
    training, held = (rows[rows["split"].isin(names)] for names in (["training"], ["validation", "calibration"]))
    whole = power(
        cells_of(training["honest"], held["honest"]), training["label"].to_numpy(), held["label"].to_numpy(),
        np.ones(len(held), dtype=bool),
    )  # fmt: skip
    assert measured.auc == pytest.approx(whole.auc, abs=0.02)
    assert measured.youden == pytest.approx(whole.youden, abs=0.04)


@pytest.mark.parametrize("rarer", [0, 1])
def test_sampled_rows_are_spread_over_all_and_hold_every_rare_one_up_to_the_limit(rarer):
    labels = np.full(200_000, 1 - rarer)
    labels[150_000:151_000] = rarer
    rows, even = sampled(labels, 10_000, RARE_ROWS)
    assert (labels[rows] == rarer).sum() == 1_000
    assert np.histogram(rows[even], bins=10, range=(0, 200_000))[0].tolist() == [1_000] * 10
    labels[:100_000] = rarer
    rows, even = sampled(labels, 10_000, RARE_ROWS)
    assert len(rows) == 10_000
    assert even.all()


def test_split_rows_by_their_number_are_read_across_row_groups(tmp_path):
    pd.DataFrame({"x": range(1_000), "name": [f"n{number}" for number in range(1_000)]}).to_parquet(
        tmp_path / "training.parquet", row_group_size=64
    )
    rows = np.array([0, 63, 64, 500, 999])
    found = SplitFiles(tmp_path).read("training", ["name", "x"], rows)
    assert found["x"].tolist() == rows.tolist()
    assert found["name"].tolist() == [f"n{number}" for number in rows]
    assert len(SplitFiles(tmp_path).read("training", ["x"], rows[:0])) == 0


@pytest.mark.parametrize("times", [["2024-03-01 10:00"], ["2024-03-01 10:00", "2024-03-01 16:00"]])
def test_duplicates_of_rows_of_one_day_or_two_are_found(tmp_path, times):
    rows = tables.table(5, tables.copied)
    place = np.arange(len(rows)) * len(times) // len(rows)
    day = pd.to_datetime(np.array(times)[place]).tz_localize("UTC").tz_convert("Asia/Tokyo")
    rows = rows.assign(day=day)
    cells = {name: cells_of(rows[name], rows[name]) for name in ("x", "score", "amount", "shop")}
    found = duplicates(
        tables.written(rows, tmp_path), cells, "label", "day", BINARY.events(np.arange(2))[0].of_labels, by_time=True
    )
    assert {one.status for one in found} == {"fail"}
