"""A scripted cluster whose pods share nothing with their launcher but a bucket: its project is an empty disk in them.

As a program, `kubernetes_apart.py JOB ROOT BUCKET` is a launcher that trains a job so, as a run's process: it gives a
sign every second, and a pod goes on without one for five.

`apart` runs a container's command in a mount namespace: an empty tmpfs lies there where the launcher has its project.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kubernetes_api import NAMESPACE, Kube, started
from s3_servers import KEY, SECRET

from trainworthy.lifecycle.protocol.jobs import JobFile
from trainworthy.resources.backends import signs
from trainworthy.resources.backends.kubernetes import manifest
from trainworthy.resources.backends.kubernetes.backend import KubernetesBackend
from trainworthy.resources.backends.kubernetes.cluster import Cluster, Machine, Volume
from trainworthy.resources.backends.kubernetes.manifest import PodRequest
from trainworthy.resources.backends.travel.road import Road
from trainworthy.resources.worker_process import run_worker

_EMPTY = 'mount -t tmpfs none "$1" && cd "$1" && shift && exec "$@"'


def _no_namespace() -> str:
    """Why no mount namespace can be had here; "" if one can."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip() if tried.returncode else ""


needs_namespace = pytest.mark.skipif(bool(why := _no_namespace()), reason=f"no mount namespace here: {why}")


def in_empty(root: Path) -> tuple[str, ...]:
    """What a command is put behind to run where an empty disk lies at `root`."""
    return ("unshare", "-m", "sh", "-c", _EMPTY, "sh", str(root))


def apart(root: Path, secret: Mapping[str, str] | None = None) -> Callable[[Kube, str], object]:
    """What a node does with a pod: its disk is empty at `root`, and its Secret's variables are those that open moto."""
    opens = secret if secret is not None else {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def play(kube: Kube, pod: str) -> None:
        spec = kube.pods[pod]["spec"]
        assert {"name": "project", "emptyDir": {}} in spec["volumes"]
        spec["containers"][0]["env"] += [{"name": name, "value": value} for name, value in opens.items()]
        started(kube, pod, in_empty(root))

    return play


def backend(root: Path, bucket: str, queue: str | None = None) -> KubernetesBackend:
    """Pods that have a core and an empty disk, for the launcher whose project is `root`."""
    machine = Machine(cpu=1, memory_gb=4)
    cluster = Cluster(
        namespace=NAMESPACE, image="worker:1", volume=Volume(mount=str(root)), user=1000, group=1000, secret="bucket",
        queue=queue, skus={"small": machine},
    )  # fmt: skip
    variables = {name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION") if name in os.environ}
    return KubernetesBackend(
        PodRequest(cluster, machine, 0, spot=False), variables, road=Road(bucket, root / "var", root)
    )  # fmt: skip


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    signs.BEAT_SECONDS, manifest.ABANDONED_SECONDS = 1.0, 5.0
    job = JobFile.model_validate_json(Path(sys.argv[1]).read_bytes()).job
    run_worker(job, backend=backend(Path(sys.argv[2]), sys.argv[3]), grace_seconds=20.0, tell=print)
