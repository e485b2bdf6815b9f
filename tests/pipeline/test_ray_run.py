"""Whole runs by jobs of a real Ray cluster: its nodes share nothing but a bucket, or one of two is there."""

import contextlib
import importlib.util
import sys
from pathlib import Path

import psutil
import pytest
from test_shared_state import mlflow_server
from toy_project import FIRST, new_toy, until

from tests import s3_servers

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from kubernetes_apart import needs_namespace
from ray_apart import real_ray
from ray_cluster import RayCluster, ray_cluster

from trainworthy.lifecycle.protocol.records import StageReport, Verdict
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.bucket import BucketState
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.backends.ray_client import RayClient
from trainworthy.resources.backends.travel.disk import MARK
from trainworthy.resources.settings import read_settings

TRAININGS = ("smoke", "pilot", "full")


def disks(cluster: RayCluster, root: Path) -> list[list[str]]:
    """What lies at `root` on the nodes, which have a disk of their own there."""
    places = list[Path]()
    for process in cluster.processes():
        # Others may be gone by now.
        with contextlib.suppress(psutil.NoSuchProcess):
            places += [Path(f"/proc/{process.pid}/root{root}")] * (process.name() == "raylet")
    own = [place for place in places if place.stat().st_dev != root.stat().st_dev]
    return [sorted(path.name for path in place.iterdir()) for place in own]


def judged(records: StateRecords, run_id: str) -> tuple[str, dict[str, str | None]]:
    """A run's verdict, and the weights of each of its trainings by their hash."""
    verdict = records.of_run("toy", "promotion", run_id)
    stages = {step: records.of_run("toy", step, run_id) for step in TRAININGS}
    assert isinstance(verdict, Verdict)
    return verdict.decision, {
        step: stage.parameters_sha256 for step, stage in stages.items() if isinstance(stage, StageReport)
    }


# Before the training of this machine that it is held against.
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: make test-engines does it")
@needs_namespace
@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(600)
def test_run_on_ray_without_a_common_storage_is_judged_as_one_of_this_machine(trained, tmp_path, monkeypatch):
    toy = new_toy(tmp_path)
    toy.edit("use_case.yaml", "compute: {", "compute: {launcher: ray, ")
    with (
        real_ray(tmp_path) as cluster,
        s3_servers.moto_server() as server,
        mlflow_server(tmp_path / "registry") as registry,
    ):
        cluster.add("first")
        cluster.add("second")
        place = f"{s3_servers.reached(monkeypatch, server)}/team"
        done = toy.run(
            intent=FIRST, TRAINWORTHY_STATE=place, MLFLOW_TRACKING_URI=registry, TRAINWORTHY_PROJECT=str(toy.root),
            TRAINWORTHY_RAY_ADDRESS=cluster.address, TRAINWORTHY_RAY_FOLDER=str(tmp_path),
        )  # fmt: skip
        assert done.code == 0, done.out[-6000:]
        client = RayClient(cluster.address)
        until(lambda: all(job.over for job in client.jobs("trainworthy-")), 20, "until Ray notices the last end")
        jobs = [job.status for job in client.jobs("trainworthy-")]
        found = disks(cluster, tmp_path)
        # A node that got no job has nothing at all.
        assert len(found) == 2
        assert [MARK] in found
        assert {name for names in found for name in names} == {MARK}
        assert Bucket(place).names("travel") == []
        there = judged(StateRecords(BucketState(Bucket(place))), done.run_id)
    assert toy.workers() == []
    here = judged(trained.toy.records, trained.done.run_id)
    assert there == here
    assert (here[0], len(here[1])) == ("promote", len(TRAININGS))
    with toy.instance():
        rows = attempt_table(read_settings()).rows("toy")
    assert {(row.started.launcher, row.ended and row.ended.outcome) for row in rows} == {("ray", "answered")}
    # Preflight, the trainings, evaluation, the registered files, and the first updates again.
    assert jobs == ["SUCCEEDED"] * len(rows) == ["SUCCEEDED"] * 7


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(600)
def test_run_on_one_of_two_nodes_is_that_of_one_process_and_costs_one_machine(trained, tmp_path):
    toy = new_toy(tmp_path)
    toy.edit("use_case.yaml", "compute: {", "compute: {launcher: ray, processes: 2, nodes: 2, least_nodes: 1, ")
    with ray_cluster() as cluster:
        cluster.add("only")
        done = toy.run(intent=FIRST, TRAINWORTHY_RAY_ADDRESS=cluster.address)
        assert done.code == 0, done.out[-6000:]
    # The first updates again were made by one process as well: else no bit of them would be equal.
    assert judged(toy.records, done.run_id) == judged(trained.toy.records, trained.done.run_id)
    assert done.out.count("trains on 1 of 2 nodes by 1 process: Ray has 1 alive with") == len(TRAININGS)
    preflight = toy.records.of_run("toy", "preflight", done.run_id)
    assert preflight is not None
    (memory,) = [check for check in preflight.checks if check.name == "memory_forecast"]
    assert {row["nodes"] for row in memory.details if "nodes" in row} == {1, 2}
    with toy.instance():
        rows = attempt_table(read_settings()).rows("toy")
    price = {row.started.charged_to.step: row.started.charged_to.usd_per_hour for row in rows}
    for step in TRAININGS:
        stage = toy.records.of_run("toy", step, done.run_id)
        assert isinstance(stage, StageReport)
        assert [(part.first_step, part.processes) for part in stage.made_by] == [(1, 1)]
        assert price[step] == price["evaluation"]
        # What is beside the attempt is counted for both machines.
        one = stage.cost.wall_seconds / 3600 * price[step]
        assert one <= stage.cost.usd < 2 * one
