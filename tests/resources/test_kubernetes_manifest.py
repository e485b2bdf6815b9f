"""kubernetes.yaml and the Job that is made of it: valid by the API's schema, and what a worker needs, no more."""

import builtins
import json
import re
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.code_identity import CodeOnDisk
from trainworthy.lifecycle.errors import PriceError, SettingsError
from trainworthy.lifecycle.identity import told_packages
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.protocol.jobs import VerifyJob
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.backends import on_node
from trainworthy.resources.backends.backend import TORCHRUN, Start
from trainworthy.resources.backends.choose import backend_of
from trainworthy.resources.backends.kubernetes.api import connect
from trainworthy.resources.backends.kubernetes.backend import KubernetesBackend
from trainworthy.resources.backends.kubernetes.cluster import Cluster, Machine, Volume, load_cluster
from trainworthy.resources.backends.kubernetes.manifest import (
    PodRequest,
    job_manifest,
    job_name,
    refuse_outside,
)
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.backends.meeting import ADDRESS, INDEX
from trainworthy.resources.backends.travel.named import files_of
from trainworthy.resources.settings import DATABASE, PROJECT, VAR
from trainworthy.resources.worker_process import Nobody

DOC = (toy_jobs.ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
# From the oldest minor version that has all that is asked for (podReplacementPolicy) to the client's.
VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
FOLDER = Path("/srv/tw/var/out/kubernetes/1")
YAML: dict[str, Any] = {
    "namespace": "ml", "image": "example.org/worker@sha256:1", "volume": {"claim": "project", "mount": "/srv/tw"},
    "user": 1001, "group": 1002, "service_account": "worker", "queue": "gpus", "priority_class": "batch",
    "queue_timeout_seconds": 600, "run_timeout_seconds": 7200,
    "spot_tolerations": [{"key": "spot", "operator": "Exists"}], "spot_node_selector": {"capacity": "spot"},
    "skus": {
        "ec2-l4": {
            "cpu": 3.5, "memory_gb": 14, "node_selector": {"gpu": "l4"},
            "tolerations": [{"key": "gpu", "value": "l4", "effect": "NoExecute", "toleration_seconds": 60}],
        },
        "small": {"cpu": 0.5, "memory_gb": 1.5},
    },
}  # fmt: skip


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_validate(YAML | changes)


def start_of(job: Any, **changes: Any) -> Start:
    given = {"queued": 2.5, "environment": {"DAGSTER_PIPES_CONTEXT": "p"}, "output": (1, 2), "grace_seconds": 12.2}
    return Start(job=job, path=Path(job.out) / "job.json", **(given | {"fresh": False, "lock": -1} | changes))


def verify_job(use_case: str = "flights", out: str = "/srv/tw/var/out") -> VerifyJob:
    return VerifyJob(use_case_folder=f"/srv/tw/{use_case}", out=out, device="cpu", artifact="a", artifact_sha256="s")


def manifest(
    sku: str = "ec2-l4", gpus: int = 1, *, spot: bool = False, job: Any = None, **changes: Any
) -> dict[str, Any]:
    found = cluster(**changes)
    asked = PodRequest(found, found.machine(sku), gpus, spot)
    variables = {"TRAINWORTHY_VAR": "/srv/tw/var"}
    return job_manifest(start_of(job or verify_job()), FOLDER, asked, variables, "/srv/tw/src", 1e9)


def written(folder: Path, values: Any) -> Path:
    path = folder / "kubernetes.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return path


def nodes_manifest(**changes: Any) -> dict[str, Any]:
    """Of a training by four processes on two nodes."""
    job = toy_jobs.train_job(Path("/srv/tw/in"), Path("/srv/tw/out"), processes=4)
    found = cluster(**changes)
    machine = found.machine("ec2-l4").model_copy(update={"cpu": 6.9})
    return job_manifest(start_of(job), FOLDER, PodRequest(found, machine, 2, spot=False, nodes=2), {}, "", 0.0)


@pytest.mark.parametrize("version", VERSIONS)
def test_job_of_several_nodes_is_valid_by_the_strict_schema_of_each_version(version):
    kubernetes_validate.validate(nodes_manifest(), version, strict=True)


def test_several_nodes_are_one_indexed_job_that_is_let_in_and_fails_as_a_whole():
    made, one = nodes_manifest(), manifest()
    spec = made["spec"]
    assert (spec["completionMode"], spec["parallelism"], spec["completions"]) == ("Indexed", 2, 2)
    assert "completionMode" not in one["spec"]
    same = ("backoffLimit", "podReplacementPolicy", "podFailurePolicy", "activeDeadlineSeconds", "suspend")
    assert {key: spec[key] for key in same} == {key: one["spec"][key] for key in same}
    # One workload of Kueue: of the Job, no part of which may be let in alone.
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert not any("kueue" in label for label in spec["template"]["metadata"]["labels"])
    assert "kueue.x-k8s.io/job-min-parallelism" not in made["metadata"].get("annotations", {})
    # None of them is tried again by itself.
    assert not {"backoffLimitPerIndex", "maxFailedIndexes"} & spec.keys()


def test_pod_of_several_has_what_a_node_has_and_learns_its_number_and_address():
    (container,) = nodes_manifest()["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["--nodes-of-job", "2"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    # Six whole cores for its two of the four processes.
    assert {"name": "OMP_NUM_THREADS", "value": "3"} in container["env"]
    assert {"name": ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in container["env"]
    # That of the cluster is added by itself, and no other of its name may be there.
    assert INDEX not in [one["name"] for one in container["env"]]


def test_what_is_no_training_by_several_has_one_pod_also_with_nodes():
    found = cluster()
    asked = PodRequest(found, found.machine("small"), 0, spot=False, nodes=2)
    made = job_manifest(start_of(verify_job()), FOLDER, asked, {}, "", 0.0)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert (made["spec"]["completions"], "completionMode" in made["spec"]) == (1, False)
    assert "--nodes-of-job" not in container["command"]
    assert ADDRESS not in [one["name"] for one in container["env"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"sku": "small", "gpus": 0, "queue": None, "priority_class": None}, {"spot": True}, {"secret": "bucket"}],
    ids=["gpu", "plain", "spot", "secret"],
)
def test_manifest_is_valid_by_the_strict_schema_of_each_version(version, changes):
    kubernetes_validate.validate(manifest(**changes), version, strict=True)


def test_schema_refuses_a_field_that_the_api_does_not_know():
    wrong = manifest()
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePulPolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_cluster_decides_nothing_about_who_goes_on():
    spec = manifest()["spec"]
    assert (spec["backoffLimit"], spec["parallelism"], spec["completions"]) == (0, 1, 1)
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["FailJob", "FailJob"]
    assert spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [0]


def test_waiting_takes_nothing_of_the_time_that_a_worker_may_run():
    spec = manifest()["spec"]
    # Of a pod it would count while that waits for the others, or for its image.
    assert "activeDeadlineSeconds" not in spec["template"]["spec"]
    assert spec["activeDeadlineSeconds"] == 7800
    assert spec["ttlSecondsAfterFinished"] > 0
    # The checkpoint's time, in whole seconds.
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 13


def test_secret_reaches_the_worker_by_its_name_alone():
    (container,) = manifest(secret="bucket")["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    (container,) = manifest()["spec"]["template"]["spec"]["containers"]
    assert "envFrom" not in container


def test_job_waits_for_kueue_where_a_queue_is_named_and_only_there():
    queued, plain = manifest(), manifest(queue=None, priority_class=None)
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert plain["spec"]["suspend"] is False
    assert "kueue.x-k8s.io/queue-name" not in plain["metadata"]["labels"]
    assert queued["spec"]["template"]["spec"]["priorityClassName"] == "batch"
    assert "priorityClassName" not in plain["spec"]["template"]["spec"]


def test_priority_in_the_queue_is_a_label_of_the_job_and_needs_a_queue():
    made = manifest(queue_priority="urgent")
    assert made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    # Only the Job is Kueue's: a pod with such a label would be a workload of its own.
    assert not any("kueue" in label for label in made["spec"]["template"]["metadata"]["labels"])
    assert "kueue.x-k8s.io/priority-class" not in manifest()["metadata"]["labels"]
    with pytest.raises(ValueError, match="name the queue"):
        cluster(queue=None, queue_priority="urgent")


def test_pod_has_no_rights_and_no_account():
    pod = manifest()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 1001, "runAsGroup": 1002, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "privileged": False,
    }  # fmt: skip


def test_pod_runs_the_worker_with_what_its_sku_has():
    pod = manifest()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == [
        "python", "-m", on_node.__name__, "--folder", str(FOLDER), "--job", "/srv/tw/var/out/job.json",
        "--queued", "2.5", "--submitted", "1000000000.0", "--grace", "12.2", "--abandoned", "60.0",
        "--packages", json.dumps(told_packages(), sort_keys=True, separators=(",", ":")),
    ]  # fmt: skip
    expected = {"cpu": "3500m", "memory": "14336Mi", "nvidia.com/gpu": "1"}
    assert container["resources"] == {"requests": expected, "limits": expected}
    assert pod["nodeSelector"] == {"gpu": "l4"}
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "l4", "effect": "NoExecute", "tolerationSeconds": 60}
    ]
    assert {"name": "project", "mountPath": "/srv/tw"} in container["volumeMounts"]
    assert {"name": "project", "persistentVolumeClaim": {"claimName": "project"}} in pod["volumes"]
    plain = manifest("small", 0)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert plain == {"cpu": "500m", "memory": "1536Mi"}


