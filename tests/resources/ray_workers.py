"""Workers on a real cluster of Ray: who works on a job, what Ray says of it, and what happens to it at which step."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from ray_cluster import SKU, RayCluster

from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.resources.backends.ray_client import RayClient
from trainworthy.resources.backends.ray_jobs import ON_NODE, id_prefix
from trainworthy.resources.backends.travel.road import Road

ROOT = Path(__file__).parents[2]


class Watched:
    """A watcher that does something at each look, and remembers what it waited."""

    def __init__(self, look: Callable[[], object] = lambda: None) -> None:
        self._look, self.seconds = look, []

    def begin(self) -> None: ...

    def look(self) -> None:
        self._look()

    def waited(self, seconds: float) -> None:
        self.seconds.append(seconds)


def workers_of(job: TrainJob) -> list[psutil.Process]:
    """Processes of any kind that work on the job."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if job.out in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def statuses(cluster: RayCluster, job: TrainJob, road: Road | None = None) -> list[str]:
    """What Ray says of each start of the job, once its supervisors have noticed the ends."""
    until = time.monotonic() + 10
    while True:
        found = [one.status for one in RayClient(cluster.address).jobs(id_prefix(job, road))]
        if "RUNNING" not in found or time.monotonic() > until:
            return found
        time.sleep(0.2)


def at_step(job: TrainJob, step: int, do: Callable[[], object]) -> Watched:
    """A watcher that does it once, as soon as a checkpoint of that step is there."""
    done = []

    def look() -> None:
        if not done and reached_step(Path(job.out)) >= step:
            done.append(step)
            do()

    return Watched(look)


def processes_of(job: TrainJob, module: str) -> list[psutil.Process]:
    """Those of a module of ours that work on the job."""
    found = []
    for one in workers_of(job):
        with contextlib.suppress(psutil.Error):
            if one.cmdline()[1:3] == ["-m", module]:
                found.append(one)
    return found


def node_of(job: TrainJob, number: int) -> str:
    """The name of Ray's node on which that of the job is."""
    (one,) = [one for one in processes_of(job, ON_NODE) if f"--number {number} " in f"{' '.join(one.cmdline())} "]
    return one.environ()["TRAINWORTHY_TEST_NODE"]


def held(cluster: RayCluster) -> list[str]:
    """The states of placement groups that Ray has not removed."""
    from ray.util.state import list_placement_groups  # pyright: ignore[reportMissingImports]

    states = [str(vars(group)["state"]) for group in list_placement_groups(address=cluster.address)]
    return [state for state in states if state != "REMOVED"]


def is_left(cluster: RayCluster, job: TrainJob) -> list[object]:
    """What is left of it: processes, jobs that run, groups that are held or wanted."""
    until = time.monotonic() + 20
    while True:
        running = [one.id for one in RayClient(cluster.address).jobs(id_prefix(job)) if not one.over]
        left = [*workers_of(job), *running, *held(cluster)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


PARENT = """
import pathlib, sys
from trainworthy.lifecycle.protocol.jobs import JobFile
from trainworthy.resources.backends.ray import RayBackend
from trainworthy.resources.backends.ray_jobs import Node
from trainworthy.resources.worker_process import run_worker
job, nodes = JobFile.model_validate_json(pathlib.Path(sys.argv[1]).read_text()).job, int(sys.argv[4])
run_worker(job, backend=RayBackend(sys.argv[2], Node(cpus=1, resources={sys.argv[3]: 1}), 2**30, nodes=nodes))
"""


def begun_by_a_launcher_that_is_killed(cluster: RayCluster, job: TrainJob, folder: Path, nodes: int = 1) -> None:
    """Start the job from another process, and kill that one once there is a checkpoint of the fifth step."""
    (folder / "given.json").write_text(JobFile(job=job).model_dump_json())
    given = [str(folder / "given.json"), cluster.address, SKU, str(nodes)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *given], env=environment, cwd=ROOT)
    try:
        until = time.monotonic() + 120
        while reached_step(Path(job.out)) < 5:
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        parent.kill()
        parent.wait()
