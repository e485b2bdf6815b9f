"""deploy/kubernetes, deploy/kueue and deploy/helm: valid where a schema says so, and about the same things."""

import ast
import re
import sys
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.protocol.jobs import VerifyJob
from trainworthy.resources.backends.backend import Start
from trainworthy.resources.backends.kubernetes.cluster import load_cluster
from trainworthy.resources.backends.kubernetes.manifest import PodRequest, job_manifest

sys.path.insert(0, str(Path(__file__).parent))
from dockerfile import instructions

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TEAM = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "team.yaml").read_text()))
QUEUES = list(yaml.safe_load_all((DEPLOY / "kueue" / "queues.yaml").read_text()))
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
CLUSTER = load_cluster(DEPLOY / "kubernetes" / "kubernetes.yaml")
PRICES = load_prices(ROOT / "prices.yaml")
(USERS,) = (one for one in VALUES["dagster-user-deployments"]["deployments"])
UNITS = {"Gi": 2**30, "Mi": 2**20, "m": Decimal("0.001"), "": 1}


def named(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def amount(text: Any) -> Decimal:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    assert found, text
    return Decimal(found[1]) * UNITS[found[2]]


def manifest(sku: str, *, spot: bool = False) -> dict[str, Any]:
    """The Job of a worker by this kubernetes.yaml."""
    job = VerifyJob(use_case_folder="/srv/trainworthy/u", out="/srv/trainworthy/var/o", device="cpu", artifact="a",
                    artifact_sha256="s")  # fmt: skip
    start = Start(
        job=job, path=Path(job.out) / "job.json", queued=0.0, environment={}, output=(1, 2), grace_seconds=10.0,
        fresh=False, lock=-1,
    )  # fmt: skip
    asked = PodRequest(CLUSTER, CLUSTER.machine(sku), PRICES.sku(sku).gpus, spot)
    return job_manifest(start, Path(job.out) / "kubernetes" / "1", asked, {}, "", 0.0)


# The cluster's own kinds


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
def test_objects_of_a_team_are_valid_by_the_strict_schema(version):
    assert {one["kind"] for one in TEAM} == {
        "Namespace", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "PersistentVolumeClaim"
    }  # fmt: skip
    for one in TEAM:
        kubernetes_validate.validate(one, version, strict=True)


def test_role_has_exactly_what_the_launcher_asks_of_the_api():
    tree = ast.parse((ROOT / "resources" / "backends" / "kubernetes" / "api.py").read_text())
    # Verb and resource, the first two values of each request.
    calls = [
        [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("_ask", "_json")
    ]
    asked = {(call[1], call[0]) for call in calls if len(call) == 2}
    assert {resource for resource, _ in asked} == {"jobs", "pods", "pods/log", "workloads"}
    (role,) = named(TEAM, "Role").values()
    groups = {"jobs": "batch", "workloads": "kueue.x-k8s.io"}
    allowed = set()
    for rule in role["rules"]:
        for resource in rule["resources"]:
            assert rule["apiGroups"] == [groups.get(resource, "")]
            allowed |= {(resource, verb) for verb in rule["verbs"]}
    assert allowed == asked


def test_page_of_kubernetes_has_the_same_rights():
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Role\n" in text)
    (there, *_) = (one for one in yaml.safe_load_all(block) if one["kind"] == "Role")
    (role,) = named(TEAM, "Role").values()
    as_sets = [
        [(one["apiGroups"], one["resources"], sorted(one["verbs"])) for one in r["rules"]] for r in (there, role)
    ]
    assert as_sets[0] == as_sets[1]


def test_binding_gives_it_to_dagsters_account_and_to_nobody_else():
    (binding,) = named(TEAM, "RoleBinding").values()
    assert binding["roleRef"]["name"] in named(TEAM, "Role")
    assert [one["name"] for one in binding["subjects"]] == [VALUES["global"]["serviceAccountName"]]
    assert CLUSTER.service_account not in [one["name"] for one in binding["subjects"]]
    assert set(named(TEAM, "ServiceAccount")) == {VALUES["global"]["serviceAccountName"], CLUSTER.service_account}
    assert named(TEAM, "ServiceAccount")[CLUSTER.service_account]["automountServiceAccountToken"] is False


def test_workers_are_reached_by_workers_alone():
    (policy,) = named(TEAM, "NetworkPolicy").values()
    (rule,) = policy["spec"]["ingress"]
    (source,) = rule["from"]
    labels = manifest("local-2cpu")["spec"]["template"]["metadata"]["labels"]
    # No namespaces, and no ports, of which ranks take any.
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert set(rule) == {"from"}
    assert set(source) == {"podSelector"}
    for selector in (policy["spec"]["podSelector"], source["podSelector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_all_of_a_team_is_in_its_namespace():
    (namespace,) = named(TEAM, "Namespace")
    inside = {one["metadata"]["namespace"] for one in TEAM if one["kind"] != "Namespace"}
    assert inside == {namespace} == {CLUSTER.namespace}


def test_volume_is_one_under_one_path_everywhere():
    (claim,) = named(TEAM, "PersistentVolumeClaim").values()
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert CLUSTER.volume.claim == claim["metadata"]["name"]
    for part in (USERS, VALUES["dagsterWebserver"], VALUES["dagsterDaemon"]):
        (volume,), (mount,) = part["volumes"], part["volumeMounts"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert (mount["name"], mount["mountPath"]) == (volume["name"], CLUSTER.volume.mount)
        env = {one["name"]: one["value"] for one in part["env"]}
        for key in ("TRAINWORTHY_PROJECT", "TRAINWORTHY_VAR"):
            assert Path(env[key]).is_relative_to(CLUSTER.volume.mount)
    last = [step for step in instructions(DEPLOY / "Dockerfile") if step.stage == 1]
    assert [step.value for step in last if step.name == "WORKDIR"] == [CLUSTER.volume.mount]
    assert [step.value for step in last if step.name == "USER"] == [f"{CLUSTER.user}:{CLUSTER.group}"]


def restricted(pod: dict[str, Any], container: dict[str, Any]) -> bool:
    """What the namespace's level asks of a pod that mounts no host's folder."""
    return (
        pod["runAsNonRoot"] is True
        and pod["runAsUser"] > 0
        and pod["seccompProfile"]["type"] == "RuntimeDefault"
        and container["allowPrivilegeEscalation"] is False
        and container["capabilities"]["drop"] == ["ALL"]
    )


def test_pods_are_what_the_namespace_lets_in():
    (namespace,) = named(TEAM, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    worker = manifest("ec2-l4")["spec"]["template"]["spec"]
    assert restricted(worker["securityContext"], worker["containers"][0]["securityContext"])
    run = VALUES["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    assert restricted(run["podSpecConfig"]["securityContext"], run["containerConfig"]["securityContext"])
    for part in (USERS, VALUES["dagsterWebserver"], VALUES["dagsterDaemon"]):
        assert restricted(part["podSecurityContext"], part["securityContext"])
        assert part["podSecurityContext"]["runAsUser"] == CLUSTER.user


# Kueue


def flavors_of(sku: str, *, spot: bool) -> list[str]:
    """Flavors that Kueue may give a worker: by labels that they have and it selects, and by their taints."""
    job = manifest(sku, spot=spot)
    pod = job["spec"]["template"]["spec"]
    selector, tolerations = pod.get("nodeSelector", {}), pod.get("tolerations", [])
    fit = []
    for name, one in named(QUEUES, "ResourceFlavor").items():
        labels, taints = one["spec"]["nodeLabels"], one["spec"].get("nodeTaints", [])
        selects = all(labels[key] == value for key, value in selector.items() if key in labels)
        knows = {"node.kubernetes.io/instance-type"} <= selector.keys() & labels.keys()
        if selects and knows and all(tolerated(taint, tolerations) for taint in taints):
            fit.append(name)
    return fit


def tolerated(taint: dict[str, str], tolerations: list[dict[str, str]]) -> bool:
    return any(
        one.get("key") in (None, taint["key"])
        and one.get("effect") in (None, taint["effect"])
        and (one["operator"] == "Exists" or one.get("value") == taint["value"])
        for one in tolerations
    )


@pytest.mark.parametrize(
    ("sku", "spot", "flavors"),
    [("ec2-l4", False, ["l4"]), ("ec2-l4", True, ["l4-spot"]), ("local-2cpu", False, ["cpu"])],
)
def test_each_sku_has_the_one_flavor_that_is_meant(sku, spot, flavors):
    assert flavors_of(sku, spot=spot) == flavors


def test_queue_and_priority_of_a_worker_are_there():
    labels = manifest("ec2-l4")["metadata"]["labels"]
    local = [one for one in QUEUES if one["kind"] == "LocalQueue"]
    assert (labels["kueue.x-k8s.io/queue-name"], CLUSTER.namespace) in [
        (one["metadata"]["name"], one["metadata"]["namespace"]) for one in local
    ]
    assert labels["kueue.x-k8s.io/priority-class"] in named(QUEUES, "WorkloadPriorityClass")
    for one in local:
        queue = named(QUEUES, "ClusterQueue")[one["spec"]["clusterQueue"]]
        # By the label that the namespace of that team has.
        assert queue["spec"]["namespaceSelector"]["matchLabels"] == {"trainworthy/team": one["metadata"]["namespace"]}
    (namespace,) = named(TEAM, "Namespace").values()
    assert namespace["metadata"]["labels"]["trainworthy/team"] == CLUSTER.namespace


def test_quotas_name_flavors_that_are_there_and_cover_all_of_their_group():
    queues = named(QUEUES, "ClusterQueue")
    assert len(queues) == 2
    assert {one["spec"]["cohortName"] for one in queues.values()} == {"trainings"}
    for one in queues.values():
        (group,) = one["spec"]["resourceGroups"]
        assert [flavor["name"] for flavor in group["flavors"]] == list(named(QUEUES, "ResourceFlavor"))
        for flavor in group["flavors"]:
            assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]
        assert CLUSTER.gpu_resource in group["coveredResources"]


def quotas(queue: str) -> dict[tuple[str, str], dict[str, Any]]:
    (group,) = named(QUEUES, "ClusterQueue")[queue]["spec"]["resourceGroups"]
    return {(flavor["name"], one["name"]): one for flavor in group["flavors"] for one in flavor["resources"]}


def test_nobody_may_borrow_more_than_the_other_has():
    for mine, theirs in (("team-a", "team-b"), ("team-b", "team-a")):
        for place, one in quotas(mine).items():
            if "borrowingLimit" in one:
                assert amount(one["borrowingLimit"]) <= amount(quotas(theirs)[place]["nominalQuota"]), (mine, place)
    spec = named(QUEUES, "ClusterQueue")["team-a"]["spec"]["preemption"]
    # Lent and taken back; a borrower takes nothing away.
    assert (spec["reclaimWithinCohort"], spec["borrowWithinCohort"]["policy"]) == ("Any", "Never")


@pytest.mark.parametrize("queue", ["team-a", "team-b"])
@pytest.mark.parametrize("sku", ["ec2-l4", "local-2cpu"])
def test_own_quota_of_each_team_has_room_for_a_worker(queue, sku):
    (flavor,) = flavors_of(sku, spot=False)
    wanted = manifest(sku)["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    for resource, value in wanted.items():
        assert amount(value) <= amount(quotas(queue)[flavor, resource]["nominalQuota"]), resource


def test_skus_are_those_of_the_price_table():
    for sku in CLUSTER.skus:
        assert PRICES.sku(sku).usd_per_hour >= 0


# Helm


def test_image_is_one_everywhere():
    images = [part["image"] for part in (USERS, VALUES["dagsterWebserver"], VALUES["dagsterDaemon"])]
    assert {f"{one['repository']}:{one['tag']}" for one in images} == {CLUSTER.image}
    assert CLUSTER.image.endswith(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-trainworthy"]["image"])


def test_values_load_what_the_project_loads():
    (location,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert USERS["dagsterApiGrpcArgs"] == ["-m", location["python_module"]["module_name"]]
    logs = VALUES["computeLogManager"]["config"]["customComputeLogManager"]
    declared = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    assert (logs["module"], logs["class"]) == (declared["compute_logs"]["module"], declared["compute_logs"]["class"])
    assert hasattr(import_module(logs["module"]), logs["class"])
    pools = declared["concurrency"]["pools"]
    assert VALUES["concurrency"]["pools"] == {
        "defaultLimit": pools["default_limit"], "granularity": pools["granularity"]
    }  # fmt: skip


def test_no_password_stands_in_the_values_and_the_driver_is_the_one_that_works():
    text = (DEPLOY / "helm" / "values.yaml").read_text()
    assert "postgresqlPassword" not in VALUES["postgresql"]
    assert VALUES["generatePostgresqlPasswordSecret"] is False
    assert not re.search(r"://[^/\s]*:[^/\s]*@(?!HOST)", text)
    assert VALUES["postgresql"]["postgresqlScheme"] == "postgresql+psycopg2"


def test_run_that_is_cancelled_has_longer_than_its_workers_grace():
    from trainworthy.resources.launcher import Launcher

    run = VALUES["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    assert run["podSpecConfig"]["terminationGracePeriodSeconds"] > 2 * Launcher().grace_seconds
    assert run["jobSpecConfig"]["backoffLimit"] == 0
    # A dead run is ended; none is started again, which would pay again.
    assert VALUES["dagsterDaemon"]["runMonitoring"]["enabled"] is True
    assert VALUES["dagsterDaemon"]["runRetries"]["enabled"] is False
