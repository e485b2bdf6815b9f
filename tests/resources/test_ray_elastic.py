"""A training on a real Ray cluster of this machine goes on with the nodes that there are: one is lost, one is back."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from planted_training import in_training, planted
from ray_cluster import SKU, RayCluster, ray_cluster
from ray_workers import at_step, is_left, node_of, processes_of

from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import AnyResult, TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.resources.backends.backend import WORKER
from trainworthy.resources.backends.ray import RayBackend
from trainworthy.resources.backends.ray_jobs import Node
from trainworthy.resources.backends.ray_table import Elasticity
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_process import run_worker

pytestmark = [
    pytest.mark.usefixtures("one_thread"), pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(600),
]  # fmt: skip
# Else each process draws its own, and fewer of them other ones.
NO_DROPOUT = "    self.layers[2].p = 0.0"
# Of 24 updates, so that what is done at the tenth comes before the end.
SLOWLY = in_training(f"{NO_DROPOUT}\n    time.sleep(0.4)")


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    # A group that asks for a node which is gone would wait in vain, and is told so soon.
    with ray_cluster(variables={"RAY_JOB_START_TIMEOUT_SECONDS": "60"}) as running:
        for name in ("first", "second"):
            running.add(name, TRAINWORTHY_TEST_NODE=name)
        yield running


@pytest.fixture(scope="module")
def quiet(splits, tmp_path_factory) -> TrainResult:
    """The same by two processes of this machine, which nothing happens to."""
    answer = run_worker(two(planted(splits, tmp_path_factory.mktemp("quiet"), in_training(NO_DROPOUT), stage="smoke")))
    assert isinstance(answer, TrainResult)
    return answer


def two(job: TrainJob) -> TrainJob:
    return job.model_copy(update={"processes": 2})


def weights(result: TrainResult) -> dict[str, torch.Tensor]:
    assert result.checkpoint is not None
    return torch.load(Path(result.checkpoint.path) / "state.pt", weights_only=True)["model"]


def is_the_training(answer: TrainResult, quiet: TrainResult) -> None:
    """Each row counted once in each window, as in the quiet run; losses and weights to their last digits."""
    assert [(point.step, point.rows) for point in answer.curve] == [(point.step, point.rows) for point in quiet.curve]
    assert [point.loss for point in answer.curve] == pytest.approx([point.loss for point in quiet.curve], abs=1e-5)
    torch.testing.assert_close(weights(answer), weights(quiet), rtol=1e-4, atol=1e-5)


class Attempts:
    """Attempts of a job as the launcher makes them, with what happens as soon as a checkpoint of a step is there."""

    def __init__(self, cluster: RayCluster, job: TrainJob, happens: dict[int, Callable[[], object]]) -> None:
        self.backend = RayBackend(
            cluster.address, Node(cpus=1, resources={SKU: 1}), 2**30, nodes=2, elasticity=Elasticity(1, 2, 1)
        )
        self.job, self.happens, self.machines, self.lines = job, happens, list[int](), list[str]()

    def once(self) -> AnyResult:
        size = self.backend.size_of(self.job, self.lines.append)
        self.machines.append(size.machines)
        job = self.job.model_copy(update={"processes": size.processes})
        step = min(self.happens, default=100)
        watched = at_step(job, step, lambda: self.happens.pop(step)())
        return run_worker(job, backend=self.backend, watcher=watched, tell=self.lines.append)

    def answer(self) -> TrainResult:
        answer = supervise(self.job, self.once, self.lines.append)
        assert isinstance(answer, TrainResult)
        return answer


def test_training_goes_on_with_the_node_that_is_left_and_ends(cluster, splits, tmp_path, quiet):
    job = two(planted(splits, tmp_path, SLOWLY, stage="smoke"))
    attempts = Attempts(cluster, job, {5: lambda: cluster.kill(node_of(job, 1))})
    answer = attempts.answer()
    assert attempts.machines == [2, 1]
    (died,) = answer.attempts
    assert (died.cause, "node 1 of 2: its node died" in died.told) == ("killed", True)
    reached = answer.resumed_from_step
    assert reached >= 5
    assert [(part.first_step, part.processes) for part in answer.made_by] == [(1, 2), (reached + 1, 1)]
    note = f"trained by 2 processes, by 1 from update {reached + 1} on, each on its share of every batch"
    assert note in answer.notes
    (told,) = [line for line in attempts.lines if "trains on" in line]
    assert told == f"smoke: trains on 1 of 2 nodes by 1 process: Ray has 1 alive with 1 CPU, 1 of '{SKU}'"
    is_the_training(answer, quiet)
    assert is_left(cluster, job) == []


def test_training_has_all_nodes_again_once_they_are_back(cluster, splits, tmp_path, quiet):
    job = two(planted(splits, tmp_path, SLOWLY, stage="smoke"))

    def back() -> None:
        cluster.add("back", TRAINWORTHY_TEST_NODE="back")
        (worker,) = processes_of(job, WORKER)
        worker.kill()

    attempts = Attempts(cluster, job, {5: lambda: cluster.end(node_of(job, 1)), 10: back})
    answer = attempts.answer()
    assert attempts.machines == [2, 1, 2]
    assert [part.processes for part in answer.made_by] == [2, 1, 2]
    assert len([line for line in attempts.lines if "trains on 1 of 2" in line]) == 1
    assert reached_step(Path(job.out)) == quiet.steps
    is_the_training(answer, quiet)
    assert is_left(cluster, job) == []
