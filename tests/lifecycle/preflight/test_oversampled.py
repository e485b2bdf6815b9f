"""Preflight of oversampling: rows that are drawn again on purpose are no fault, and the sums count them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs
from configured import host, subject

from trainworthy.lifecycle.engine.preflight.inputs.batches import repeated_batch, shuffled
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.declared import steps_add_up
from trainworthy.lifecycle.oversampling import oversample
from trainworthy.lifecycle.plan import make_plan


@pytest.mark.parametrize("order", ["mixed", "sorted"])
@pytest.mark.parametrize("oversampling", ["balanced", {"positive": 7.3}])
@pytest.mark.parametrize("batch_size", [7, 50, 2000])
def test_rows_that_are_drawn_again_on_purpose_are_a_fair_order(order, oversampling, batch_size):
    labels = np.random.default_rng(0).random(3000) < 0.04
    labels = np.sort(labels) if order == "sorted" else labels
    spec = toy_jobs.spec_with(training={"oversampling": oversampling, "batch_size": batch_size}).training
    plan = make_plan(3000, spec, toy_jobs.SPEC.stages, "full", oversample(labels, spec.oversampling))
    data = TrainData({"x": torch.linspace(0, 1, 3000)[:, None]}, torch.tensor(labels).float())
    seen = replace(subject(), plan=plan, training=data, labels=labels.astype(float))
    assert (shuffled(seen).status, repeated_batch(seen).status) == ("pass", "pass")


def test_sums_of_the_host_count_the_draws():
    found = steps_add_up(replace(host(rows=5000, training={"oversampling": {"positive": 3.0}}), positives=400))
    assert found.status == "pass"
    assert "800 rows of the rare class again in each" in found.evidence


def test_sample_weighs_what_a_stage_draws_more_often(splits, tmp_path):
    job = toy_jobs.preflight_job(splits, tmp_path, spec=toy_jobs.spec_with(training={"oversampling": {"positive": 5}}))
    rows = pd.read_parquet(splits / "training.parquet")
    sample = draw_sample(job, rows, "cpu")
    weights, targets = sample.data.weights, sample.data.targets
    assert weights is not None
    assert weights.mean().item() == pytest.approx(1, rel=1e-5)
    assert (weights[targets == 1].mean() / weights[targets == 0].mean()).item() == pytest.approx(5, rel=1e-3)
    assert sample.subject.plan.draws == len(rows) + 4 * int(rows["positive"].sum())
