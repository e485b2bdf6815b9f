"""The folders that the environment names."""

import pytest

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.resources.mlflow import TrackedRun
from trainworthy.resources.settings import dagster_url, mlflow_url, read_settings, require_durable


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
