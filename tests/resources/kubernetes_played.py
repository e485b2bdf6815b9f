"""A worker of a scripted cluster, whose launcher runs here by a clock of its own while a test says what happens."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes_api import NAMESPACE, Kube

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.jobs import AnyJob, VerifyJob
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.resources.backends.backend import Ended, Start
from trainworthy.resources.backends.kubernetes.backend import KubernetesBackend
from trainworthy.resources.backends.kubernetes.cluster import Cluster, Machine, Volume
from trainworthy.resources.backends.kubernetes.manifest import PodRequest, job_name
from trainworthy.resources.backends.kubernetes.patience import Time
from trainworthy.resources.worker_process import Nobody

MACHINE = Machine(cpu=1, memory_gb=4)


class Follows(Nobody):
    """Does something, once, when the launcher knows of a checkpoint in the job's folder `out`."""

    def __init__(self, out: Path, then: Callable[[], None]) -> None:
        self.out, self.then = out, [then]

    def look(self) -> None:
        if self.then and reached_step(self.out):
            self.then.pop()()


class Clock:
    """Seconds that pass only where somebody waits by them, or a test lets them."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        time.sleep(0.002)


class Played:
    """One worker of a scripted cluster: `look` is called when its launcher looks, with how often it has before.

    Of several `nodes` it is a training with a pod for each.
    """

    def __init__(self, kube: Kube, folder: Path, clock: Clock, nodes: int = 1) -> None:
        self.nodes = nodes
        self.kube, self.folder, self.clock = kube, folder, clock
        self.lines: list[str] = []
        self.waits: list[float] = []
        self.looks = 0
        # A function of how often it looked, or what happens at which look.
        self.look_does: Any = {}
        self.theirs: list[str] = []
        self.cluster = Cluster(
            namespace=NAMESPACE, image="worker:1", volume=Volume(claim="project", mount=str(folder)), user=1000,
            group=1000, skus={"small": MACHINE},
        )  # fmt: skip
        self.job: AnyJob = VerifyJob(
            use_case_folder=str(folder / "toy_1_"),
            out=str(folder / "out"),
            device="cpu",
            artifact="a",
            artifact_sha256="s",
        )
        if nodes > 1:
            use_case = folder / "toy_1_"
            self.job = toy_jobs.train_job(folder, folder / "out", use_case=use_case, device="cpu", processes=nodes)
        self.output = folder / "output"
        self.output.touch()
        Path(self.job.out).mkdir()

    @property
    def name(self) -> str:
        return job_name(self.job, self.cluster)

    @property
    def pod(self) -> str:
        return self.kube.pod_of(self.name)

    def begin(self) -> None: ...

    def look(self) -> None:
        self.looks += 1
        if isinstance(self.look_does, dict):
            self.look_does.get(self.looks, lambda: None)()
        else:
            self.look_does(self.looks)

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def run(self) -> Ended:
        backend = KubernetesBackend(
            PodRequest(self.cluster, MACHINE, 0, spot=False, nodes=self.nodes),
            {},
            clock=Time(self.clock.now, self.clock.sleep),
        )
        with self.output.open("ab") as file:
            descriptors = (file.fileno(), file.fileno())
            path = Path(self.job.out) / "job.json"
            start = Start(self.job, path, 0.0, {}, descriptors, grace_seconds=1.0, fresh=False, lock=-1)
            return backend.run(start, self, self.lines.append)

    def told(self, words: str) -> list[str]:
        return [line for line in self.lines if words in line]

    def left(self) -> list[str]:
        """What is left of it in the cluster."""
        return [*self.kube.jobs, *self.kube.pods]


def ends_with(code: int, **told: Any):
    """A container that runs and ends so."""

    def play(kube: Kube, pod: str) -> None:
        kube.runs(pod)
        kube.ends(pod, code, **told)

    return play


def runs(kube: Kube, pod: str) -> None:
    kube.runs(pod)
