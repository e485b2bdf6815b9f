"""What it takes to train elsewhere or by several processes: until the first update, and an update, beside bare engines.

A transformer of at least 100 ms an update is trained

- by two processes: by ours (`compute.launcher: torchrun`), with monitors, curve and checkpoints, and by a bare loop
  under torchrun, DistributedDataParallel with nothing beside;
- by one process of a Ray cluster: by ours (`launcher: ray`), and by the bare loop as a job that Ray's own client
  submits; left out, in a line, where Ray is not installed;
- by ours in a pod (`launcher: kubernetes`) of the tests' scripted API server, whose pods are processes of this machine:
  what a real cluster takes to pull an image and to place a pod is not in it;
- by one process on this machine, `local`.

Ours and the bare one make the same updates of the same rows, clip by the norm and have as many threads. Rounds take
turns; a ratio is the median of the rounds' ratios. Seconds until the first update begin with the command, or with the
call of the backend where that submits; the worker's imports are in them.

    make bench NAME=launchers         about ten minutes on two idle cores; Ray by make test-engines
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.chaos_cluster import pods_of_ranks, scripted_cluster
from benchmarks.rank_jobs import ROWS, rank_job, stamps
from benchmarks.result import arguments, begin, finish, hardware
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.resources.backends.backend import Backend
from trainworthy.resources.settings import PRODUCT
from trainworthy.resources.worker_process import run_worker

# Rows a second of ours to the bare loop's: at least 0.97. As an upper bound, seconds an update.
TARGETS = {"seconds_ratio": 1 / 0.97}
PROCESSES = 2
# Updates before which nothing is counted: kernels and the gradients' buckets are made.
WARM = 5


# By whom we run a training, and what runs the bare loop beside it.
PEERS = {"torchrun": "bare torchrun", "ray": "bare Ray"}
VARIABLES = {
    "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONPATH": os.pathsep.join([str(PRODUCT / "src"), str(PRODUCT)]),
}  # fmt: skip
BARE = "benchmarks.rank_jobs"

Run = Callable[[TrainJob], None]


class Round(NamedTuple):
    """Seconds until the first forward pass that is trained on, and of an update, the median."""

    first: float
    update: float


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    begin(asked.short)
    rounds, updates, width = (1, 20, 32) if asked.short else (asked.rounds, 64, 256)
    os.environ.update(VARIABLES)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as engines:
        folder = Path(name)
        launchers: dict[str, Run] = {
            "bare torchrun": _bare_torchrun, "torchrun": _ours("torchrun"), "local": _ours("worker"),
            **engines.enter_context(_kubernetes(folder)), **engines.enter_context(_ray()),
        }  # fmt: skip
        measured: dict[str, list[Round]] = {launcher: [] for launcher in launchers}
        for number in range(rounds):
            for launcher, run in launchers.items():
                processes = PROCESSES if "torchrun" in launcher else 1
                path = f"{launcher.replace(' ', '-')}-{number}"
                job = rank_job(folder, path, processes=processes, updates=updates, width=width)
                measured[launcher].append(_measured(job, run))
            latest = "  ".join(f"{which} {every[-1].update * 1000:.1f} ms" for which, every in measured.items())
            print(f"round {number + 1} of {rounds}: {latest}", flush=True)
    first = {which: statistics.median(one.first for one in every) for which, every in measured.items()}
    update = {which: statistics.median(one.update for one in every) for which, every in measured.items()}
    print(f"\n{'':24}{'first update':>14}{'an update':>12}")
    for which in measured:
        print(f"{which:24}{first[which]:12.2f} s{update[which] * 1000:9.1f} ms")
    ratios = {ours: _ratios(measured, ours, bare) for ours, bare in PEERS.items() if bare in measured}
    for ours, found in ratios.items():
        spread = f"{statistics.median(found):8.3f}   {min(found):.3f} to {max(found):.3f}"
        print(f"{f'{ours} to {PEERS[ours]}, an update':40}{spread}")
    print(hardware())
    figures = {
        "seconds_ratio": statistics.median(ratios["torchrun"]), "update_ms": update["torchrun"] * 1000,
        **{f"first_update_seconds_{which.replace(' ', '_')}": seconds for which, seconds in first.items()},
        **({"seconds_ratio_ray": statistics.median(ratios["ray"])} if "ray" in ratios else {}),
    }  # fmt: skip
    finish("launchers", figures, TARGETS, short=asked.short)


def _ratios(measured: Mapping[str, list[Round]], ours: str, bare: str) -> list[float]:
    """Seconds an update, ours to the bare one's, of each round."""
    return [one.update / other.update for one, other in zip(measured[ours], measured[bare], strict=True)]


