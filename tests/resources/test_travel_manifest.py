"""A cluster whose volume names no claim: what that needs, and what its pods are asked to run."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter
from travelled import Travelled

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.code_identity import modules_around
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.protocol.jobs import AnyJob, DiagnoseJob
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends.backend import Start
from trainworthy.resources.backends.choose import backend_of, launcher_problems
from trainworthy.resources.backends.kubernetes.backend import KubernetesBackend
from trainworthy.resources.backends.kubernetes.cluster import Cluster, Machine, Volume
from trainworthy.resources.backends.kubernetes.manifest import (
    PodRequest,
    job_manifest,
    job_name,
    refuse_outside,
)
from trainworthy.resources.backends.travel.named import PATH_FIELDS, files_of

BUCKET = "s3://models/team"
COMPUTE = ComputeSpec(sku="small", launcher="kubernetes")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """Of a cluster without a claim."""
    (tmp_path / "use_cases").mkdir()
    (tmp_path / "prices.yaml").write_text("dated: 2026-11-01\nskus:\n  small: {usd_per_hour: 1}\n")
    values = {
        "namespace": "ml", "image": "worker:1", "volume": {"mount": str(tmp_path)}, "user": 1000, "group": 1000,
        "skus": {"small": {"cpu": 1, "memory_gb": 2}},
    }  # fmt: skip
    (tmp_path / "kubernetes.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setenv("TRAINWORTHY_PROJECT", str(tmp_path))
    for name in ("TRAINWORTHY_VAR", "TRAINWORTHY_STATE", "TRAINWORTHY_DURABLE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("state", [None, "folder"])
def test_volume_without_a_claim_needs_a_bucket_and_both_ways_out_are_told(project, monkeypatch, state):
    if state is not None:
        monkeypatch.setenv("TRAINWORTHY_STATE", str(project / state))
    with pytest.raises(SettingsError, match="names no claim, and TRAINWORTHY_STATE no bucket") as refused:
        backend_of(COMPUTE)
    assert "TRAINWORTHY_STATE=s3://BUCKET/PREFIX" in refused.value.fix
    assert "a claim (ReadWriteMany)" in refused.value.fix
    (problem,) = launcher_problems(COMPUTE)
    assert "names no claim" in str(problem)


def test_bucket_in_place_of_a_claim_is_enough_and_writes_nothing(project, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_STATE", BUCKET)
    found = backend_of(COMPUTE)
    assert isinstance(found, KubernetesBackend)
    assert found._road is not None
    assert found._road.bucket == BUCKET
    # The image's own Trainworthy is used.
    assert found._python_path == ""
    assert found._variables["TRAINWORTHY_STATE"] == BUCKET
    assert not (project / "var").exists()
    assert launcher_problems(COMPUTE) == []


def test_folder_for_copies_and_several_nodes_are_refused_without_a_claim(project, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_STATE", BUCKET)
    nodes = COMPUTE.model_copy(update={"processes": 2, "nodes": 2})
    with pytest.raises(SettingsError, match="several nodes needs a volume that all of them have"):
        backend_of(nodes)
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(project / "copies"))
    with pytest.raises(
        SettingsError, match="TRAINWORTHY_DURABLE is a folder, which workers there do not have"
    ) as refused:
        backend_of(COMPUTE)
    assert "unset it" in refused.value.fix
    monkeypatch.setenv("TRAINWORTHY_DURABLE", "s3://copies")
    assert isinstance(backend_of(COMPUTE), KubernetesBackend)


def request(tmp_path: Path, launcher: str, claim: str | None = None, bucket: str = BUCKET) -> PodRequest:
    machine = Machine(cpu=1, memory_gb=2)
    cluster = Cluster(
        namespace="ml", image="worker:1", volume=Volume(claim=claim, mount=str(tmp_path / "home")), user=1000,
        group=1000, secret="bucket", skus={"small": machine},
    )  # fmt: skip
    return PodRequest(cluster, machine, 0, spot=False, bucket=bucket, launcher=launcher)


def made(tmp_path: Path, request: PodRequest) -> dict[str, Any]:
    travelled = Travelled(tmp_path, BUCKET)
    start = Start(travelled.job, travelled.here / "job.json", 0.0, {}, (1, 2), grace_seconds=12.2, fresh=False, lock=-1)
    return job_manifest(start, travelled.here / "kubernetes/1234abcd", request, {}, "", 0.0)


@pytest.fixture
def opened(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def test_pod_has_an_empty_disk_where_the_project_is_and_opens_the_bucket_by_its_secret(tmp_path, opened):
    job = made(tmp_path, request(tmp_path, "a"))
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {"name": "project", "emptyDir": {}} in spec["volumes"]
    assert {"name": "project", "mountPath": str(tmp_path / "home")} in container["volumeMounts"]
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert "secret-key" not in json.dumps(spec)
    own, others = (command := container["command"])[: command.index("--")], command[command.index("--") + 1 :]
    assert own[:3] == ["python", "-m", "trainworthy.resources.backends.travel.arrival"]
    assert own[own.index("--start") + 1] == f"travel/{job['metadata']['name']}/1234abcd"
    assert others[:1] == ["--folder"]
    # What the worker writes has its time beyond the worker's own.
    assert spec["terminationGracePeriodSeconds"] == 43
    assert others[others.index("--grace") + 1] == "12.2"


def test_pod_with_a_claim_is_as_it_was(tmp_path, opened):
    spec = made(tmp_path, request(tmp_path, "", "project", bucket=""))["spec"]["template"]["spec"]
    assert {"name": "project", "persistentVolumeClaim": {"claimName": "project"}} in spec["volumes"]
    assert spec["containers"][0]["command"][2] == "trainworthy.resources.backends.on_node"
    assert spec["terminationGracePeriodSeconds"] == 13


@pytest.mark.parametrize(
    ("claim", "words"),
    [("project", "not on the volume that pods mount at"), (None, "which alone pods are sent: a: /b")],
)
def test_file_that_pods_will_not_have_is_told_by_what_they_have(tmp_path, claim, words):
    with pytest.raises(SettingsError, match=words):
        refuse_outside({"a": "/b"}, request(tmp_path, "", claim).cluster)


def test_jobs_of_two_launchers_of_one_bucket_have_two_names(tmp_path, opened):
    job, cluster = Travelled(tmp_path, BUCKET).job, request(tmp_path, "").cluster
    assert job_name(job, cluster, "a") == job_name(job, cluster, "a") != job_name(job, cluster, "b")


def test_paths_of_a_job_are_those_of_its_fields_whatever_a_hyperparameter_says(tmp_path):
    for name in ("kept", "training.parquet", "data_folders"):
        (tmp_path / name).mkdir()
    train = toy_jobs.train_job(
        tmp_path, tmp_path / "out", use_case=tmp_path, training_file=str(tmp_path / "training.parquet"),
        hyperparameters={"cache_dir": str(tmp_path), "data_folders": str(tmp_path), "words_file": str(tmp_path)},
        kept_features={"folder": str(tmp_path / "kept"), "split_sha256": "s"},
    )  # fmt: skip
    fields = {"use_case_folder", "training_file", "kept_features.folder"}
    assert set(files_of(train)) == fields
    diagnose = DiagnoseJob(
        use_case_folder=str(tmp_path), out=str(tmp_path / "o"), device="cpu", training=train, parts=(), most=1
    )
    assert set(files_of(diagnose)) == {"use_case_folder", *(f"training.{field}" for field in fields)}


def test_every_field_of_a_job_that_is_called_as_a_path_counts_as_one():
    schema = TypeAdapter(AnyJob).json_schema()["$defs"]
    names = {name for model in schema.values() for name in model.get("properties", {})}
    paths = re.compile(r"out|folder|path|artifact|incident|durable|.*_(files?|folders?|root)")
    # A column's name.
    named = {name for name in names if paths.fullmatch(name)} - {"label_file"}
    assert named == {field.rpartition(".")[2] for field in PATH_FIELDS}


def test_modules_around_a_use_case_are_those_that_it_imports(tmp_path):
    home = tmp_path / "home"
    for name, text in {
        "use_cases/__init__.py": "", "use_cases/words.py": "from use_cases.deep import more\n",
        "use_cases/deep/__init__.py": "", "use_cases/deep/more.py": "", "use_cases/unused.py": "",
        "use_cases/toy/model.py": "from use_cases import words\nfrom use_cases.words import x\n",
    }.items():  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    around = {path.relative_to(home).as_posix() for path in modules_around(home / "use_cases/toy")}
    assert {"use_cases/words.py", "use_cases/deep/more.py"} <= around
    assert "use_cases/unused.py" not in around
