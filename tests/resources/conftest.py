"""One published project a session; each test has a copy, since a build takes two seconds."""

import shutil

import pytest
from trips_project import Trips


@pytest.fixture
def unpublished(tmp_path, monkeypatch):
    trips = Trips(tmp_path)
    monkeypatch.setenv("TRIPS_BUILDS", str(trips.builds))
    trips.create()
    return trips


@pytest.fixture(scope="session")
def published_template(tmp_path_factory):
    """A project with v3 published; a build takes two seconds, a copy of one almost nothing."""
    trips = Trips(tmp_path_factory.mktemp("template"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIPS_BUILDS", str(trips.builds))
        trips.create()
        trips.publish("v3", 3)
    trips.commit()
    return trips.project.parent


@pytest.fixture
def trips(tmp_path, monkeypatch, published_template):
    shutil.copytree(published_template, tmp_path, dirs_exist_ok=True)
    trips = Trips(tmp_path)
    monkeypatch.setenv("TRIPS_BUILDS", str(trips.builds))
    return trips


@pytest.fixture
def kube(tmp_path, monkeypatch):
    """A scripted cluster, which the kubeconfig names."""
    from kubernetes_api import kube_server

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with kube_server(tmp_path) as kube:
        yield kube


@pytest.fixture
def played(kube, tmp_path):
    """A worker on it, by a clock of its own."""
    from kubernetes_played import Clock, Played

    return Played(kube, tmp_path, Clock())
