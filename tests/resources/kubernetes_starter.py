"""Trains a job in pods of the cluster of KUBECONFIG, as a run's process: `kubernetes_starter.py JOB VOLUME NODES`.

Signs of life are given every second, and a pod goes on without one for five.
"""

import sys
from pathlib import Path

from kubernetes_api import NAMESPACE

from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.resources.backends import signs
from trainworthy.resources.backends.kubernetes import manifest
from trainworthy.resources.backends.kubernetes.backend import KubernetesBackend
from trainworthy.resources.backends.kubernetes.cluster import Cluster, Machine, Volume
from trainworthy.resources.backends.kubernetes.manifest import PodRequest
from trainworthy.resources.worker_process import run_worker


def backend(volume: Path, queue: str | None = None, nodes: int = 1) -> KubernetesBackend:
    """Pods that have a core, and this Trainworthy by the volume."""
    cluster = Cluster(
        namespace=NAMESPACE, image="worker:1", volume=Volume(claim="project", mount=str(volume)), user=1000, group=1000,
        queue=queue, skus={"small": (machine := Machine(cpu=1, memory_gb=4))},
    )  # fmt: skip
    return KubernetesBackend(PodRequest(cluster, machine, 0, spot=False, nodes=nodes), {}, str(volume / "src"))


if __name__ == "__main__":
    signs.BEAT_SECONDS, manifest.ABANDONED_SECONDS = 1.0, 5.0
    job = JobFile.model_validate_json(Path(sys.argv[1]).read_bytes()).job
    assert isinstance(job, TrainJob)
    run_worker(job, backend=backend(Path(sys.argv[2]), nodes=int(sys.argv[3])), grace_seconds=20.0, tell=print)
