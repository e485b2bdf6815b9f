"""The check of a loss that rose: a curve that ends above its best part, and a spike that did not come back."""

import numpy as np
import pytest
import toy_jobs
from gated import SPIKE, falling, moved
from hypothesis import given, settings
from hypothesis import strategies as st

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.watching.curve import Curve
from trainworthy.lifecycle.gates.stage import (
    loss_rise_check,
    monitors_check,
    stage_loss_rise,
)
from trainworthy.lifecycle.protocol.training_figures import CurvePoint


def curve_of(losses: np.ndarray, window_rows: int) -> tuple[CurvePoint, ...]:
    """The curve of per-row losses, a batch of `window_rows` rows a window."""
    curve = Curve()
    for step, rows in enumerate(losses.reshape(-1, window_rows), start=1):
        curve.add(
            step, window_rows, float(rows.mean()), float((rows**2).mean()), 0.1, window=1, steps_per_epoch=len(losses)
        )
    return tuple(curve.points)


def row_losses(seed: int, size: int, share: float) -> np.ndarray:
    """Log losses of a calibrated model on rows of which `share` are positive."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=size) * 2 + np.log(share / (1 - share))
    positive = generator.random(size) < 1 / (1 + np.exp(-logits))
    return np.logaddexp(0, np.where(positive, -logits, logits))


@given(
    seed=st.integers(0, 10_000),
    rows=st.sampled_from([1, 4, 16, 128]),
    windows=st.sampled_from([20, 40, 78, 200]),
    share=st.sampled_from([0.02, 0.2, 0.5]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_loss_rise_never_stops_a_plateau(seed, rows, windows, share):
    check = loss_rise_check(curve_of(row_losses(seed, rows * windows, share), rows), "cpu")
    assert check.status in ("pass", "insufficient")


@pytest.mark.parametrize(("rows", "share"), [(8, 0.5), (32, 0.2), (128, 0.02), (128, 0.5)])
def test_loss_rise_stops_a_curve_that_ends_above_its_best_part(rows, share):
    losses = row_losses(3, rows * 40, share)
    losses[-rows * 5 :] *= 6
    check = loss_rise_check(curve_of(losses, rows), "cpu")
    assert check.status == "fail"
    assert check.fix


def test_loss_rise_passes_a_curve_that_falls_and_one_without_noise():
    falling = row_losses(4, 4000, 0.5) * np.linspace(3, 1, 4000)
    assert loss_rise_check(curve_of(falling, 100), "cpu").status == "pass"
    assert loss_rise_check(curve_of(np.full(4000, 0.5), 100), "cpu").status == "pass"
    assert loss_rise_check(curve_of(np.repeat([0.5, 0.6], 2000), 100), "cpu").status == "fail"


def test_loss_rise_of_an_adversarial_training_does_not_apply(splits, tmp_path):
    result = run_stage(toy_jobs.train_job(splits, tmp_path, "smoke"))
    assert not result.adversarial
    losses = row_losses(3, 128 * 40, 0.2)
    losses[-128 * 5 :] *= 6
    rising = result.model_copy(update={"curve": curve_of(losses, 128), "progress": None})
    assert stage_loss_rise(rising).stops
    assert stage_loss_rise(rising.model_copy(update={"adversarial": True})).status == "not_applicable"
    assert stage_loss_rise(result.model_copy(update={"adversarial": True})).status == "pass"


@pytest.mark.parametrize(("windows", "rows"), [(0, 1), (2, 500), (40, 1)])
def test_loss_rise_of_too_few_windows_or_rows_is_insufficient(windows, rows):
    check = loss_rise_check(curve_of(np.full(windows * rows, 0.5), rows), "cpu")
    assert check.status == "insufficient"
    assert not check.stops


@pytest.mark.parametrize(
    ("at_end", "alarm", "stops"),
    [
        (1, {}, False), (6, {}, True), (1, {"action": "stop"}, True),
        (1, {"action": "stop", "severity": "warning"}, True), (1, {"monitor": "dead_layer"}, True),
        (1, {"monitor": "dead_layer", "severity": "warning"}, False),
    ],
)  # fmt: skip
def test_spike_that_was_only_told_stops_a_stage_unless_the_loss_came_back(splits, tmp_path, at_end, alarm, stops):
    losses = row_losses(3, 128 * 40, 0.2)
    losses[-128 * 5 :] *= at_end
    result = run_stage(toy_jobs.train_job(splits, tmp_path, "smoke"))
    told = SPIKE.model_copy(update=alarm)
    check = monitors_check(result.model_copy(update={"curve": curve_of(losses, 128), "alarms": (told,)}))
    assert (check.status, check.stops) == ("fail", stops)


def test_loss_rise_of_a_reweighted_training_is_judged_by_its_own_loss():
    rising = falling(0.5, 0.7)
    weighted = moved(0.2).model_copy(update={"reweighted": True})
    assert loss_rise_check(rising, "cpu").status == "fail"
    assert loss_rise_check(rising, "cpu", moved(0.2)).status == "fail"
    assert loss_rise_check(rising, "cpu", weighted).status == "pass"
    diverged = loss_rise_check(rising, "cpu", moved(-0.2).model_copy(update={"reweighted": True}))
    assert diverged.status == "fail"
    assert diverged.fix
    # Where the curve fell first, both may have diverged from their best.
    back = falling(0.69, 0.2) + tuple(p.model_copy(update={"step": 20 + p.step}) for p in falling(0.4, 0.68))
    assert loss_rise_check(back, "cpu", weighted).status == "insufficient"
    assert loss_rise_check(back, "cpu", moved(0.0).model_copy(update={"reweighted": True})).status == "fail"
