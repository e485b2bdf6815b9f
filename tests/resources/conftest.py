"""One published project a session; each test has a copy, since a build takes two seconds."""

import shutil

import pytest
from registry import register, used
from trips_project import Trips

from trainworthy.resources import attempts
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.settings import DATABASE, Settings, read_settings


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


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A state folder with a migrated database (about 6 s), whose name MLflow must encode in an address."""
    folder = tmp_path_factory.mktemp("mlflow") / "with a space"
    with pytest.MonkeyPatch.context() as patch:
        used(patch, folder)
        run = Tracking().run("toy", "11111111-0000", {"intent": "candidate"})
        register(Tracking(), run, folder, "a" * 64)
    return folder


@pytest.fixture
def state(template, tmp_path, monkeypatch):
    """A copy of the template, named by TRAINWORTHY_VAR."""
    return used(monkeypatch, shutil.copytree(template, tmp_path / "copied state"))


@pytest.fixture
def settings(tmp_path, monkeypatch) -> Settings:
    """A state folder of its own, with SQLite, in the environment."""
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.delenv(DATABASE, raising=False)
    (tmp_path / "state").mkdir()
    return read_settings()


@pytest.fixture
def hasty(monkeypatch) -> None:
    """Nobody waits for a database that stays away."""
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def bucket_server():
    from s3_servers import moto_server

    with moto_server() as address:
        yield address


@pytest.fixture
def travelled(bucket_server, tmp_path, monkeypatch, request):
    from travelled import alone

    return alone(bucket_server, tmp_path, monkeypatch, request)


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """The toy's rows, split."""
    import planted_training

    return planted_training.toy_jobs.build_splits(tmp_path_factory.mktemp("splits"))


@pytest.fixture
def one_thread(monkeypatch) -> None:
    """Sums over several threads differ in the last bits, and weights are compared."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
