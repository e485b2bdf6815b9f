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
