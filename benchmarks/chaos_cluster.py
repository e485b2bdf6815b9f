"""The tests' scripted API server as a cluster: its pods' commands really run, as children of this process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from trainworthy.resources.backends.kubernetes.backend import KubernetesBackend
from trainworthy.resources.backends.kubernetes.cluster import Cluster, Machine, Volume
from trainworthy.resources.backends.kubernetes.manifest import PodRequest
from trainworthy.resources.settings import PRODUCT

sys.path.insert(0, str(PRODUCT / "tests" / "resources"))
from kubernetes_api import NAMESPACE, Kube, kube_server, started


@contextlib.contextmanager
def scripted_cluster(folder: Path) -> Iterator[Kube]:
    """A cluster that the environment names, whose volume is the folder, with this Trainworthy on it."""
    (folder / "src").symlink_to(PRODUCT / "src")
    with kube_server(folder, started) as kube:
        kube.watch_seconds = 0.3
        os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
        yield kube


def pods_of_ranks(folder: Path, ranks: int) -> KubernetesBackend:
    """A pod for each rank. What opens the bucket, which a Secret would hold, is in their manifest."""
    machine = Machine(cpu=1, memory_gb=4)
    cluster = Cluster(
        namespace=NAMESPACE, image="worker:1", volume=Volume(claim="project", mount=str(folder)), user=1000, group=1000,
        skus={"small": machine},
    )  # fmt: skip
    bucket = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return KubernetesBackend(PodRequest(cluster, machine, 0, spot=False, nodes=ranks), bucket, str(folder / "src"))
