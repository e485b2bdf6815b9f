"""A whole run whose workers are pods that share nothing with Dagster's machine but a bucket."""

import json
import sys
from pathlib import Path

import pytest
from test_shared_state import mlflow_server
from toy_project import FIRST, new_toy

from tests import s3_servers

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from kubernetes_apart import apart, needs_namespace
from kubernetes_api import NAMESPACE, kube_server

from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.storage.durable.bucket import Bucket


@needs_namespace
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_run_of_pods_without_a_common_volume_is_judged_and_reused_by_the_launcher_local(tmp_path, monkeypatch):
    toy = new_toy(tmp_path)
    path = toy.folder / "use_case.yaml"
    local = path.read_text()
    path.write_text(local.replace("compute: {", "compute: {launcher: kubernetes, "))
    (toy.root / "kubernetes.yaml").write_text(
        json.dumps(
            {
                "namespace": NAMESPACE, "image": "worker:1", "user": 1000, "group": 1000, "secret": "bucket",
                "volume": {"mount": str(tmp_path)}, "skus": {"local-2cpu": {"cpu": 1, "memory_gb": 4}},
            }
        )
    )  # fmt: skip
    asked: list[str] = []
    with (
        s3_servers.moto_server() as server,
        mlflow_server(tmp_path / "registry") as registry,
        kube_server(tmp_path, apart(tmp_path)) as kube,
        s3_servers.requests(monkeypatch, asked),
    ):
        kube.watch_seconds = 0.5
        place = f"{s3_servers.reached(monkeypatch, server)}/team"
        where = {
            "TRAINWORTHY_STATE": place, "MLFLOW_TRACKING_URI": registry, "TRAINWORTHY_PROJECT": str(toy.root),
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
        }  # fmt: skip
        done = toy.run(intent=FIRST, **where)
        assert done.code == 0, done.out[-6000:]
        kinds = [job["metadata"]["labels"]["trainworthy/job"] for job in kube.manifests]
        assert {"preflight", "train", "predict"} <= set(kinds)
        assert [*kube.jobs, *kube.pods] == []
        assert Bucket(place).names("travel") == []
        parts = ("travel", "files", "checkpoints", "records")
        counted = {part: sum(f"/team/{part}/" in request for request in asked) for part in parts}
        # As docs/how-to/kubernetes.md has it.
        print(f"{len(kinds)} workers: {sorted(kinds)}; {len(asked)} requests: {counted}")
        path.write_text(local)
        again = toy.run(intent=FIRST, **where)
        assert again.code == 0, again.out[-4000:]
        assert len(kube.manifests) == len(kinds)
        shown = toy.materialized(again.run_id)
        # A verdict also says which files were not committed, which use_case.yaml was one of.
        assert {step for step in STEPS if shown[step]["lineage/reused"] == "true"} >= set(STEPS[:-1])