def _measured(job: TrainJob, run: Run) -> Round:
    """One training to its end."""
    began = time.time()
    run(job)
    times = stamps(job)
    # Ours passes rows before the first update, too: what looks at loss and gradients (about ten passes).
    updates = job.training.epochs * (ROWS // job.training.batch_size)
    counted = [after - before for before, after in itertools.pairwise(times)][-updates + WARM :]
    return Round(times[0] - began, statistics.median(counted))


def _file(job: TrainJob) -> str:
    return str(Path(job.out) / "job.json")


def _bare_torchrun(job: TrainJob) -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
    _command(job, [sys.executable, "-m", *torchrun, "-m", BARE, _file(job)])


def _ours(module: str) -> Run:
    """As Trainworthy's own process on this machine."""
    return lambda job: _command(job, [sys.executable, "-m", f"trainworthy.lifecycle.{module}", "--job", _file(job)])


def _command(job: TrainJob, command: list[str]) -> None:
    with (Path(job.out) / "told.txt").open("wb") as told:
        subprocess.run(command, cwd=PRODUCT, stdout=told, stderr=told, check=True)


@contextlib.contextmanager
def _kubernetes(folder: Path) -> Iterator[dict[str, Run]]:
    """A pod of the scripted cluster, whose volume is the folder of all jobs."""
    with scripted_cluster(folder):
        backend = pods_of_ranks(folder, 1)
        yield {"kubernetes": lambda job: _quiet(job, backend)}


@contextlib.contextmanager
def _ray() -> Iterator[dict[str, Run]]:
    """A job of a real Ray cluster on this machine, ours and the bare loop."""
    if find_spec("ray") is None:
        print("Ray is not installed (make test-engines installs it): it is left out")
        yield {}
        return
    sys.path.insert(0, str(PRODUCT / "tests" / "resources"))
    from ray_cluster import SKU, free_port, ray_cluster

    from trainworthy.resources.backends.ray import RayBackend
    from trainworthy.resources.backends.ray_jobs import Node

    with ray_cluster() as cluster:
        cluster.add("first")
        backend = RayBackend(cluster.address, Node(cpus=1, resources={SKU: 1}), 2**30)
        yield {
            PEERS["ray"]: lambda job: _bare_ray(job, cluster.address, free_port()),
            "ray": lambda job: _quiet(job, backend),
        }


def _quiet(job: TrainJob, backend: Backend) -> None:
    with (Path(job.out) / "told.txt").open("w") as told:
        run_worker(job, backend=backend, tell=lambda _: None, output=(told.fileno(), told.fileno()))


def _bare_ray(job: TrainJob, address: str, port: int) -> None:
    """What one writes who wants nothing but the updates: the loop as the command of a job."""
    from ray.job_submission import JobSubmissionClient  # pyright: ignore[reportMissingImports]

    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    client = JobSubmissionClient(address)
    id = client.submit_job(
        entrypoint=shlex.join([sys.executable, "-m", BARE, _file(job)]), entrypoint_num_cpus=1,
        runtime_env={"env_vars": VARIABLES | alone},
    )  # fmt: skip
    while not client.get_job_status(id).is_terminal():
        time.sleep(0.2)
    if (status := client.get_job_status(id)) != "SUCCEEDED":
        raise RuntimeError(f"{status}: {client.get_job_logs(id)[-2000:]}")


if __name__ == "__main__":
    main()
