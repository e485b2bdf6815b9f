"""The folders that the environment names."""

from pathlib import Path

import pytest

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.resources.mlflow import TrackedRun
from trainworthy.resources.settings import PRODUCT, dagster_url, mlflow_url, read_settings, require_durable


@pytest.fixture
def elsewhere(monkeypatch, tmp_path) -> Path:
    """A working directory outside of any project, and an environment that names none."""
    for name in ("TRAINWORTHY_PROJECT", "TRAINWORTHY_VAR", "TRAINWORTHY_USE_CASES", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path.resolve()


def test_project_is_the_nearest_folder_upwards_with_use_cases(elsewhere, monkeypatch):
    (below := elsewhere / "use_cases" / "shop" / "notes").mkdir(parents=True)
    (elsewhere / "prices.yaml").touch()
    monkeypatch.chdir(below)
    settings = read_settings()
    assert (settings.project, settings.var) == (elsewhere, elsewhere / "var")
    assert (settings.use_cases, settings.prices) == ((elsewhere / "use_cases",), elsewhere / "prices.yaml")


def test_project_is_the_named_folder_wherever_a_command_starts(elsewhere, monkeypatch):
    for name in ("here", "named"):
        (elsewhere / name / "use_cases").mkdir(parents=True)
    monkeypatch.chdir(elsewhere / "here")
    monkeypatch.setenv("TRAINWORTHY_PROJECT", "../named")
    assert read_settings().project == elsewhere / "named"


def test_project_outside_of_any_is_the_checkout(elsewhere):
    settings = read_settings()
    assert (settings.project, settings.prices) == (PRODUCT, PRODUCT / "prices.yaml")


def test_project_outside_of_any_is_the_working_directory_of_an_installed_copy(elsewhere, monkeypatch):
    (installed := elsewhere / "site-packages" / "trainworthy").mkdir(parents=True)
    monkeypatch.setattr("trainworthy.resources.settings.PRODUCT", installed)
    settings = read_settings()
    assert (settings.project, settings.use_cases) == (elsewhere, (elsewhere / "use_cases",))
    assert settings.prices == installed / "prices.yaml"


def test_project_outside_of_any_is_that_of_dagster_home(elsewhere, monkeypatch):
    (elsewhere / "team" / "use_cases").mkdir(parents=True)
    (elsewhere / "other").mkdir()
    monkeypatch.chdir(elsewhere / "other")
    monkeypatch.setenv("DAGSTER_HOME", str(elsewhere / "team"))
    assert read_settings().project == elsewhere / "team"


def test_project_that_is_no_folder_is_refused(elsewhere, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_PROJECT", "gone")
    with pytest.raises(SettingsError, match="TRAINWORTHY_PROJECT") as refused:
        read_settings()
    assert refused.value.value == "gone"


def test_folder_for_copies_of_checkpoints_is_none_unless_named(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINWORTHY_DURABLE", raising=False)
    assert read_settings().durable is None
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(tmp_path))
    assert require_durable(read_settings()) == tmp_path.resolve()


def test_folder_for_copies_of_checkpoints_that_is_not_there_is_refused_and_not_made(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(tmp_path / "unmounted"))
    with pytest.raises(SettingsError, match="does not exist"):
        require_durable(read_settings())
    assert not (tmp_path / "unmounted").exists()


@pytest.mark.parametrize(
    ("named", "server", "found"),
    [
        ("", "", "http://127.0.0.1:5000"),
        ("https://ml.example.org/ui/", "", "https://ml.example.org/ui"),
        ("", "https://a:secret@ml.example.org:8443/base", "https://ml.example.org:8443/base"),
        ("https://ml.example.org", "http://10.0.0.1:5000", "https://ml.example.org"),
        ("", "sqlite:///somewhere.db", "http://127.0.0.1:5000"),
    ],
)
def test_links_lead_where_people_open_mlflow(monkeypatch, named, server, found):
    monkeypatch.setenv("TRAINWORTHY_MLFLOW_URL", named)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    assert mlflow_url() == found
    assert TrackedRun("r", "1").url == f"{found}/#/experiments/1/runs/r"


@pytest.mark.parametrize(("named", "found"), [("", "http://127.0.0.1:3000"), ("http://host:3001/", "http://host:3001")])
def test_links_lead_where_people_open_dagster(monkeypatch, named, found):
    monkeypatch.setenv("TRAINWORTHY_DAGSTER_URL", named)
    assert dagster_url() == found
