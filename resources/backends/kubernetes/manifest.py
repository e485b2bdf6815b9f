"""A worker's Job as the API takes it: pure, from what is to be started and what the cluster is like."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.identity import canonical_json, told_packages
from trainworthy.lifecycle.protocol.jobs import AnyJob, processes_of
from trainworthy.resources.backends.backend import ENVIRONMENT, Start
from trainworthy.resources.backends.kubernetes.cluster import FILE, HOW_TO, Cluster, Machine, Toleration
from trainworthy.resources.backends.meeting import ADDRESS
from trainworthy.resources.backends.travel.named import refuse_not_below
from trainworthy.resources.backends.travel.places import ARRIVAL, LAST_SECONDS, start_prefix

Json = dict[str, Any]
# Runs the worker in its pod, and ends it if nobody wants it any more.
ON_NODE = "trainworthy.resources.backends.on_node"
# A launcher that lives gives a sign about every ten seconds, and what is ended by mistake goes on from its checkpoint.
ABANDONED_SECONDS = 60.0
# The container that works; the pod has no other of ours.
CONTAINER = "worker"
# Label by which a worker's Job and pods are found, whoever made them.
WORKER_LABEL = "trainworthy/worker"
QUEUE_LABEL, QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
# A Job that nobody looks after any more is removed by the cluster so long after its end.
KEPT_SECONDS = 3600
MIB = 2**20


@dataclass(frozen=True)
class PodRequest:
    """What the use case and the tables ask of a pod: its machine with `gpus`, and whether it may be taken away.

    `nodes` are the pods of a training by several processes. `bucket` is that by which files come and go where the
    cluster's volume has no claim; `launcher` tells this launcher from others that use it.
    """

    cluster: Cluster
    machine: Machine
    gpus: int
    spot: bool
    nodes: int = 1
    bucket: str = ""
    launcher: str = ""

    def pods(self, job: AnyJob) -> int:
        """How many pods a job has."""
        return self.nodes if processes_of(job) > 1 else 1


def job_manifest(
    start: Start, folder: Path, request: PodRequest, variables: Mapping[str, str], python_path: str, submitted: float
) -> Json:  # fmt: skip
    """The Job, suspended where Kueue has to admit it.

    `folder` is where this start's signs are (on_node.py). `variables` are settings for the worker; `python_path` is
    where the pod finds this Trainworthy, "" where its image has one. `submitted` is the Unix time of now.
    """
    cluster, pods = request.cluster, request.pods(start.job)
    name = job_name(start.job, cluster, request.launcher)
    labels = {
        "app.kubernetes.io/name": "trainworthy",
        "app.kubernetes.io/managed-by": "trainworthy",
        "trainworthy/use-case": _label(Path(start.job.use_case_folder).name),
        "trainworthy/job": start.job.kind,
        WORKER_LABEL: name,
    }
    named = {QUEUE_LABEL: cluster.queue, QUEUE_PRIORITY_LABEL: cluster.queue_priority}
    queue = {label: name for label, name in named.items() if name is not None}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": labels | queue},
        "spec": {
            # Whether a training goes on, and how often, is decided outside (lifecycle/failure.py).
            "backoffLimit": 0,
            "parallelism": pods,
            "completions": pods,
            # Each pod knows its number. Kueue lets in all of a Job's pods or none.
            **({"completionMode": "Indexed"} if pods > 1 else {}),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]},
                    },
                ]
            },
            # For a Job whose launcher is gone, which alone knows when all pods ran and that of the run began.
            "activeDeadlineSeconds": cluster.queue_timeout_seconds + cluster.run_timeout_seconds,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "suspend": cluster.queue is not None,
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(start, folder, request, variables, python_path, submitted),
            },
        },
    }


def _pod(
    start: Start, folder: Path, request: PodRequest, variables: Mapping[str, str], python_path: str, submitted: float
) -> Json:  # fmt: skip
    cluster, machine, pods = request.cluster, request.machine, request.pods(start.job)
    name = job_name(start.job, cluster, request.launcher)
    tolerations = (*machine.tolerations, *(cluster.spot_tolerations if request.spot else ()))
    selector = machine.node_selector | (cluster.spot_node_selector if request.spot else {})
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(start, request),
        "serviceAccountName": cluster.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # Else the worker is process 1 of its container: signals that it does not handle would be lost, and nobody would
        # collect processes that others left behind.
        "shareProcessNamespace": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": cluster.user,
            "runAsGroup": cluster.group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"priorityClassName": cluster.priority_class} if cluster.priority_class is not None else {}),
        **({"nodeSelector": selector} if selector else {}),
        **({"tolerations": [_toleration(toleration) for toleration in tolerations]} if tolerations else {}),
        "volumes": [
            {
                "name": "project",
                **(
                    {"persistentVolumeClaim": {"claimName": cluster.volume.claim}}
                    if cluster.volume.claim is not None
                    else {"emptyDir": {}}
                ),
            },
            # Processes that load rows hand them over in shared memory, of which a container has 64 MiB. What lies there
            # counts as its memory.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            {"name": "temporary", "emptyDir": {}},
        ],
        "containers": [
            {
                "name": CONTAINER,
                "image": cluster.image,
                "imagePullPolicy": cluster.image_pull_policy,
                "command": [
                    "python", "-m", *_entry(name, folder, request), "--folder", str(folder), "--job", str(start.path),
                    "--queued", str(start.queued), "--submitted", str(submitted), "--grace", str(start.grace_seconds),
                    "--abandoned", str(ABANDONED_SECONDS), "--packages", canonical_json(told_packages()).decode(),
                    *(["--nodes-of-job", str(pods)] if pods > 1 else []),
                ],
                "workingDir": cluster.volume.mount,
                "env": [
                    {"name": name, "value": value}
                    for name, value in sorted(environment(start, request, variables, python_path).items())
                ]
                + ([{"name": ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}] if pods > 1 else []),
                **({"envFrom": [{"secretRef": {"name": cluster.secret}}]} if cluster.secret is not None else {}),
                "resources": _resources(request),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "privileged": False,
                },
                "terminationMessagePolicy": "File",
                "volumeMounts": [
                    {"name": "project", "mountPath": cluster.volume.mount},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                    {"name": "temporary", "mountPath": "/tmp"},
                ],
            }
        ],
    }  # fmt: skip


def _entry(name: str, folder: Path, request: PodRequest) -> list[str]:
    """What is run: on_node.py, or what has its files come and go."""
    if not request.bucket:
        return [ON_NODE]
    return [
        ARRIVAL, "--bucket", request.bucket, "--start", start_prefix(name, folder),
        "--root", request.cluster.volume.mount, "--abandoned", str(ABANDONED_SECONDS), "--",
    ]  # fmt: skip


def grace_seconds(start: Start, request: PodRequest) -> int:
    """From being asked to end to being killed: the worker's, and what its files then take to a bucket."""
    return max(1, math.ceil(start.grace_seconds + (LAST_SECONDS if request.bucket else 0.0)))


