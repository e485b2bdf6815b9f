"""A training script of a use case whose label is one of four classes, or any of three labels."""

import kind_jobs
import own_trainers
import pytest
import torch

from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.errors import TrainingError

HAND = own_trainers.documented("hand")


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """The use case with the documented script by hand."""
    case = kind_jobs.kind_case("multiclass", tmp_path_factory.mktemp("classes"))
    (case.folder / "train.py").write_text(HAND)
    return case


def test_script_of_classes_is_trained_judged_and_exported(classes, tmp_path):
    result = classes.train(tmp_path, "full", trainer="train.py")
    assert (result.steps, result.alarm) == (result.planned_steps, None)
    assert result.metrics["val_loss"] < 0.9 * result.metrics["val_loss_of_prior"]
    assert result.references.network.low > 0
    assert result.artifact is not None


def test_script_of_several_labels_is_trained_judged_and_exported(tmp_path):
    labels = kind_jobs.kind_case("multilabel", tmp_path / "labels")
    (labels.folder / "train.py").write_text(HAND)
    result = labels.train(tmp_path / "out", "full", trainer="train.py")
    assert result.metrics["val_loss"] < 0.9 * result.metrics["val_loss_of_prior"]
    assert result.references.network.low > 0
    assert result.artifact is not None


def test_script_of_classes_passes_preflight(classes, tmp_path):
    result = run_preflight(classes.preflight_job(tmp_path, trainer="train.py"))
    assert {trial.check: trial.evidence for trial in result.trials if trial.status in ("fail", "error")} == {}


def test_targets_of_classes_are_their_places(classes, tmp_path):
    told = classes.changed(tmp_path / "told")
    asked = HAND.replace(
        "def train(session):\n",
        "def train(session):\n    raise ValueError(f'{session.targets.dtype} {session.targets.max()}')\n",
    )
    (told.folder / "train.py").write_text(asked)
    with pytest.raises(ValueError, match=rf"{torch.int64} 3"):
        told.train(tmp_path / "out", "smoke", trainer="train.py")


def test_returned_model_that_gives_no_probability_of_each_class_is_refused_with_what_it_gives(classes, tmp_path):
    wrong = classes.changed(tmp_path / "wrong", ("outputs.softmax(dim=1)", "outputs.sigmoid()"))
    with pytest.raises(
        TrainingError, match=r"gives no probabilities: the probabilities of \d+ of \d+ rows do not add"
    ) as told:
        wrong.train(tmp_path / "out", "smoke", trainer="train.py")
    assert "softmax" in told.value.fix
