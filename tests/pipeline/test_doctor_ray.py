"""trainworthy doctor on Ray: whether the cluster answers, asked at a server that speaks as Ray's dashboard does."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from doctor_checks import bad, only

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from ray_cluster import SKU, free_port, ray_cluster
from ray_dashboard import dashboard

from trainworthy.pipeline.doctor import clusters, examine, machine
from trainworthy.resources.settings import read_settings

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: make test-engines installs it")


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    for name in ("TRAINWORTHY_RAY_ADDRESS", "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def on_ray(place) -> None:
    """The use case, whose workers are jobs of Ray."""
    path = place / "project" / "use_cases" / "toy" / "use_case.yaml"
    path.write_text(path.read_text().replace("compute: {", "compute: {launcher: ray, "))


def evidence() -> str:
    (found,) = examine.examined(clusters.ray, read_settings())
    assert found.status in ("pass", "not_applicable"), found
    return found.evidence


def test_doctor_ray_is_not_asked_where_nobody_names_it(place):
    assert evidence().startswith("no use case has compute.launcher: ray")


def test_doctor_ray_without_an_address_fails_where_a_use_case_needs_it(on_ray):
    only(clusters.ray, "✗ ray: compute.launcher: ray needs the address", "by it train toy", "TRAINWORTHY_RAY_ADDRESS=")


def test_doctor_ray_that_is_not_installed_is_told_with_what_to_install(on_ray, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_RAY_ADDRESS", "http://127.0.0.1:9")
    # As Python marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    only(clusters.ray, "✗ ray: compute.launcher: ray needs Ray", "pip install 'trainworthy[ray]'")


@needs_ray
def test_doctor_ray_that_answers_tells_version_and_nodes(on_ray, monkeypatch):
    with dashboard(str(machine.installed("ray"))) as address:
        monkeypatch.setenv("TRAINWORTHY_RAY_ADDRESS", address)
        told = evidence()
    assert told.startswith(f"{address} answers: Ray ")
    assert told.endswith(f"nodes alive: 2, 1 with '{SKU}'; by it train toy")


@needs_ray
def test_doctor_ray_of_another_version_is_a_warning(on_ray, monkeypatch):
    with dashboard("2.99.1") as address:
        monkeypatch.setenv("TRAINWORTHY_RAY_ADDRESS", address)
        only(clusters.ray, "! ray:", "Ray 2.99.1 (here ", "pip install 'ray[default]==2.99.1'")


@needs_ray
def test_doctor_ray_behind_a_closed_port_fails_or_warns_if_no_use_case_needs_it(place, request, monkeypatch):
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("TRAINWORTHY_RAY_ADDRESS", address)
    only(clusters.ray, "! ray: Ray does not answer", address, "look whether Ray's head runs")
    request.getfixturevalue("on_ray")
    only(clusters.ray, "✗ ray: Ray does not answer", "no worker of it starts until then")


@needs_ray
@pytest.mark.parametrize("nodes", [None, "no table"])
def test_doctor_ray_that_is_silent_or_tells_no_nodes_is_not_waited_for(on_ray, monkeypatch, nodes):
    monkeypatch.setattr(clusters, "ANSWER_SECONDS", 1.0)
    with dashboard(str(machine.installed("ray")), nodes) as address:
        monkeypatch.setenv("TRAINWORTHY_RAY_ADDRESS", address)
        only(clusters.ray, "✗ ray: Ray does not answer", "no answer in 1 s" if nodes is None else "TypeError")


@pytest.mark.slow
@pytest.mark.engine
def test_doctor_ray_of_a_real_cluster_answers(on_ray, monkeypatch):
    with ray_cluster() as cluster:
        cluster.add("one")
        monkeypatch.setenv("TRAINWORTHY_RAY_ADDRESS", cluster.address)
        assert bad(clusters.ray) == []
        assert evidence().endswith(f"nodes alive: 2, 1 with '{SKU}'; by it train toy")
