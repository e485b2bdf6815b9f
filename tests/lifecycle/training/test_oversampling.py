"""Oversampling: rare rows are drawn more often, in an order by (seed, epoch), and count once in the curve."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy_jobs
from pydantic import ValidationError
from test_class_weights import rare_splits  # noqa: F401
from test_resume import outcome
from test_techniques import stopping_at

from trainworthy.lifecycle.artifact import load_artifact
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.prepare import prepare
from trainworthy.lifecycle.engine.training.rows.weights import raised_by_class, row_weights
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.oversampling import Oversampled, oversample, repeated_draws
from trainworthy.lifecycle.plan import make_plan, plan_of_counts
from trainworthy.lifecycle.protocol.records import STAGES
from trainworthy.lifecycle.spec.training import OversampledClass
from trainworthy.lifecycle.use_case import load_use_case

LABELS = np.array([0, 1, 0, 0, 0, 1, 0, 0, 0, 0])


def spec(oversampling="balanced", **training):
    return toy_jobs.spec_with(training={"oversampling": oversampling, **training})


def plan_of(labels, oversampling, **training):
    declared = spec(oversampling, **training)
    found = oversample(labels, declared.training.oversampling)
    return make_plan(len(labels), declared.training, declared.stages, "full", found)


@pytest.mark.parametrize(
    ("labels", "oversampling", "draws"),
    [
        (LABELS, "balanced", (8, 8)),
        (1 - LABELS, "balanced", (8, 8)),
        (LABELS, {"positive": 2.0}, (8, 4)),
        (LABELS, {"positive": 2.5}, (8, 5)),
        (1 - LABELS, {"positive": 1.5}, (2, 12)),
    ],
)
def test_epoch_draws_every_row_and_the_rare_class_as_often_as_declared(labels, oversampling, draws):
    plan = plan_of(labels, oversampling, batch_size=1)
    assert plan.steps_per_epoch == plan.draws == sum(draws)
    for epoch in range(3):
        order = np.concatenate([plan.batch(epoch * plan.draws + step).numpy() for step in range(plan.draws)])
        times = np.bincount(order, minlength=len(labels))
        assert (times[labels == 0].sum(), times[labels == 1].sum()) == draws
        assert times.min() == 1
        # No row more than once more often than another of its class.
        assert all(np.ptp(times[labels == label]) <= 1 for label in (0, 1))


def test_rows_that_are_drawn_once_more_are_others_in_another_epoch_and_the_same_again():
    labels = np.arange(400) < 40
    plan = plan_of(labels, {"positive": 1.5}, batch_size=420)
    epochs = [frozenset(np.flatnonzero(np.bincount(plan.batch(epoch).numpy()) == 2)) for epoch in range(4)]
    assert all(len(one) == 20 for one in epochs)
    assert len(set(epochs)) == 4
    again = plan_of(labels, {"positive": 1.5}, batch_size=420)
    assert again.batch(2).equal(plan.batch(2))


def test_places_that_are_counted_are_each_row_once_an_epoch():
    plan = plan_of(LABELS, "balanced", batch_size=4)
    for epoch in range(2):
        steps = [epoch * plan.steps_per_epoch + step for step in range(plan.steps_per_epoch)]
        met = np.concatenate([plan.batch(step)[plan.counted(step)].numpy() for step in steps])
        assert sorted(met) == list(range(len(LABELS)))


@pytest.mark.parametrize("labels", [np.zeros(5), np.ones(5), np.array([0, 1])])
def test_nothing_is_drawn_again_of_one_class_or_of_two_equal_ones(labels):
    assert oversample(labels, "balanced") is None
    assert repeated_draws(10, 2, None) == 0


@pytest.mark.parametrize("mode", ["restart", "continue"])
@pytest.mark.parametrize("oversampling", ["balanced", {"positive": 3.5}])
def test_plan_of_counts_has_the_steps_of_the_stage(rare_splits, tmp_path, mode, oversampling):  # noqa: F811
    declared = toy_jobs.spec_with(training={"oversampling": oversampling}, stages={"mode": mode})
    rows = pd.read_parquet(rare_splits / "training.parquet")
    for stage in STAGES:
        prepared = prepare(toy_jobs.train_job(rare_splits, tmp_path, stage, spec=declared), "cpu")
        plan = make_plan(
            len(prepared.rows), declared.training, declared.stages, stage, prepared.oversampled
        )  # fmt: skip
        counted = plan_of_counts(len(rows), int(rows["positive"].sum()), declared.training, declared.stages, stage)
        assert counted.last_step == pytest.approx(plan.last_step, abs=2)


def test_weights_have_mean_one_over_the_draws_and_the_shift_is_that_of_both():
    given = np.array([1, 3, 1, 1, 1, 3, 1, 1, 1, 1])
    found = oversample(LABELS, OversampledClass(positive=4.0))
    assert found is not None
    weights = row_weights(LABELS, None, given, found)
    assert np.average(weights, weights=found.draws_of(10)) == pytest.approx(1)
    assert _shift(LABELS, found) == pytest.approx(np.log(4))
    assert _shift(1 - LABELS, oversample(1 - LABELS, "balanced")) == pytest.approx(-np.log(4))


def _shift(labels: np.ndarray, drawn: Oversampled | None) -> float:
    raised = raised_by_class(labels, None, drawn, 2)
    assert raised is not None
    return float(raised[1] - raised[0])


def test_oversampled_training_is_judged_and_shipped_as_if_each_row_counted_once(rare_splits, tmp_path):  # noqa: F811
    plain = run_stage(toy_jobs.train_job(rare_splits, tmp_path / "plain", "full"))
    found = run_stage(toy_jobs.train_job(rare_splits, tmp_path / "again", "full", spec=spec()))
    assert found.rows == plain.rows
    assert found.planned_steps > 1.5 * plain.planned_steps
    first = [sum(p.rows for p in result.curve if p.pass_number == 1) for result in (plain, found)]
    # But for what a last batch leaves out.
    assert first == pytest.approx([plain.rows, plain.rows], abs=128)
    assert found.metrics["val_loss"] < plain.metrics["val_loss"] + 0.03
    assert found.metrics["val_loss"] < found.metrics["val_loss_of_prior"]
    score = load_artifact(Path(found.artifact), found.artifact_sha256)
    rows = pd.read_parquet(rare_splits / "calibration.parquet")
    assert score(rows[list(toy_jobs.ROWS.features)]).mean() == pytest.approx(rows["positive"].mean(), abs=0.01)


def test_oversampled_training_resumes_bit_for_bit_with_any_number_of_loaders(rare_splits, tmp_path):  # noqa: F811
    def job(folder, loaders=None, **training):
        declared = spec(evaluate_every=2, **training)
        return toy_jobs.train_job(
            rare_splits, tmp_path / folder, "pilot", spec=declared, slices=("shop",), loaders=loaders
        )  # fmt: skip

    whole, per_batch = run_stage(job("whole")), {"tensors": "per_batch"}
    for number, interrupted in enumerate((job("ahead"), job("one", 1, **per_batch), job("two", 2, **per_batch))):
        with pytest.raises(PreemptedError):
            run_stage(interrupted, stopping_at(7 + number))
        resumed = run_stage(interrupted)
        assert outcome(resumed) == outcome(whole)
        assert resumed.monitored == whole.monitored


def test_oversampling_beside_class_weights_is_refused():
    with pytest.raises(ValidationError, match="declare one of them"):
        spec(class_weights="balanced")
    assert spec(class_weights="none").training.imbalance.startswith("training.class_weights: none")


def test_oversampling_is_a_part_of_the_identity_only_where_it_is_declared():
    plain = load_use_case(toy_jobs.TOY)
    declared = plain.model_copy(update={"spec": spec()})
    assert "oversampling" not in declared_sections(plain, "full")["training"]
    assert declared_sections(declared, "full")["training"]["oversampling"] == "balanced"
    assert declared_sections(declared, "snapshot") != declared_sections(plain, "snapshot")
