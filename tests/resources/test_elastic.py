"""How many nodes an attempt on Ray has, by Ray's table of nodes, and what the launcher makes of it."""

import math
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray_cluster import SKU, free_port
from ray_dashboard import NODES, dashboard

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.errors import BackendError, WorkerError
from trainworthy.lifecycle.protocol.attempts import ChargedTo
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources import launcher
from trainworthy.resources.backends.backend import Elastic, Size
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.backends.ray import RayBackend, ray_backend
from trainworthy.resources.backends.ray_jobs import Node, id_prefix
from trainworthy.resources.backends.ray_table import Elasticity, RayNode, holding
from trainworthy.resources.settings import DATABASE, RAY_ADDRESS

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: make test-engines installs it")
BUNDLE = {"CPU": 2.0, "GPU": 1.0, SKU: 1.0}
FITS = RayNode(True, BUNDLE | {"memory": 1e9})
LACK = [RayNode(False, BUNDLE), RayNode(True, BUNDLE | {"CPU": 1.0}), RayNode(True, {"CPU": 64.0, SKU: 1.0})]


@pytest.mark.parametrize(
    ("table", "least", "machines"),
    [
        ([FITS] * 4, 2, 4),
        ([FITS] * 9, 2, 4),
        ([FITS] * 3, 2, 3),
        # Gone, with too few cores, or without a GPU: none of them counts.
        ([FITS] * 3 + LACK, 2, 3),
        # Fewer than the least are waited for.
        ([FITS], 2, 2),
        ([], 1, 1),
        ([FITS] * 3, 4, 4),
    ],
)
def test_attempt_has_the_nodes_that_could_hold_it_within_what_is_declared(table, least, machines):
    size = Elasticity(least=least, nodes=4, each=2).size(table, BUNDLE)
    assert size == Size(machines, 4, 2 * machines)


def test_node_that_others_use_counts_and_one_that_is_gone_does_not():
    # Ray's totals say nothing of who uses them.
    assert holding([FITS, *LACK], BUNDLE) == 1
    assert holding([FITS, *LACK], {}) == 3


def test_share_of_the_machines_has_the_budget_of_all_for_longer():
    assert Size(2, 2, 2).ends_at(1100.0, 1000.0) == 1100.0
    assert Size(1, 2, 1).ends_at(1100.0, 1000.0) == 1200.0
    assert Size(1, 2, 1).ends_at(None, 1000.0) is None


def elastic(address: str, each: int = 1) -> RayBackend:
    return RayBackend(address, Node(cpus=1, resources={SKU: 1}), 2**30, nodes=2, elasticity=Elasticity(1, 2, each))


def job_of(folder: Path, processes: int = 2, **fields: Any) -> TrainJob:
    return toy_jobs.train_job(folder, folder / "out", processes=processes, **fields)


@needs_ray
def test_attempt_with_fewer_nodes_is_told_and_one_with_all_is_not(tmp_path):
    lines = list[str]()
    with dashboard("2.60.0") as address:
        assert elastic(address).size_of(job_of(tmp_path), lines.append) == Size(1, 2, 1)
    (line,) = lines
    assert line.endswith(f"trains on 1 of 2 nodes by 1 process: Ray has 1 alive with 1 CPU, 1 of '{SKU}'")
    with dashboard("2.60.0", [*NODES, NODES[0]]) as address:
        assert elastic(address, 2).size_of(job_of(tmp_path, 4), lines.append) == Size(2, 2, 4)
    assert len(lines) == 1


@needs_ray
def test_table_that_cannot_be_asked_for_begins_no_attempt(tmp_path):
    with pytest.raises(BackendError, match="Ray does not answer"):
        elastic(f"http://127.0.0.1:{free_port()}").size_of(job_of(tmp_path), print)


def test_neither_a_rerun_nor_a_training_that_needs_all_nodes_asks_for_the_table(tmp_path):
    nowhere = "http://127.0.0.1:9"
    rerun = job_of(tmp_path, 1, stop_after_steps=3)
    assert elastic(nowhere).size_of(rerun, print) == Size(1, 2, 1)
    assert elastic(nowhere).size_of(rerun.model_copy(update={"processes": 2}), print) == Size(2, 2, 2)
    fixed = RayBackend(nowhere, Node(cpus=1), 2**30, nodes=2)
    assert fixed.size_of(job_of(tmp_path), print) == Size(2, 2, 2)
    assert isinstance(fixed, Elastic)
    assert not isinstance(LOCAL, Elastic)


def test_job_has_the_nodes_of_its_processes_and_one_name_for_all_numbers(tmp_path):
    backend, (two, four) = elastic("http://127.0.0.1:9", 2), (job_of(tmp_path, number) for number in (2, 4))
    assert (backend.nodes_of(two), backend.nodes_of(four)) == (1, 2)
    # By it an earlier start is found, whatever its number was.
    assert id_prefix(two) == id_prefix(four)


def test_backend_of_a_use_case_is_as_elastic_as_it_declares(monkeypatch):
    monkeypatch.setenv(RAY_ADDRESS, "http://127.0.0.1:9")
    asked = {"launcher": "ray", "processes": 4, "nodes": 2, "sku": SKU}
    assert ray_backend(ComputeSpec(**asked)).elasticity is None
    assert ray_backend(ComputeSpec(**asked, least_nodes=1)).elasticity == Elasticity(1, 2, 2)


class Shrinking:
    """A backend whose attempts have ever other machines."""

    name, lock, memory_bytes = "shrinking", LOCAL.lock, 2**30

    def __init__(self, *sizes: Size) -> None:
        self.sizes = list(sizes)

    def size_of(self, job: TrainJob, tell: Any) -> Size:
        return self.sizes.pop(0)


def test_each_attempt_has_its_processes_its_price_and_its_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path))
    monkeypatch.delenv(DATABASE, raising=False)
    monkeypatch.setattr(launcher, "backend_of", lambda compute: Shrinking(Size(2, 2, 4), Size(1, 2, 2)))
    monkeypatch.setattr(launcher.time, "time", lambda: 1000.0)
    tried, meter = list[tuple[int, float, float | None]](), Meter()

    def attempt(self: Any, context: Any, job: TrainJob, charged_to: ChargedTo, *more: Any) -> Any:
        tried.append((job.processes, charged_to.usd_per_hour, job.ends_at))
        if len(tried) == 1:
            raise WorkerError("its node died", fix="look", exit_code=-9, cause="killed")
        return SimpleNamespace()

    monkeypatch.setattr(launcher.Launcher, "_attempt", attempt)
    log = SimpleNamespace(info=print, warning=print, error=print)
    context: Any = SimpleNamespace(log=log, run=SimpleNamespace(run_id="1", tags={}))
    charged_to = ChargedTo(run_id="1", use_case="toy", step="smoke", identity="i", usd_per_hour=6.0)
    launcher.Launcher().run(context, job_of(tmp_path, 4, ends_at=1100.0), charged_to)
    (whole, half) = tried
    assert whole == (4, 6.0, 1100.0)
    assert half[:2] == (2, 3.0)
    assert half[2] == pytest.approx(1200.0, abs=1.0)
    # Half of the second attempt was not rented.
    assert 0 < meter.spared_seconds < meter.wall_seconds
    assert not math.isinf(meter.spared_seconds)
