"""Kinds of split through Dagster: what the snapshot shows, which champion is met, a whole training to a verdict."""

import pandas as pd
import pytest
from toy_project import FIRST, Toy

from trainworthy.lifecycle.data.split import SPLITS
from trainworthy.lifecycle.protocol.records import Snapshot

BY_TIME = """  by: time
  column: day
  embargo: 1d
  validation: 14d
  calibration: 10d
  benchmark: {window: 20d, roll: each_version}
"""
HASHED = "  salt: first\n  shares: {validation: 0.15, calibration: 0.1, benchmark: 0.2}\n"
GROUP = f"  by: group\n  group: day\n{HASHED}"


def split_of(toy: Toy, split: str) -> Toy:
    toy.edit("use_case.yaml", BY_TIME, split)
    return toy


@pytest.mark.parametrize(
    ("split", "benchmark"),
    [
        (f"  by: hash\n{HASHED}", "toy_rows@v1 0.2 of the rows by hash, salt first, positive v1"),
        (f"{GROUP}", "toy_rows@v1 0.2 of the groups of day by group, salt first, positive v1"),
    ],
)
def test_snapshot_of_a_split_without_time_is_told_and_materialized(toy, split, benchmark):
    done = split_of(toy, split).materialize("snapshot")
    assert done.code == 0, done.out
    record = toy.record(done.run_id, "snapshot")
    assert isinstance(record, Snapshot)
    assert record.benchmark == benchmark
    found = {check.name: check.status for check in record.checks}
    assert found.pop("drift") in ("pass", "insufficient")
    assert found.pop("files") == "not_applicable"
    assert found == dict.fromkeys(("contract", "availability", "splits", "class_balance", "history", "leakage"), "pass")
    told = next(check.evidence for check in record.checks if check.name == "splits")
    assert f"0 of {record.rows} labelled rows (0.0%) lie in no split" in told
    assert sum(record.splits[name].rows for name in SPLITS) == record.rows
    # Splits that time does not order tell when their rows are from.
    assert all(split.start.startswith("2024-0") for split in record.splits.values())
    days = {name: set(pd.read_parquet(toy.var / record.splits[name].file.path)["day"]) for name in SPLITS}
    assert (len(set.union(*days.values())) == sum(map(len, days.values()))) == ("by: group" in split)


def test_champion_of_another_kind_of_split_stops_the_candidate_before_preflight(toy):
    before = toy.verdict_log()
    done = split_of(toy, GROUP).run()
    assert done.code == 1
    assert list(toy.materialized(done.run_id)) == ["dataset", "snapshot"]
    assert "the champion may have seen rows of this benchmark" in done.out
    assert "restore columns, salt and shares" in done.out
    assert toy.verdict_log() == before


@pytest.mark.slow
def test_training_by_group_ends_in_a_verdict_and_its_champion_meets_the_next_version(fresh):
    first = split_of(fresh, GROUP).run(intent=FIRST)
    assert first.code == 0, first.out
    verdict = fresh.verdict(first.run_id)
    assert verdict.decision == "promote", verdict.reasons
    control = next(control for control in verdict.controls if control.name == "benchmark")
    assert control.status == "pass"
    later = fresh.run(intent={"dataset_version": "v2"})
    assert later.code == 0, later.out
    met = fresh.verdict(later.run_id)
    assert met.compared_with == "1"
    assert any(comparison.reference == "champion" for comparison in met.comparisons)
    assert {control.name: control.status for control in met.controls}["benchmark"] == "pass"
