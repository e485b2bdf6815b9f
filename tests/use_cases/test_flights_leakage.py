"""Real flights: no alarm on any month, and outcomes offered as features."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.contract.availability import availability_check
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.files import SplitFiles, read_columns, write_split_files
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_by_time, split_columns
from trainworthy.lifecycle.leakage.battery import leakage_findings
from trainworthy.lifecycle.leakage.split_gap import split_gap
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.use_case import load_use_case
from use_cases.flight_delays import dataset

FOLDER = Path(__file__).parents[2] / "use_cases" / "flight_delays"
SPEC, CONTRACT = load_use_case(FOLDER).spec, load_contract(FOLDER / "contract.yaml")


def build(folder: Path, month: int) -> Path:
    dataset.build(folder, month, "0.0.3")
    return folder


@pytest.fixture(scope="module")
def april(tmp_path_factory) -> Path:
    """The rows of version v4, the first with four splits worth the name."""
    return build(tmp_path_factory.mktemp("flights") / "april", 4)


def splits(source: Path, folder: Path) -> SplitFiles:
    columns = (*split_columns(SPEC.split, CONTRACT), CONTRACT.label.column)
    cut = split_by_time(with_label(read_columns(source, columns), CONTRACT.label), SPEC.split)
    label = CONTRACT.label.name
    folder.mkdir()
    positions = {name: np.asarray(rows.index) for name, rows in cut.items()}
    return write_split_files(source, folder, positions, pd.concat([rows[label] for rows in cut.values()]))


@pytest.fixture(scope="module")
def written(april, tmp_path_factory) -> SplitFiles:
    return splits(april, tmp_path_factory.mktemp("splits") / "april")


def offering(*names: str) -> Contract:
    """The contract with these outcomes declared as features, wrongly known at prediction time."""
    wrong = {"role": "feature", "available_at": "PT0S"}
    columns = tuple(one.model_copy(update=wrong if one.name in names else {}) for one in CONTRACT.columns)
    return CONTRACT.model_copy(update={"columns": columns})


def alarms(written: SplitFiles, contract: Contract) -> list[Leak]:
    return [one for one in leakage_findings(written, contract, SPEC.split) if one.status in ("fail", "warning")]


def measured(written: SplitFiles) -> dict[str, str]:
    return {one.family: one.status for one in leakage_findings(written, CONTRACT, SPEC.split)}


def test_flights_leakage_april_raises_no_alarm(written):
    assert alarms(written, CONTRACT) == []
    assert measured(written)["label_window"] == "not_applicable"
    assert set(measured(written).values()) <= {"pass", "not_applicable"}


def test_flights_leakage_outcomes_that_are_declared_rightly_are_refused_by_availability():
    offered = ("dep_delay", "arr_time", "air_time")
    check = availability_check(CONTRACT, (*CONTRACT.feature_columns, *offered))
    assert check.stops
    assert {one["column"] for one in check.details if one["status"] == "fail"} == set(offered)


def test_flights_leakage_outcomes_that_are_declared_wrongly_need_the_declaration(written):
    """What docs/how-to/leakage.md says: no statistic tells these three from honest strong features."""
    for name in ("dep_delay", "arr_time", "air_time"):
        assert alarms(written, offering(name)) == [], name


def test_flights_leakage_planned_and_actual_arrival_are_found_by_their_difference(written):
    (finding,) = alarms(written, offering("arr_time", "sched_arr_time"))
    assert (finding.family, set(finding.columns)) == ("difference", {"arr_time", "sched_arr_time"})


@pytest.mark.parametrize("kind", ["flipped", "source"])
def test_flights_leakage_copy_of_the_target_is_found(written, tmp_path, kind):
    generator = np.random.default_rng(0)
    for path in written.folder.glob("*.parquet"):
        rows = pd.read_parquet(path)
        flips = generator.random(len(rows)) < 0.05
        copy = rows["late"] ^ flips if kind == "flipped" else rows["arr_delay"] // 7 * 3.5 + 100
        rows.assign(plane_year=copy.astype("float64")).to_parquet(tmp_path / path.name, index=False)
    assert [one.columns for one in alarms(SplitFiles(tmp_path), CONTRACT)] == [("plane_year",)]


def test_flights_leakage_random_split_of_calendar_and_distance_warns(april):
    rows = with_label(read_columns(april), CONTRACT.label)
    calendar = ("month", "day", "day_of_week", "hour", "distance")
    finding = split_gap(rows, calendar, "late", "date", "sched_dep", 0, by_time=False)
    assert finding.status == "warning", finding.evidence


@pytest.mark.slow
def test_flights_leakage_no_month_raises_an_alarm(tmp_path):
    whole = build(tmp_path / "year", 12)
    for month in range(4, 13):
        source = tmp_path / f"v{month}"
        source.mkdir()
        for path in sorted(whole.glob("*.parquet"))[:month]:
            (source / path.name).symlink_to(path)
        assert alarms(splits(source, tmp_path / f"splits-{month}"), CONTRACT) == [], month