def job_name(job: AnyJob, cluster: Cluster, launcher: str = "") -> str:
    """A DNS label, the same for equal folders on equal volumes: by it a Job is found that a dead launcher left.

    Without a volume those of one `launcher` are equal.
    """
    digest = hashlib.sha256(f"{cluster.volume.claim or launcher} {job.out}".encode()).hexdigest()[:10]
    use_case = re.sub(r"[^a-z0-9]+", "-", Path(job.use_case_folder).name.lower()).strip("-")[:40].rstrip("-")
    return f"{use_case or 'worker'}-{job.kind}-{digest}"


def selector(name: str) -> str:
    """By which the pods of a Job of that name are found, whoever made it."""
    return f"{WORKER_LABEL}={name}"


def environment(
    start: Start, request: PodRequest, variables: Mapping[str, str], python_path: str
) -> dict[str, str]:  # fmt: skip
    """The worker's variables: of this process's environment, which may hold secrets, nothing else reaches the pod."""
    # As many threads as it has cores: torch would count the node's.
    threads = max(1, math.floor(request.machine.cpu) * request.pods(start.job) // processes_of(start.job))
    return {
        # The user's number has no entry, and so no home, in most images.
        "HOME": "/tmp",
        "USER": "trainworthy",
        "OMP_NUM_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",
        **({"PYTHONPATH": python_path} if python_path else {}),
        **ENVIRONMENT,
        **variables,
        **start.environment,
    }


def refuse_outside(named: Mapping[str, str], cluster: Cluster) -> None:
    """Raises SettingsError if files that the pod needs lie outside of volume.mount; `named` has each by what it is."""
    mount = cluster.volume.mount
    fix = f"move them below it, or correct volume.mount of {FILE}: pods see them by the same paths ({HOW_TO})"
    volume, sent = f"not on the volume that pods mount at {mount}", f"not below {mount}, which alone pods are sent"
    refuse_not_below(Path(mount), named, volume if cluster.volume.claim is not None else sent, fix)


def _resources(request: PodRequest) -> Json:
    """Limits are requests: neighbours take nothing of a measurement, and a queue counts what is used."""
    counted = {"cpu": f"{round(request.machine.cpu * 1000)}m", "memory": f"{memory_bytes(request.machine) // MIB}Mi"}
    gpus = {request.cluster.gpu_resource: str(request.gpus)} if request.gpus else {}
    return {"requests": counted | gpus, "limits": counted | gpus}


def memory_bytes(machine: Machine) -> int:
    """What the pod may use; a GB is 2**30 bytes, as in prices.yaml."""
    return int(machine.memory_gb * 2**30)


def _toleration(toleration: Toleration) -> Json:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _label(name: str) -> str:
    """As a label's value: use cases may end with _, which values may not."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:63].strip("_.-") or "worker"
