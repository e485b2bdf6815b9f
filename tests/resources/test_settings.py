"""The folders that the environment names."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.resources.mlflow import TrackedRun
from trainworthy.resources.settings import (
    OWNERS,
    PRODUCT,
    claim_state,
    dagster_url,
    mlflow_url,
    read_settings,
    require_durable,
    resolved_variables,
)
from trainworthy.resources.shared_state import shared_state


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


@pytest.fixture
def claimed(elsewhere, monkeypatch) -> Callable[[str], Path]:
    """Claims the one state folder as a project of this name; gives the project's folder of use cases."""
    monkeypatch.setenv("TRAINWORTHY_VAR", str(elsewhere / "state"))

    def claim(name: str) -> Path:
        (folder := elsewhere / name / "use_cases").mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(elsewhere / name)
        claim_state(read_settings())
        return folder

    return claim


def test_state_folder_of_another_project_is_refused_until_it_may_be_shared(claimed, elsewhere):
    first = claimed("first")
    with pytest.raises(SettingsError, match="that of another project") as refused:
        claimed("second")
    assert refused.value.value == [str(first), str(elsewhere / "second" / "use_cases")]
    assert (elsewhere / "state" / OWNERS).read_text().splitlines()[1:] == [str(first)]
    subprocess.run(["sh", "-c", refused.value.fix.partition("share it: ")[2]], check=True)
    claimed("second")
    claimed("first")


def test_state_folder_goes_with_a_project_that_was_moved(claimed, elsewhere):
    claimed("before")
    (elsewhere / "before").rename(elsewhere / "after")
    after = claimed("after")
    assert (elsewhere / "state" / OWNERS).read_text().splitlines()[1:] == [str(after)]


def test_state_folder_that_was_copied_goes_with_the_project_beside_it(claimed, elsewhere, monkeypatch):
    first = claimed("first")
    shutil.copytree(elsewhere / "state", elsewhere / "copy" / "state")
    shutil.copytree(first.parent, elsewhere / "copy" / "first")
    monkeypatch.setenv("TRAINWORTHY_VAR", str(elsewhere / "copy" / "state"))
    monkeypatch.chdir(elsewhere / "copy" / "first")
    copied = elsewhere / "copy" / "first" / "use_cases"
    claim_state(read_settings())
    assert (elsewhere / "copy" / "state" / OWNERS).read_text().splitlines()[1:] == [str(copied)]


def test_state_folder_inside_of_a_project_is_its_own_in_a_copy_too(elsewhere, monkeypatch):
    (elsewhere / "first" / "use_cases").mkdir(parents=True)
    monkeypatch.chdir(elsewhere / "first")
    claim_state(read_settings())
    shutil.copytree(elsewhere / "first", elsewhere / "copy")
    monkeypatch.chdir(elsewhere / "copy")
    claim_state(read_settings())
    monkeypatch.setenv("TRAINWORTHY_VAR", "var")
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", f"{elsewhere}/first/use_cases:{elsewhere}/copy/use_cases")
    assert claim_state(read_settings()).root == elsewhere / "copy" / "var"


def test_folder_for_copies_of_checkpoints_is_none_unless_named(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINWORTHY_DURABLE", raising=False)
    assert read_settings().durable is None
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(tmp_path))
    assert require_durable(read_settings()) == str(tmp_path.resolve())
    monkeypatch.setenv("TRAINWORTHY_DURABLE", "s3://models/team")
    assert require_durable(read_settings()) == "s3://models/team"
    monkeypatch.setenv("TRAINWORTHY_DURABLE", "gs://models/team")
    with pytest.raises(SettingsError, match="no address of a bucket that Trainworthy writes to"):
        require_durable(read_settings())


def test_workers_elsewhere_are_told_the_server_of_a_bucket_and_no_secret(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWORTHY_DURABLE", "s3://models/team")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio.example:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    told = resolved_variables(read_settings())
    assert (told["TRAINWORTHY_DURABLE"], told["AWS_ENDPOINT_URL"]) == ("s3://models/team", "https://minio.example:9000")
    assert "secret" not in str(told)
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(tmp_path))
    assert "AWS_ENDPOINT_URL" not in resolved_variables(read_settings())


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


def test_shared_state_lies_in_the_state_folder_unless_a_place_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINWORTHY_STATE", raising=False)
    settings = read_settings()
    assert shared_state(settings).where == str(settings.var)
    monkeypatch.setenv("TRAINWORTHY_STATE", str(tmp_path / "gone"))
    with pytest.raises(SettingsError, match="the folder for shared state does not exist"):
        shared_state(read_settings())
    assert not (tmp_path / "gone").exists()
    monkeypatch.setenv("TRAINWORTHY_STATE", str(tmp_path))
    assert shared_state(read_settings()).where == str(tmp_path.resolve())
    assert resolved_variables(read_settings())["TRAINWORTHY_STATE"] == str(tmp_path.resolve())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio.example:9000")
    monkeypatch.setenv("TRAINWORTHY_STATE", "s3://models/team")
    assert shared_state(read_settings()).where == "s3://models/team"
    assert resolved_variables(read_settings())["AWS_ENDPOINT_URL"] == "https://minio.example:9000"
    monkeypatch.setenv("TRAINWORTHY_STATE", "gs://models/team")
    with pytest.raises(SettingsError, match="no address of a bucket that Trainworthy writes to"):
        shared_state(read_settings())
