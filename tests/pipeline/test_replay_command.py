"""trainworthy replay: what it lists, what it answers to a name that is none, and a whole replay by id."""

import json
from pathlib import Path

import pytest

from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.incidents.incident import write_manifest
from trainworthy.pipeline.cli import main


@pytest.fixture
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with two incidents of equal name in two stages, and one of another."""
    for stage, name in (("smoke", "43-loss_spike"), ("full", "43-loss_spike"), ("full", "7-non_finite_loss")):
        folder = tmp_path / "var" / "training" / "toy" / "0123" / stage / "incidents" / name
        folder.mkdir(parents=True)
        (folder / "incident.json").write_bytes(canonical_json({"form": 1}))
        write_manifest(folder)
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "var"))
    return tmp_path / "var"


def test_replay_without_an_incident_lists_all_by_id(var: Path, capsys):
    assert main(["replay"]) == 0
    told = capsys.readouterr().out
    assert {line for line in told.splitlines() if line.startswith("toy/")} == {
        "toy/0123/smoke/43-loss_spike", "toy/0123/full/43-loss_spike", "toy/0123/full/7-non_finite_loss",
    }  # fmt: skip


def test_replay_without_any_incident_says_so(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path))
    assert main(["replay"]) == 0
    assert "no training here has met an alarm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("43-loss_spike", "several incidents are named so"),
        ("7-non_finite_los", "did you mean '7-non_finite_loss'?"),
        ("../../toy", "no such incident"),
        ("full/7-non_finite_loss", "incident.json is of another form"),
    ],
)
def test_replay_of_what_is_no_single_incident_is_refused_with_a_way_on(var: Path, capsys, asked: str, told: str):
    assert main(["replay", asked]) == 1
    assert told in capsys.readouterr().err


def test_replay_of_a_changed_incident_is_refused(var: Path, capsys):
    path = var / "training" / "toy" / "0123" / "full" / "incidents" / "7-non_finite_loss" / "incident.json"
    path.write_text(json.dumps({"form": 2}))
    assert main(["replay", "7-non_finite_loss"]) == 1
    assert "were changed since it was made" in capsys.readouterr().err
