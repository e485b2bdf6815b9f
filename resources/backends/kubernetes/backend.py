"""Runs each worker as a Job of a cluster: the backend of compute.launcher kubernetes, and how it is configured.

A Job has one pod; that of a training over several nodes (compute.nodes) has one for each.
"""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends.backend import LAUNCH_LOCK, Ended, Start, Watcher
from trainworthy.resources.backends.kubernetes.api import connect
from trainworthy.resources.backends.kubernetes.cluster import FILE, HOW_TO, Cluster, load_cluster
from trainworthy.resources.backends.kubernetes.manifest import (
    PodRequest,
    job_manifest,
    memory_bytes,
    refuse_outside,
)
from trainworthy.resources.backends.kubernetes.patience import Time
from trainworthy.resources.backends.kubernetes.submitted import Submitted
from trainworthy.resources.backends.travel.journey import Journey
from trainworthy.resources.backends.travel.named import all_of, files_of
from trainworthy.resources.backends.travel.road import Road, road_of
from trainworthy.resources.settings import Settings, own_python_path, resolved_variables

CLOCK = Time()
# Below the job's folder: a folder for each start, with its signs of life and how it ended.
STARTS = "kubernetes"


class KubernetesBackend:
    """Pods of a cluster, which see the job's folder under the same path.

    `variables` are settings for the worker, `python_path` is where pods find this Trainworthy, "" where their image has
    one. With a `road` they share no volume with this machine: their image has one, and files come and go by a bucket.
    If this process is killed, the worker ends within a minute or so, with its checkpoint (on_node.py); the next
    start of an equal job removes what is left of it first.
    """

    name = "kubernetes"
    # The worker in the pod takes its own.
    lock = LAUNCH_LOCK

    def __init__(
        self, request: PodRequest, variables: Mapping[str, str], python_path: str = "", clock: Time = CLOCK,
        road: Road | None = None,
    ) -> None:  # fmt: skip
        self._request, self._variables, self._time, self._road = request, variables, clock, road
        self._python_path = python_path if road is None else ""

    @property
    def memory_bytes(self) -> int:
        """The pod's limit."""
        return memory_bytes(self._request.machine)

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        """As Backend.run. Raises SettingsError, or BackendError in the cluster's words."""
        request, cluster, named = self._request, self._request.cluster, files_of(start.job)
        if self._road is not None:
            request = replace(request, bucket=self._road.bucket, launcher=self._road.launcher)
            named = all_of(start.job)
        ours = {"the Trainworthy that runs here": self._python_path} if self._python_path else {}
        refuse_outside(named | ours, cluster)
        folder = Path(start.job.out) / STARTS / uuid.uuid4().hex[:8]
        manifest = job_manifest(start, folder, request, self._variables, self._python_path, time.time())
        submitted = functools.partial(
            Submitted, manifest=manifest, folder=folder, cluster=cluster, start=start, watcher=watcher, tell=tell,
            clock=self._time,
        )  # fmt: skip
        with contextlib.closing(connect(cluster.namespace, cluster.context)) as api:
            if self._road is None:
                return submitted(api).run()
            journey = Journey(self._road, manifest["metadata"]["name"], start, folder, tell)
            with journey.under_way(named):
                return submitted(api, journey=journey).run()


def kubernetes_backend(compute: ComputeSpec, settings: Settings) -> KubernetesBackend:
    """The cluster of the project's kubernetes.yaml, with a pod of the SKU.

    Raises SettingsError if the file cannot be used or has too few GPUs of the SKU, or if there is neither a claim nor a
    bucket; PriceError for an unknown SKU.
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
        PodRequest(cluster, machine, gpus, compute.spot, compute.nodes), resolved_variables(settings),
        own_python_path(), road=None if cluster.volume.claim is not None else _road(compute, settings, cluster),
    )  # fmt: skip


def _road(compute: ComputeSpec, settings: Settings, cluster: Cluster) -> Road:
    """The bucket by which files come and go. Raises SettingsError if it cannot be."""
    claim = f"name a claim (ReadWriteMany) in volume of {FILE} ({HOW_TO}#without-a-common-volume)"
    return road_of(compute, settings, Path(cluster.volume.mount), f"volume of {FILE} names no claim", claim)
