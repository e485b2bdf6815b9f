"""Runs each worker as a Job of a cluster: the backend of compute.launcher kubernetes, and how it is configured.

A Job has one pod; that of a training over several nodes (compute.nodes) has one for each.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends.backend import LAUNCH_LOCK, Ended, Start, Watcher
from trainworthy.resources.backends.kubernetes.api import connect
from trainworthy.resources.backends.kubernetes.cluster import FILE, load_cluster
from trainworthy.resources.backends.kubernetes.manifest import (
    PodRequest,
    files_of,
    job_manifest,
    memory_bytes,
    refuse_outside,
)
from trainworthy.resources.backends.kubernetes.patience import Time
from trainworthy.resources.backends.kubernetes.submitted import Submitted
from trainworthy.resources.settings import Settings, own_python_path, resolved_variables

CLOCK = Time()
# Below the job's folder: a folder for each start, with its signs of life and how it ended.
STARTS = "kubernetes"


class KubernetesBackend:
    """Pods of a cluster, which see the job's folder under the same path.

    `variables` are settings for the worker, `python_path` is where pods find this Trainworthy, "" where their image has
    one. If this process is killed, the worker ends within a minute or so, with its checkpoint (on_node.py); the next
    start of an equal job removes what is left of it first.
    """

    name = "kubernetes"
    # The worker in the pod takes its own.
    lock = LAUNCH_LOCK

    def __init__(
        self, request: PodRequest, variables: Mapping[str, str], python_path: str = "", clock: Time = CLOCK
    ) -> None:  # fmt: skip
        self._request, self._variables, self._python_path, self._time = request, variables, python_path, clock

    @property
    def memory_bytes(self) -> int:
        """The pod's limit."""
        return memory_bytes(self._request.machine)

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        """As Backend.run. Raises SettingsError, or BackendError in the cluster's words."""
        cluster = self._request.cluster
        ours = {"the Trainworthy that runs here": self._python_path} if self._python_path else {}
        refuse_outside(files_of(start.job) | ours, cluster)
        folder = Path(start.job.out) / STARTS / uuid.uuid4().hex[:8]
        manifest = job_manifest(start, folder, self._request, self._variables, self._python_path, time.time())
        with contextlib.closing(connect(cluster.namespace, cluster.context)) as api:
            return Submitted(api, manifest, folder, cluster, start, watcher, tell, self._time).run()


def kubernetes_backend(compute: ComputeSpec, settings: Settings) -> KubernetesBackend:
    """The cluster of the project's kubernetes.yaml, with a pod of the SKU.

    Raises SettingsError if the file cannot be used or has too few GPUs of the SKU, PriceError for an unknown SKU.
    """
    cluster = load_cluster(settings.project / FILE)
    machine, sku = cluster.machine(compute.sku), load_prices(settings.prices).sku(compute.sku)
    gpus = machine.gpus if machine.gpus is not None else sku.gpus
    if compute.gpus > gpus:
        fix = f"correct compute.gpus, or gpus of the SKU in {FILE} or prices.yaml"
        raise SettingsError(
            f"compute.gpus is {compute.gpus}, and a pod of {compute.sku} has {gpus}", value=compute.gpus, fix=fix
        )
    return KubernetesBackend(
        PodRequest(cluster, machine, gpus, compute.spot, compute.nodes), resolved_variables(settings), own_python_path()
    )  # fmt: skip
