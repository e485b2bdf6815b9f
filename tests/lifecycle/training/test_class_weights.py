"""Weights of training rows: by class and by row, of mean 1, in the gradients and nowhere else."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs

from trainworthy.lifecycle.artifact import load_artifact
from trainworthy.lifecycle.data.class_balance import class_balance_check
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training import course
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.prepare import prepare
from trainworthy.lifecycle.engine.training.rows.weights import raised_by_class, row_weights
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.protocol.records import STAGES
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.spec.training import ClassWeights
from trainworthy.lifecycle.tasks import kind_of

LABELS = np.array([1, 0, 0, 0])


@pytest.mark.parametrize("declared", [None, "none"])
def test_no_weights_are_no_weights(declared):
    assert row_weights(LABELS, declared) is None
    assert raised_by_class(LABELS, None, None, 2) is None


@pytest.mark.parametrize(
    ("declared", "given", "wanted"),
    [
        (ClassWeights(positive=3.0), None, [2, 2 / 3, 2 / 3, 2 / 3]),
        ("balanced", None, [2, 2 / 3, 2 / 3, 2 / 3]),
        (None, [1, 1, 2, 4], [0.5, 0.5, 1, 2]),
        (ClassWeights(positive=3.0), [1, 1, 2, 4], [1.2, 0.4, 0.8, 1.6]),
        ("balanced", [1, 1, 2, 4], [2, 2 / 7, 4 / 7, 8 / 7]),
        ("none", [1, 0, 0, 1], [2, 0, 0, 2]),
    ],
)
def test_weights_are_those_of_the_formula_and_have_mean_one(declared, given, wanted):
    weights = row_weights(LABELS, declared, None if given is None else np.array(given))
    assert weights.tolist() == pytest.approx(wanted)
    assert weights.mean() == pytest.approx(1)
    shift = math.log(np.mean(np.array(wanted)[:1]) / np.mean(np.array(wanted)[1:]))
    raised = raised_by_class(LABELS, weights, None, 2)
    assert raised is not None
    assert raised[1] - raised[0] == pytest.approx(shift)


@pytest.mark.parametrize("given", [[1, -1, 1, 1], [1, math.nan, 1, 1], [1, math.inf, 1, 1], [0, 1, 1, 1], [0] * 4])
def test_weights_that_are_no_weights_are_refused(given):
    with pytest.raises(DatasetError, match="weights of the training rows"):
        row_weights(LABELS, None, np.array(given, dtype=float))


def test_update_follows_the_weighted_mean_and_tells_the_plain_loss():
    torch.manual_seed(0)
    inputs, targets, weights = torch.randn(8, 3), torch.arange(8.0) % 2, torch.linspace(0.2, 1.8, 8)
    rows = torch.tensor([1, 4, 6, 7])

    def losses_of(outputs, wanted):
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1), wanted, reduction="none")

    class Named(torch.nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs["x"])

    def stepped(given):
        torch.manual_seed(1)
        toy_jobs.plain_state()
        model = Named(3, 1)
        state = TrainState(model, (torch.optim.SGD(model.parameters(), lr=1.0),))
        start = state.model.weight.detach().clone()
        recipe = Recipe(losses_of, learning_rate=lambda step: 1.0, clip_norm=1e9)
        told = train_step(state, TrainData({"x": inputs}, targets, given), rows, recipe)
        return start, start - state.model.weight.detach(), told

    start, plain_step, plain = stepped(None)
    _, step, told = stepped(weights)
    torch.manual_seed(1)
    toy_jobs.plain_state()
    model = Named(3, 1)
    assert torch.equal(model.weight, start)
    loss = (losses_of(model({"x": inputs[rows]}), targets[rows]) * weights[rows]).mean()
    loss.backward()
    assert torch.allclose(step, model.weight.grad, atol=1e-6)
    assert not torch.allclose(step, plain_step, atol=1e-3)
    assert told[:2] == plain[:2]


def rare(rows: pd.DataFrame) -> pd.DataFrame:
    """One positive in eight is left."""
    kept = (rows["positive"] == 0) | (rows["row_id"] % 8 == 0)
    return rows[kept]


@pytest.fixture(scope="module")
def rare_splits(splits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rare")
    return toy_jobs.copy_splits(splits, folder, **dict.fromkeys(("training", "validation", "calibration"), rare))


def spec(weights):
    return toy_jobs.spec_with(training={"class_weights": weights})


def test_declared_none_trains_bit_for_bit_like_nothing(splits, tmp_path):
    results = [
        run_stage(toy_jobs.train_job(splits, tmp_path / str(declared), spec=spec(declared)))
        for declared in (None, "none")
    ]
    assert results[0].parameters_sha256 == results[1].parameters_sha256


def test_weights_change_the_training_and_keep_the_validation_comparable(rare_splits, tmp_path):
    """Balanced training makes positives look frequent; what it adds is taken out before validation is judged."""
    results = {
        name: run_stage(toy_jobs.train_job(rare_splits, tmp_path / name, "pilot", spec=spec(name)))
        for name in ("none", "balanced")
    }
    plain, weighted = results["none"], results["balanced"]
    assert plain.parameters_sha256 != weighted.parameters_sha256
    assert weighted.metrics["val_loss_of_prior"] == plain.metrics["val_loss_of_prior"]
    assert weighted.metrics["val_loss"] < plain.metrics["val_loss"] + 0.03
    assert weighted.metrics["val_loss"] < weighted.metrics["val_loss_of_prior"]
    assert weighted.metrics["val_auc"] > 0.7
    assert weighted.references is not None
    assert weighted.references.network_loss == weighted.metrics["val_loss"]


def test_weights_are_calibrated_away_in_the_artifact(rare_splits, tmp_path):
    """Mean calibrated probability is the calibration rows' share of positives, weighted or not."""
    result = run_stage(toy_jobs.train_job(rare_splits, tmp_path, "full", spec=spec("balanced")))
    score = load_artifact(Path(result.artifact), result.artifact_sha256)
    rows = pd.read_parquet(rare_splits / "calibration.parquet")
    assert score(rows[list(toy_jobs.ROWS.features)]).mean() == pytest.approx(rows["positive"].mean(), abs=0.01)


