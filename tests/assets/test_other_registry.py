"""State that is shared without its registry, and a registry whose version is another model than the judged one."""

import pytest

from trainworthy.assets.champion import refuse_other_model
from trainworthy.lifecycle.errors import ChampionError, SettingsError
from trainworthy.resources.mlflow_model import RegisteredModel
from trainworthy.resources.workspace import Workspace


def registered(**tags: str) -> RegisteredModel:
    return RegisteredModel("toy", "1", "file:///models/1", tags)


@pytest.mark.parametrize(
    ("model", "judged"),
    [(registered(artifact_sha256="a"), "a"), (registered(artifact_sha256="a"), None), (registered(), "a")],
    ids=["equal", "record gone", "no tag"],
)
def test_version_that_was_judged_or_of_which_nothing_is_known_is_taken(model, judged):
    refuse_other_model(model, "toy", "1", judged)


@pytest.mark.parametrize(("model", "told"), [(registered(artifact_sha256="b"), "another model"), (None, "has no toy")])
def test_version_of_another_registry_is_refused_with_what_to_name(model, told):
    with pytest.raises(ChampionError, match=told) as caught:
        refuse_other_model(model, "toy", "1", "a")
    assert caught.value.code == "champion.other_registry"
    assert "MLFLOW_TRACKING_URI" in caught.value.fix


def test_run_refuses_shared_state_with_a_registry_of_its_own_before_it_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_STATE", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(SettingsError) as caught:
        Workspace().require_shared()
    assert caught.value.code == "state.own_registry"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    Workspace().require_shared()
