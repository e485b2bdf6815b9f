"""Focal loss: the paper's factor with its gradient, in the updates and nowhere else, and taken out of validation."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs
from test_class_weights import rare_splits  # noqa: F401
from test_resume import outcome
from test_techniques import stopping_at

from trainworthy.lifecycle.artifact import load_artifact
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.techniques.focal import class_probabilities, focal
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.use_case import load_use_case

GAMMAS = (0.5, 1.0, 2.0, 5.0)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_focal_loss_and_its_gradient_are_those_of_the_paper(gamma):
    logits = torch.linspace(-6, 6, 25, dtype=torch.float64, requires_grad=True)
    losses = torch.nn.functional.softplus(-logits)
    (found,) = torch.autograd.grad(focal(losses, gamma).sum(), logits)
    p = torch.sigmoid(logits)
    wanted = -((1 - p) ** gamma) * torch.log(p)
    assert torch.allclose(focal(losses, gamma).double(), wanted, rtol=1e-4, atol=1e-7)
    # The paper's appendix B, with its y = 1.
    slope = (1 - p) ** gamma * (gamma * p * torch.log(p) + p - 1)
    assert torch.allclose(found, slope, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_row_that_is_right_beyond_the_digits_has_a_finite_gradient(gamma):
    losses = torch.tensor([0.0, -1e-7, 1e-30, 90.0], requires_grad=True)
    focal(losses, gamma).sum().backward()
    assert losses.grad is not None
    assert torch.isfinite(losses.grad).all()
    assert losses.grad[3] == pytest.approx(1.0)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("share", [0.002, 0.1, 0.5, 0.97])
def test_probabilities_are_those_that_the_best_outputs_stand_for(gamma, share):
    q = np.linspace(1e-6, 1 - 1e-6, 1_000_001)
    risk = -share * (1 - q) ** gamma * np.log(q) - (1 - share) * q**gamma * np.log1p(-q)
    assert class_probabilities(q[[risk.argmin()]], gamma) == pytest.approx(share, rel=1e-3)


def spec(**training):
    return toy_jobs.spec_with(training=training)


def test_focal_training_keeps_the_progressive_loss_plain_and_the_validation_comparable(rare_splits, tmp_path):  # noqa: F811
    plain, found = (
        run_stage(toy_jobs.train_job(rare_splits, tmp_path / str(gamma), "pilot", spec=spec(focal_gamma=gamma)))
        for gamma in (None, 3.0)
    )
    assert found.parameters_sha256 != plain.parameters_sha256
    # The first batch is scored by equal weights.
    first = [
        run_stage(
            toy_jobs.train_job(rare_splits, tmp_path / f"one {g}", spec=spec(focal_gamma=g), stop_after_steps=1)
        ).curve[0]
        for g in (None, 3.0)
    ]
    assert first[0].loss == first[1].loss
    assert found.metrics["val_loss"] < plain.metrics["val_loss"] + 0.03
    assert found.metrics["val_loss"] < found.metrics["val_loss_of_prior"]
    assert found.references is not None
    assert found.references.network_loss == found.metrics["val_loss"]


def test_focal_training_is_calibrated_in_the_artifact(rare_splits, tmp_path):  # noqa: F811
    declared = spec(focal_gamma=2.0, class_weights="balanced")
    result = run_stage(toy_jobs.train_job(rare_splits, tmp_path, "full", spec=declared))
    score = load_artifact(Path(result.artifact), result.artifact_sha256)
    rows = pd.read_parquet(rare_splits / "calibration.parquet")
    assert score(rows[list(toy_jobs.ROWS.features)]).mean() == pytest.approx(rows["positive"].mean(), abs=0.01)


def test_focal_training_resumes_bit_for_bit(splits, tmp_path):
    every = {"every": 10, "patience": 100, "min_steps": 20}
    declared = spec(focal_gamma=0.5, precision="fp16", accumulate=2, early_stopping=every)
    whole = run_stage(toy_jobs.train_job(splits, tmp_path / "whole", "pilot", spec=declared))
    job = toy_jobs.train_job(splits, tmp_path / "again", "pilot", spec=declared)
    with pytest.raises(PreemptedError):
        run_stage(job, stopping_at(9))
    assert outcome(run_stage(job)) == outcome(whole)


def test_focal_gamma_is_a_part_of_the_identity_only_where_it_is_declared():
    plain = load_use_case(toy_jobs.TOY)
    declared = plain.model_copy(update={"spec": spec(focal_gamma=2.0)})
    assert "focal_gamma" not in declared_sections(plain, "full")["training"]
    assert declared_sections(declared, "full")["training"]["focal_gamma"] == 2.0
    # The check class_balance of the snapshot asks whether anything is declared.
    assert declared_sections(declared, "snapshot") != declared_sections(plain, "snapshot")