def test_weight_column_weighs_training_rows_and_no_others(splits, tmp_path):
    folder = toy_jobs.copy_splits(splits, tmp_path / "splits", training=lambda r: r.assign(worth=1.0 + (r["x1"] > 0)))
    rows = toy_jobs.ROWS.model_copy(update={"weight": "worth"})
    job = toy_jobs.train_job(folder, tmp_path / "out", rows=rows)
    prepared = prepare(job, "cpu")
    assert prepared.data.weights.mean().item() == pytest.approx(1)
    given = prepared.rows["worth"]
    assert prepared.data.weights.tolist() == pytest.approx((given / given.mean()).tolist())
    # The other splits have no such column: nothing asks for it there.
    weighted = run_stage(job)
    plain = run_stage(toy_jobs.train_job(folder, tmp_path / "plain"))
    assert weighted.parameters_sha256 != plain.parameters_sha256


@pytest.mark.parametrize("declared", ["none", "balanced"])
def test_monitors_are_told_whether_rows_count_alike(declared, splits, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(course, "all_monitors", lambda *of, **given: asked.append(given) or all_monitors(*of, **given))
    run_stage(toy_jobs.train_job(splits, tmp_path, spec=spec(declared), stop_after_steps=1))
    assert [given["reweighted"] for given in asked] == [declared == "balanced"]


def test_progressive_loss_counts_each_row_once(splits, tmp_path):
    """The first window is scored by nearly equal weights, so a weighted loss would differ at once."""
    first = {}
    for declared in ("none", {"positive": 30.0}):
        job = toy_jobs.train_job(splits, tmp_path / str(declared), spec=spec(declared), stop_after_steps=1)
        first[str(declared)] = run_stage(job).curve
    plain, weighted = first.values()
    assert plain[0].loss == weighted[0].loss


@pytest.mark.parametrize("stage", STAGES)
def test_stage_of_few_positives_still_has_weights(rare_splits, tmp_path, stage):
    prepared = prepare(toy_jobs.train_job(rare_splits, tmp_path, stage, spec=spec("balanced")), "cpu")
    labels = prepared.rows["positive"].to_numpy()
    sums = [prepared.data.weights.numpy()[labels == label].sum() for label in (0, 1)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-4)


def labels(share: float) -> pd.Series:
    return pd.Series((np.arange(10_000) < share * 10_000).astype("int8"))


@pytest.mark.parametrize(
    ("share", "declared", "status"),
    [
        (0.049, None, "fail"),
        (0.951, None, "fail"),
        (0.05, None, "pass"),
        (0.5, None, "pass"),
        (0.01, "none", "pass"),
        (0.01, "balanced", "pass"),
        (0.01, {"positive": 5}, "pass"),
        (0.01, {"focal_gamma": 2.0}, "pass"),
    ],
)
def test_rare_class_that_nobody_declared_is_a_warning_with_the_figure(share, declared, status):
    given = declared if isinstance(declared, dict) and "positive" not in declared else {"class_weights": declared}
    check = class_balance_check(labels(share), toy_jobs.spec_with(training=given).training.imbalance, kind_of(Target()))
    assert (check.status, check.severity, check.stops) == (status, "warning", False)
    assert f"{min(share, 1 - share):.2%} of 10000 training rows" in check.evidence
    assert bool(check.fix) == (status == "fail")
