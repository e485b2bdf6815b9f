"""Incidents on another machine: a folder that replays with nothing else there, and what must not travel in it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import stages
import toy_jobs as toy

from trainworthy.lifecycle.engine.incidents import portable
from trainworthy.lifecycle.errors import IncidentError
from trainworthy.lifecycle.incidents.incident import read_incident, write_manifest
from trainworthy.lifecycle.protocol.jobs import PackJob
from trainworthy.lifecycle.protocol.results import PackResult


@pytest.fixture(scope="module")
def made(splits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PackResult]:
    """The root of a training that met a log of 0, and its incident packed into `packed` beside it."""
    root = tmp_path_factory.mktemp("portable")
    _, incident = stages.train(splits, root / "here", stages.LOG, stages.PLAIN, rows=stages.one_row("x1", 1e6))
    return root, pack(incident, root / "packed")


def pack(incident: Path, target: Path) -> PackResult:
    return portable.pack(PackJob(use_case_folder="", out="", device="auto", incident=str(incident), target=str(target)))


def incident_of(root: Path) -> Path:
    (found,) = (root / "here" / "var").glob("training/*/*/*/incidents/*")
    return found


def test_portable_incident_replays_alone_with_no_state_and_no_rows(made, tmp_path: Path):
    root, packed = made
    there = shutil.copytree(packed.folder, tmp_path / "there")
    (root / "here").rename(root / "away")
    (tmp_path / "empty").mkdir()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trainworthy.pipeline.cli", "replay", "there"],
            env=os.environ | {"TRAINWORTHY_VAR": str(tmp_path / "empty"), "PYTHONPATH": str(toy.ROOT / "src")},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        (root / "away").rename(root / "here")
    assert done.returncode == 0, done.stderr
    assert "reproduced bit for bit" in done.stdout
    assert "log, model.py:38 in loss_fn (forward)" in done.stdout
    assert "(row 1234 of the stage)" in done.stdout
    assert list((tmp_path / "empty").iterdir()) == []
    # What it has written there has changed nothing of it.
    assert stages.replay(there).reproduced == "bit_for_bit"


def test_portable_incident_of_rows_that_are_drawn_again_names_the_row(splits: Path, tmp_path: Path):
    rows = stages.one_row("x1", 1e6)
    _, incident = stages.train(
        splits, tmp_path / "here", stages.LOG, stages.PLAIN, rows=rows, oversampling="balanced"
    )  # fmt: skip
    packed = pack(incident, tmp_path / "packed")
    shutil.rmtree(tmp_path / "here")
    result = stages.replay(Path(packed.folder))
    assert (result.reproduced, [row.row for row in result.rows]) == ("bit_for_bit", [1234])


def test_portable_incident_is_no_part_of_a_repository(made):
    _, packed = made
    assert (Path(packed.folder) / ".gitignore").read_text() == "*\n"


def test_portable_incident_names_no_path_of_its_machine(made):
    root, packed = made
    text = (Path(packed.folder) / "incident.json").read_text()
    assert str(root) not in text
    assert packed.left_out == ("contract.yaml", "use_case.yaml")
    assert packed.updates == read_incident(incident_of(root)).step - 25 + 1


def test_portable_incident_with_a_changed_file_is_refused(made, tmp_path: Path):
    there = shutil.copytree(made[1].folder, tmp_path / "there")
    (there / "code" / "model.py").write_text("import os\n")
    with pytest.raises(IncidentError, match="were changed"):
        stages.replay(there)


def test_portable_incident_whose_tensors_hold_code_runs_none(made, tmp_path: Path):
    import pickle

    there = shutil.copytree(made[1].folder, tmp_path / "there")

    class Payload:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    (there / "batches.pt").write_bytes(pickle.dumps(Payload(), protocol=2))
    (there / "manifest.json").unlink()
    write_manifest(there)
    with pytest.raises(IncidentError, match="cannot be read"):
        stages.replay(there)
    assert not (tmp_path / "ran").exists()


def test_tensors_of_sensitive_features_do_not_travel(splits: Path, tmp_path: Path):
    _, incident = stages.train(
        splits, tmp_path, stages.LOG, stages.PLAIN, rows=stages.one_row("x1", 1e6), sensitive=("x2",)
    )
    with pytest.raises(IncidentError, match="sensitive features do not leave") as refused:
        pack(incident, tmp_path / "packed")
    assert refused.value.value == ["x2"]
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize(
    "line",
    ["API_KEY = 'abc'", "connect(password='abc')", "URL = 'https://user:abc@host/x'", "K = 'AKIAABCDEFGHIJKLMNOP'"],
)
def test_code_that_looks_as_if_it_held_a_secret_does_not_travel(made, tmp_path: Path, line: str):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "model.py").write_text(f"import os\nTOKENS = 3\ntoken = os.environ.get('TOKEN')\n{line}\n")
    (found,) = portable._secrets_of_code(folder)
    assert found.startswith("model.py:4")
    assert "abc" not in found


def test_packing_into_a_folder_that_is_there_or_twice_is_refused(made, tmp_path: Path):
    root, packed = made
    with pytest.raises(IncidentError, match="is there already"):
        pack(incident_of(root), Path(packed.folder))
    with pytest.raises(IncidentError, match="portable already"):
        pack(Path(packed.folder), tmp_path / "again")


def test_portable_incident_above_the_size_cap_is_refused_and_leaves_nothing(made, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(portable, "MOST_BYTES", 50_000)
    with pytest.raises(IncidentError, match="would be larger than") as refused:
        pack(incident_of(made[0]), tmp_path / "packed")
    assert "checkpoint_every_steps" in refused.value.fix
    assert list(tmp_path.iterdir()) == []


def test_manifest_names_every_file(made):
    folder = Path(made[1].folder)
    named = json.loads((folder / "manifest.json").read_text())["files"]
    assert {"batches.pt", "incident.json", "preprocessing.json", "code/model.py"} < set(named)
    assert any(name.startswith("checkpoint/step-") for name in named)
