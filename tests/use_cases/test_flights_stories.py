"""docs/data-stories.md on real flights: what each planted fault is found by, and that an ordinary April is not found.

Each fault is planted into v4, whose newest month is April.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.flights_checks import CAN_FIND, alarms, kept_check, snapshot_checks
from benchmarks.flights_faults import COPY_OF_TARGET, FAULTS, offer_as_features, plant, plant_copy_of_target
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.difference import VersionFiles, compare
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_rows
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.evaluation.disjoint import window_check
from trainworthy.lifecycle.files.content import combined, content_hash
from trainworthy.lifecycle.files.versions import refuse_changes
from trainworthy.lifecycle.leakage.battery import follows_time
from trainworthy.lifecycle.leakage.split_gap import split_gap
from trainworthy.lifecycle.protocol.leak import leakage_check
from trainworthy.lifecycle.spec.split import HashSplit, Shares
from trainworthy.lifecycle.use_case import load_use_case
from use_cases.flight_delays import dataset

FOLDER = Path(__file__).parents[2] / "use_cases" / "flight_delays"
USE_CASE, CONTRACT = load_use_case(FOLDER), load_contract(FOLDER / "contract.yaml")
# By fault: what each check does about it, and words that a person needs of each.
CAUGHT = {
    "miles_as_kilometres": {
        "contract": ("stops", "distance.range"),
        "drift": ("warns", "perhaps miles as kilometres"),
    },
    "nulls": {
        "contract": ("stops", "temp.nulls"),
        "drift": ("warns", "temp"),
        "history": ("warns", "temp null in 33% where 0% is usual (lasting, 30 days"),
    },
    "lost_carrier": {"drift": ("warns", "gone: EV")},
    "clipped_delays": {"drift": ("warns", "30 holds many rows, and none is greater")},
    "backfill": {"backfill": ("stops", "2013-03.parquet")},
    "healthy_april": {},
}


@pytest.fixture(scope="module")
def v4(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("flights") / "v4"
    dataset.build(folder, 4, "0.0.3")
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_flights_fault_is_found_by_exactly_these_checks(v4, tmp_path, name):
    folder = plant(name, v4, tmp_path / "planted")
    checks = snapshot_checks(folder, USE_CASE, CONTRACT, tmp_path)
    checks["backfill"] = kept_check(v4, folder)
    assert alarms(list(checks.values())) == {check: what for check, (what, _) in CAUGHT[name].items()}
    assert {check: words for check, (_, words) in CAUGHT[name].items() if words not in checks[check].evidence} == {}
    assert set(CAUGHT[name]) <= set(CAN_FIND)


def test_flights_backfill_of_march_is_refused_when_published_and_counted_by_diff(v4, tmp_path):
    folder = plant("backfill", v4, tmp_path / "backfill")
    old, new = (VersionFiles(path.name, path, content_hash(path)) for path in (v4, folder))
    with pytest.raises(DatasetError, match=r"2013-03\.parquet"):
        refuse_changes("flights@v4", new.content, "flights@v3", combined(old.content.files[:3]))
    found = compare(old, new, CONTRACT.primary_key, CONTRACT.label)
    assert list(found.cells) == ["arr_delay"]
    assert dict(found.labels) == {(1, 0): 1518}
    assert (len(found.added), len(found.removed), len(found.changed)) == (0, 0, 27_902)


def test_flights_copy_of_the_target_is_refused_by_statistics_alone(v4, tmp_path):
    folder = plant_copy_of_target(v4, tmp_path / "hint")
    claimed = load_contract(offer_as_features(FOLDER / "contract.yaml", tmp_path / "hint.yaml", COPY_OF_TARGET))
    checks = snapshot_checks(folder, USE_CASE, claimed, tmp_path)
    assert alarms(list(checks.values())) == {"leakage": "stops"}
    assert [item["columns"] for item in checks["leakage"].details if item["status"] == "fail"] == [[COPY_OF_TARGET]]


def test_flights_random_split_of_a_calendar_is_flagged_and_the_split_by_time_is_not(v4):
    columns = ("month", "day", "day_of_week", "sched_dep_minute_of_day", "distance")
    rows, label = with_label(read_columns(v4), CONTRACT.label), CONTRACT.label.name
    shares = Shares(validation=0.1, calibration=0.1, benchmark=0.1)
    at_random = HashSplit(by="hash", salt="v1", shares=shares, resample_by="date")
    found = {}
    for split in (at_random, USE_CASE.spec.split):
        training = split_rows(rows, split, CONTRACT)["training"]
        finding = split_gap(training, columns, label, "date", "sched_dep", 0, by_time=follows_time(split))
        found[split.by] = leakage_check("leakage_in_training", [finding])
    assert alarms([found["hash"]]) == {"leakage_in_training": "warns"}
    assert "the random part of the split flatters" in found["hash"].evidence
    assert found["time"].status == "pass"


def test_flights_benchmark_inside_or_before_the_training_rows_is_refused():
    for start in ("2013-09-01", "2013-12-31"):
        check = window_check({"training": "2013-12-31"}, start, "1d")
        assert check.stops
    assert window_check({"training": "2013-12-31"}, "2014-01-02", "1d").status == "pass"
