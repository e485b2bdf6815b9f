"""A run whose workers are pods of a scripted cluster: Pipes, answers and records come over the shared folder."""

import json
import sys
from pathlib import Path

import pytest
from toy_project import new_toy

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from kubernetes_api import NAMESPACE, kube_server, started

from trainworthy.lifecycle.protocol.records import PreflightReport


@pytest.mark.slow
def test_run_of_pods_ends_as_one_of_processes_and_is_reused_by_the_launcher_local(tmp_path):
    toy = new_toy(tmp_path)
    path = toy.folder / "use_case.yaml"
    local = path.read_text()
    assert "compute: {" in local
    path.write_text(local.replace("compute: {", "compute: {launcher: kubernetes, "))
    # Both the project and the copy of Trainworthy that runs it lie below it.
    (toy.root / "kubernetes.yaml").write_text(
        json.dumps(
            {
                "namespace": NAMESPACE, "image": "worker:1", "user": 1000, "group": 1000,
                "volume": {"claim": "project", "mount": "/tmp"}, "skus": {"local-2cpu": {"cpu": 1, "memory_gb": 4}},
            }
        )
    )  # fmt: skip
    with kube_server(tmp_path, started) as kube:
        kube.watch_seconds = 0.5
        command = toy.command("preflight_toy")
        where = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "TRAINWORTHY_PROJECT": str(toy.root)}
        done = toy.finish(toy.start(command, **where))
        assert done.code == 0, done.out[-4000:]
        assert [job["metadata"]["labels"]["trainworthy/job"] for job in kube.manifests] == ["preflight"]
        assert [*kube.jobs, *kube.pods] == []
        report = toy.record(done.run_id, "preflight")
        assert isinstance(report, PreflightReport)
        # What a pod has found is no worse known than what a process of this machine has.
        path.write_text(local)
        again = toy.finish(toy.start(toy.command("preflight_toy"), **where))
        assert again.code == 0, again.out[-4000:]
        assert len(kube.manifests) == 1
        assert "reused" in again.out
