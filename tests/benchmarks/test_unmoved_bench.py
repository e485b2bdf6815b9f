"""The comparison of benchmarks/unmoved.py: what differs is told by name and counted."""

import subprocess

import numpy as np
import pytest

from benchmarks import unmoved
from benchmarks.toy_project import committed
from benchmarks.unmoved import STAGES, TARGETS, Trained, differences


def trained(loss: float = 0.4, answer: float = 0.25, weight: str = "a") -> Trained:
    stages = {stage: {"parameters_sha256": "p", "metrics": {"val_loss": 0.5}} for stage in STAGES}
    stages["full"]["metrics"] = {"val_loss": loss}
    records = stages | {"snapshot": {"splits": {"benchmark": {"file": {"sha256": "s"}}}}}
    return Trained(records, {"head.weight": weight}, np.array([answer, 0.5]))


def test_equal_trees_differ_in_nothing(capsys):
    assert differences(trained(), trained()) == dict.fromkeys(TARGETS, 0.0)
    assert "MISS" not in capsys.readouterr().out


def test_the_least_difference_is_a_miss_that_is_told_by_name(capsys):
    moved = differences(trained(), trained(loss=np.nextafter(0.4, 1), answer=0.3, weight="b"))
    assert (moved["losses_other"], moved["weights_other"], moved["stages_other"]) == (1.0, 1.0, 0.0)
    assert moved["answers_apart"] == pytest.approx(0.05)
    missed = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if "MISS" in line]
    assert missed == ["validation loss of full", "exported head.weight", "answers to 2 benchmark rows"]


def test_answers_to_other_rows_are_no_equal_ones():
    fewer = trained()._replace(answers=np.array([0.25]))
    assert differences(trained(), fewer)["answers_apart"] == 1.0


def test_an_earlier_tree_is_asked_by_the_names_that_it_knows(tmp_path):
    asked = ("-m", "trainworthy.pipeline.definitions", "from trainworthy.lifecycle.artifact import load_artifact")
    assert unmoved.in_its_names(tmp_path, *asked)[1:] == [
        "pipeline.definitions", "from lifecycle.artifact import load_artifact",
    ]  # fmt: skip
    (tmp_path / "src").mkdir()
    assert unmoved.in_its_names(tmp_path, *asked) == list(asked)


def test_a_worktree_holds_the_commit_and_is_gone_afterwards(tmp_path, monkeypatch):
    (root := tmp_path / "root").mkdir()
    (root / "code.py").write_text("1")
    monkeypatch.setattr(unmoved, "PRODUCT", committed(root))
    (root / "code.py").write_text("2")
    with unmoved.worktree("HEAD", tmp_path / "earlier") as tree:
        assert (tree / "code.py").read_text() == "1"
    assert not tree.exists()
    listed = subprocess.run(["git", "-C", str(root), "worktree", "list"], capture_output=True, text=True, check=True)
    assert "earlier" not in listed.stdout