def test_spot_machine_is_asked_for_where_it_is_declared_and_only_there():
    pod = manifest(spot=True)["spec"]["template"]["spec"]
    assert {"key": "spot", "operator": "Exists"} in pod["tolerations"]
    assert pod["nodeSelector"] == {"gpu": "l4", "capacity": "spot"}
    assert "spot" not in json.dumps(manifest()["spec"]["template"]["spec"]["tolerations"])


def test_several_processes_are_one_pod_with_torchrun_and_shares_of_its_cores(tmp_path):
    job = toy_jobs.train_job(tmp_path, Path("/srv/tw/out"), processes=2)
    found = cluster()
    asked = PodRequest(found, found.machine("ec2-l4").model_copy(update={"cpu": 6.9}), 2, spot=False)
    assert start_of(job).module == TORCHRUN
    made = job_manifest(start_of(job), FOLDER, asked, {}, "", 0.0)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["command"][2] == on_node.__name__
    assert {"name": "OMP_NUM_THREADS", "value": "3"} in container["env"]
    assert made["spec"]["parallelism"] == 1


def test_pod_gets_pipes_and_settings_and_nothing_of_this_process(monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://user:secret@host/name")
    (container,) = manifest()["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env["DAGSTER_PIPES_CONTEXT"] == "p"
    assert env["TRAINWORTHY_VAR"] == "/srv/tw/var"
    assert env["PYTHONPATH"] == "/srv/tw/src"
    assert env["PYTHONFAULTHANDLER"] == "1"
    assert DATABASE not in env
    assert "secret" not in json.dumps(manifest())


@pytest.mark.parametrize("use_case", ["a", "flights_small", "x" * 41, "ends_with_", "Ünl"])
def test_name_is_a_dns_label_and_the_same_for_an_equal_folder(use_case):
    name = job_name(verify_job(use_case), cluster())
    # Pods of an Indexed Job are called by it and their number, also as a host: a label, too.
    assert len(f"{name}-9999") <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert name == job_name(verify_job(use_case), cluster(namespace="other"))
    assert name != job_name(verify_job(use_case, "/srv/tw/var/other"), cluster())
    # Equal paths of two projects that share a namespace.
    assert name != job_name(verify_job(use_case), cluster(volume={"claim": "theirs", "mount": "/srv/tw"}))
    labels = manifest(job=verify_job(use_case))["metadata"]["labels"]
    assert all(re.fullmatch(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", value) for value in labels.values())


def test_files_outside_of_the_volume_are_refused_all_at_once(tmp_path):
    (volume := tmp_path / "volume").mkdir()
    for name in ("training.parquet", "validation.parquet"):
        (tmp_path / name).touch()
    (volume / "calibration.parquet").touch()
    job = toy_jobs.train_job(
        tmp_path, volume / "out", use_case=volume, calibration_file=f"{volume}/calibration.parquet"
    )
    found = cluster(volume={"claim": "project", "mount": str(volume)})
    named = files_of(job)
    assert {"training_file", "validation_file", "calibration_file", "use_case_folder"} <= set(named)
    with pytest.raises(SettingsError, match=r"training_file: .*; validation_file: ") as caught:
        refuse_outside(named, found)
    assert "calibration_file" not in str(caught.value)
    refuse_outside({"out": f"{volume}/out"}, found)


def test_text_that_only_looks_like_a_path_is_none():
    odd = VerifyJob(
        use_case_folder="/\0", out="/" + "x" * 5000, device="cpu", artifact="/not/there", artifact_sha256="/"
    )
    assert files_of(odd) == {}


def test_worker_whose_files_pods_cannot_see_is_refused_before_the_cluster_is_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    found = cluster()
    backend = KubernetesBackend(PodRequest(found, found.machine("small"), 0, spot=False), {}, str(tmp_path))
    watcher = Nobody()
    with pytest.raises(SettingsError, match="the Trainworthy that runs here"):
        backend.run(start_of(verify_job()), watcher, print)


# kubernetes.yaml


def test_cluster_is_read_from_the_file(tmp_path):
    assert load_cluster(written(tmp_path, YAML)) == cluster()
    assert cluster().queue_timeout_seconds == 600


def test_file_that_is_missing_or_no_yaml_says_so(tmp_path):
    with pytest.raises(SettingsError, match=r"kubernetes\.yaml is missing") as caught:
        load_cluster(tmp_path / "kubernetes.yaml")
    assert "compute.launcher to local" in caught.value.fix
    with pytest.raises(SettingsError, match="cannot be read"):
        load_cluster(written(tmp_path, "namespace: ["))
    with pytest.raises(SettingsError, match="it holds no mapping of keys"):
        load_cluster(written(tmp_path, "- a\n"))


def test_all_problems_of_the_file_are_told_at_once(tmp_path):
    values = {**YAML, "namspace": "ml", "user": 0, "volume": {"claim": "Project", "mount": "srv"}, "queue": "Gpus!"}
    del values["namespace"]
    values["skus"] = {"small": {"cpu": 0, "memory_gb": 1, "gpu": 2}}
    with pytest.raises(SettingsError) as caught:
        load_cluster(written(tmp_path, values))
    told = caught.value.problem
    assert told.startswith("kubernetes.yaml has 7 problems:")
    for where in (
        "namspace: unknown key",
        "user",
        "volume.claim",
        "volume.mount",
        "queue",
    ):
        assert f"kubernetes.yaml: {where}" in told
    assert "did you mean 'namespace'" in told
    assert "did you mean 'gpus'" in told
    assert "use_case" not in told


@pytest.mark.parametrize("mount", ["/", "relative", "/srv/../etc", "/srv:rw"])
def test_mount_has_to_be_a_whole_path_below_the_root(mount):
    with pytest.raises(ValueError, match="absolute path below /"):
        cluster(volume={"claim": "project", "mount": mount})


def test_page_of_the_documentation_has_a_file_that_can_be_read():
    (text,) = re.findall(r"```yaml\n(# kubernetes\.yaml.*?)```", DOC, re.DOTALL)
    assert load_cluster_text(text).skus


def test_page_has_each_key_and_says_whether_it_is_required():
    table = dict(re.findall(r"^\| (`.*?) \| (required|optional) \|", DOC, re.MULTILINE))
    said = {key: needed == "required" for cell, needed in table.items() for key in re.findall(r"`([^`]+)`", cell)}
    parts = {"": Cluster, "volume.": Volume, "skus.….": Machine}
    fields = {
        f"{prefix}{name}": field.is_required()
        for prefix, part in parts.items()
        for name, field in part.model_fields.items()
        if f"{prefix}{name}" != "volume"
    }
    # Told beside the key that they belong to.
    aside = {"image_pull_policy", "gpu_resource"}
    assert said == {key: needed for key, needed in fields.items() if key not in aside}
    assert all(f"`{key}`" in DOC and not fields[key] for key in aside)


def load_cluster_text(text: str) -> Cluster:
    return Cluster.model_validate(yaml.safe_load(text))


# Which backend


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "use_cases").mkdir()
    (tmp_path / "prices.yaml").write_text(
        "dated: 2026-11-01\nskus:\n  ec2-l4: {usd_per_hour: 1, gpus: 2}\n  small: {usd_per_hour: 1}\n"
    )
    monkeypatch.setenv(PROJECT, str(tmp_path))
    monkeypatch.delenv(VAR, raising=False)
    return tmp_path


def test_launcher_kubernetes_needs_its_file_and_no_other_launcher_does(project):
    assert backend_of(None) is LOCAL
    assert backend_of(ComputeSpec(sku="small")) is LOCAL
    assert backend_of(ComputeSpec(sku="small", launcher="torchrun", processes=2)) is LOCAL
    with pytest.raises(SettingsError, match=r"kubernetes\.yaml is missing"):
        backend_of(ComputeSpec(sku="small", launcher="kubernetes"))


def test_pod_has_the_gpus_of_its_sku_unless_the_file_says_otherwise(project):
    written(project, YAML)
    found = backend_of(ComputeSpec(sku="ec2-l4", launcher="kubernetes", gpus=2, processes=2))
    assert isinstance(found, KubernetesBackend)
    assert found._request.gpus == 2
    assert found.memory_bytes == 14 * 2**30
    assert found._variables[PROJECT] == str(project)
    assert found._request.nodes == 1
    two = backend_of(ComputeSpec(sku="ec2-l4", launcher="kubernetes", gpus=2, processes=4, nodes=2))
    assert isinstance(two, KubernetesBackend)
    assert two._request.nodes == 2
    written(project, {**YAML, "skus": {"ec2-l4": {"cpu": 1, "memory_gb": 1, "gpus": 1}}})
    with pytest.raises(SettingsError, match=r"compute\.gpus is 2, and a pod of ec2-l4 has 1"):
        backend_of(ComputeSpec(sku="ec2-l4", launcher="kubernetes", gpus=2))


def test_sku_that_the_file_or_the_prices_do_not_know_is_refused(project):
    written(project, {**YAML, "skus": {"tiny": {"cpu": 1, "memory_gb": 1}, "ec2-l4": {"cpu": 1, "memory_gb": 1}}})
    with pytest.raises(SettingsError, match="what a pod of the SKU has") as caught:
        backend_of(ComputeSpec(sku="ec2-l5", launcher="kubernetes"))
    assert "did you mean 'ec2-l4'" in caught.value.fix
    with pytest.raises(PriceError):
        backend_of(ComputeSpec(sku="tiny", launcher="kubernetes"))


def test_client_that_is_not_installed_is_named_with_the_command(monkeypatch):
    imported = builtins.__import__

    def missing(name: str, *given: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "kubernetes":
            raise ModuleNotFoundError("No module named 'kubernetes'", name="kubernetes")
        return imported(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SettingsError) as caught:
        connect("ml", None)
    assert caught.value.fix == "pip install 'trainworthy[kubernetes]'"


def test_machine_that_knows_no_cluster_says_what_it_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="nothing says where the cluster is") as caught:
        connect("ml", None)
    assert str(tmp_path / "none") in caught.value.fix
    (tmp_path / "none").write_text("apiVersion: v1\nkind: Config\ncontexts: []\nclusters: []\nusers: []\n")
    with pytest.raises(SettingsError, match="nothing says where the cluster is") as caught:
        connect("ml", "other")
    assert caught.value.value == "other"


def test_launcher_is_no_part_of_what_a_step_is_known_by(tmp_path):
    use_case = load_use_case(toy_jobs.TOY)
    spec = toy_jobs.spec_with(compute={"launcher": "kubernetes"})
    moved = use_case.model_copy(update={"spec": spec})
    for step in STEPS:
        assert declared_sections(moved, step) == declared_sections(use_case, step)
    modules = CodeOnDisk(tmp_path).modules_of(toy_jobs.train_job(tmp_path, tmp_path))
    assert not [name for name in modules if "backends" in str(name)]
