"""Clusters of Ray whose nodes share nothing with their launcher but a bucket: its project is an empty disk on each.

`PlayedRay` answers as Ray's job server does, and runs a job's command in a mount namespace of its own; `real_ray` is a
cluster of Ray, with a namespace for each node.

As a program, `ray_apart.py JOB ROOT BUCKET ADDRESS` is a launcher that trains a job so, as a run's process: it gives a
sign every second, and a worker goes on without one for five.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubernetes_apart import in_empty
from ray_cluster import RayCluster, ray_cluster
from s3_servers import KEY, SECRET

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.resources.backends import ray_jobs, signs
from trainworthy.resources.backends.ray import RayBackend
from trainworthy.resources.backends.ray_client import RayAwayError
from trainworthy.resources.backends.ray_jobs import PENDING, STOPPED, JobSnapshot, Node
from trainworthy.resources.backends.travel.road import Road
from trainworthy.resources.worker_process import run_worker

_PLACE = "        return self.layers(torch.cat"
_WAITS = "        if self.training:\n            import time\n\n            time.sleep({seconds})\n"
OPENS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
# Of a node: no variable of the launcher reaches it.
NODE = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), **OPENS}


class PlayedRay:
    """In the place of RayClient: a node runs each job at once, unless `waits`; `away` is a head that is."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root, self._log, self.away, self.waits, self.entry = root, log, False, False, in_empty(root)
        self.jobs_asked: dict[str, Mapping[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped: set[str] = set()

    def submit(self, request: Mapping[str, Any]) -> None:
        self.jobs_asked[request["submission_id"]] = request
        if not self.waits:
            self.start(request["submission_id"])

    def start(self, id: str) -> subprocess.Popen[bytes]:
        """Run the job's command, as Ray does once it has a node."""
        request = self.jobs_asked[id]
        with self._log.open("ab") as log:
            self.processes[id] = subprocess.Popen(
                [*self.entry, "/bin/sh", "-c", request["entrypoint"]], env=NODE | request["runtime_env"]["env_vars"],
                stdout=log, stderr=log,
            )  # fmt: skip
        return self.processes[id]

    def job(self, id: str) -> JobSnapshot:
        self._answer()
        process = self.processes.get(id)
        code = process.poll() if process is not None else None
        if code is None:
            return JobSnapshot(id, PENDING if process is None else "RUNNING")
        if id in self._stopped:
            return JobSnapshot(id, STOPPED)
        message = f"Job entrypoint command failed with exit code {code}, last available logs: {self._log.read_text()}"
        return JobSnapshot(id, "FAILED" if code else "SUCCEEDED", code, message=message if code else "")

    def jobs(self, prefix: str) -> list[JobSnapshot]:
        return [self.job(id) for id in self.jobs_asked if id.startswith(prefix)]

    def stop(self, id: str) -> None:
        self._answer()
        if id in self.processes:
            self._stopped.add(id)
            self.processes[id].terminate()

    def end(self) -> None:
        """Kill what runs."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _answer(self) -> None:
        if self.away:
            raise RayAwayError("refused")


@contextlib.contextmanager
def real_ray(root: Path) -> Iterator[RayCluster]:
    """A head; each node that is added has an empty disk at `root`."""
    with ray_cluster(root, NODE) as cluster:
        yield cluster


def travelling_project(folder: Path) -> Path:
    """A launcher's: rows, and use cases by how long their updates take."""
    toy_jobs.build_splits(folder)
    toy_jobs.changed_use_case(folder / "fast")
    for name, seconds in {"toy": 0.1, "slow": 0.5}.items():
        toy_jobs.changed_use_case(folder / name, (_PLACE, _WAITS.format(seconds=seconds) + _PLACE))
    return folder


def training(project: Path, out: Path, epochs: int = 1, use_case: str = "toy") -> TrainJob:
    """A smoke training of the project, with a checkpoint every five steps."""
    spec = toy_jobs.spec_with(training={"batch_size": 32, "epochs": epochs, "checkpoint_every_steps": 5})
    return toy_jobs.train_job(project, out, "smoke", spec=spec, use_case=project / use_case, device="cpu")


def road(root: Path, bucket: str) -> Road:
    """Of the launcher whose project is `root`."""
    return Road(bucket, root / "var", root)


def backend(root: Path, bucket: str, address: str = "http://played", **resources: float) -> RayBackend:
    """Nodes with an empty disk, for the launcher whose project is `root`."""
    return RayBackend(address, Node(cpus=1, resources=resources), 2**30, road(root, bucket))


if __name__ == "__main__":
    signs.BEAT_SECONDS, ray_jobs.ABANDONED_SECONDS = 1.0, 5.0
    job = JobFile.model_validate_json(Path(sys.argv[1]).read_bytes()).job
    run_worker(job, backend=backend(Path(sys.argv[2]), *sys.argv[3:5]), grace_seconds=20.0, tell=print)
