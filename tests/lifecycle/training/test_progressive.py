"""What is scored beside the curve: it is what it says, changes no training, and comes back after a resume."""

import dataclasses
import random

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs
from pydantic import ValidationError
from test_loop import loss_fn, started
from torch import nn

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.random_state import undisturbed
from trainworthy.lifecycle.engine.training.watching.progressive import (
    Progressive,
    make_progressive,
    slice_columns,
)
from trainworthy.lifecycle.plan import make_plan, monitored_rows, rows_of_stage, stage_rows, without_reserve
from trainworthy.lifecycle.protocol.training_figures import CurvePoint

EPOCHS = toy_jobs.spec_with(training={"batch_size": 16, "epochs": 3}).training


def problem(dropout: float = 0.0, rows: int = 400):
    """State, data, plan and recipe of three passes of 25 steps, so that windows are single steps."""
    state, data, plan, recipe = started(rows=rows, spec=EPOCHS)
    torch.manual_seed(1)
    state.model.layers[1] = nn.Dropout(dropout)
    return state, data, plan, recipe


def trained(state, data, plan, recipe, progressive: Progressive | None) -> list[CurvePoint]:
    """The points that the progressive gave while training."""
    seen, found = len(state.curve.points), []

    def after_step(state, loss):
        nonlocal seen
        closed = state.curve.points[-1] if len(state.curve.points) > seen else None
        seen = len(state.curve.points)
        found.extend(progressive.after_step(state, closed) if progressive else ())
        return False

    if progressive is not None:
        progressive.before_first_step(state)
    assert train(state, data, plan, recipe, after_step) is None
    return found


def with_windows(plan, window: int):
    """The plan with windows of that many steps."""
    return type("Windowed", (type(plan),), {"window": property(lambda self: window)})(**plan.model_dump())


def test_curve_marks_each_pass_and_no_window_holds_steps_of_the_first_and_a_later_one():
    state, data, plan, recipe = problem()
    plan = with_windows(plan, 10)
    trained(state, data, plan, recipe, None)
    ends = [(point.step, point.pass_number, point.figure) for point in state.curve.points]
    progressive, later = "progressive_loss", "training_loss"
    assert ends == [
        (10, 1, progressive), (20, 1, progressive), (25, 1, progressive), (35, 2, later), (45, 2, later),
        (55, 3, later), (65, 3, later), (75, 3, later),
    ]  # fmt: skip


def test_batch_in_evaluation_mode_is_scored_by_the_weights_before_its_update():
    state, data, plan, recipe = problem()
    plan = with_windows(plan, 5)
    found = trained(state, data, plan, recipe, Progressive(plan, data, recipe, evaluate_every=1))
    # Without dropout both modes are the same forward pass.
    first = [point for point in state.curve.points if point.pass_number == 1]
    assert [(point.step, point.rows) for point in found] == [(point.step, point.rows) for point in first]
    assert [point.loss for point in found] == pytest.approx([point.loss for point in first], rel=1e-6)
    assert {point.figure for point in found} == {"progressive_loss_evaluated"}


@pytest.mark.parametrize("goes_on_from", [0, 4])
def test_every_evaluated_batch_counts_once_wherever_a_later_stage_of_a_continued_run_begins(goes_on_from):
    state, data, plan, recipe = problem()
    # A pause of one run: its own seed goes on at step 4, another seed has no run to go on with.
    later = with_windows(plan.model_copy(update={"first_step": 4}), 5)
    whole, progressive = with_windows(plan, 5), Progressive(later, data, recipe, evaluate_every=2)
    if goes_on_from:
        earlier = Progressive(whole.model_copy(update={"last_step": 4}), data, recipe, evaluate_every=2)
        first = plan.model_copy(update={"last_step": 4})
        trained(state, data, with_windows(first, 5), recipe, earlier)
        progressive.load_state_dict(earlier.state_dict())
    found = trained(state, data, later, recipe, progressive)
    # Steps 0, 2, 4; 6, 8; ...; a checkpoint that has a batch is not asked for it again.
    assert [(point.step, point.rows // 16) for point in found] == [(5, 3), (10, 2), (15, 3), (20, 2), (25, 3)]
    again = Progressive(later, data, recipe, evaluate_every=2)
    again.load_state_dict(progressive.state_dict())
    state.step = 24
    again.before_first_step(state)
    assert again.state_dict()["evaluated"].numel() == 0


def test_batches_in_evaluation_mode_are_free_of_dropout_and_change_nothing():
    weights, losses = [], []
    for every in (0, 4):
        state, data, plan, recipe = problem(dropout=0.5)
        plan = with_windows(plan, 25)
        progressive = Progressive(plan, data, recipe, evaluate_every=every)
        found = trained(state, data, plan, recipe, progressive)
        weights.append(parameters_sha256(state.model))
        losses.append((state.curve.points[0].loss, [(point.step, point.rows, point.loss) for point in found]))
    assert weights[0] == weights[1]
    assert losses[0][0] == losses[1][0]
    assert losses[0][1] == []
    # Steps 0, 4, ..., 24 of the first pass.
    assert [(step, rows) for step, rows, _ in losses[1][1]] == [(25, 7 * 16)]
    assert losses[1][1][0][2] < losses[1][0]


def test_reserve_is_scored_from_the_end_of_the_first_pass_on():
    state, data, plan, recipe = problem()
    plan = with_windows(plan, 10)
    reserve = dataclasses.replace(data, inputs={"x": data.inputs["x"][:50]}, targets=data.targets[:50])
    found = trained(state, data, plan, recipe, Progressive(plan, data, recipe, reserve=reserve))
    assert [point.step for point in found] == [25, 35, 45, 55, 65, 75]
    assert {(point.figure, point.rows, point.mode) for point in found} == {("reserve_loss", 50, "evaluation")}
    with torch.no_grad():
        expected = float(loss_fn(state.model.eval()(reserve.inputs), reserve.targets).double().mean())
    assert found[-1].loss == pytest.approx(expected, rel=1e-6)


def test_windows_by_slice_add_up_to_the_curve_and_end_with_the_first_pass():
    state, data, plan, recipe = problem()
    plan = with_windows(plan, 10)
    columns = {"shop": pd.Series(np.arange(400) % 3).map({0: "a", 1: "b", 2: None}).rename("shop")}
    progressive, notes = make_progressive(plan, data, recipe, 0, None, columns)
    assert notes == ()
    found = trained(state, data, plan, recipe, progressive)
    assert {point.slice for point in found} == {"shop=a", "shop=b", "shop missing"}
    for point in state.curve.points[:3]:
        parts = [part for part in found if part.step == point.step]
        assert sum(part.rows for part in parts) == point.rows
        assert sum(part.loss * part.rows for part in parts) / point.rows == pytest.approx(point.loss, rel=1e-6)
    assert max(point.step for point in found) == 25


def test_slices_of_few_rows_and_columns_of_many_values_are_left_out():
    state, data, plan, recipe = problem()
    rare = pd.Series(["common"] * 395 + ["rare"] * 5, name="shop")
    many = pd.Series([f"plane {number}" for number in range(400)], name="tail")
    times = pd.Series(pd.date_range("2024-01-01", periods=400), name="when")
    columns = {"shop": rare, "tail": many, "when": times}
    progressive, notes = make_progressive(with_windows(plan, 25), data, recipe, 0, None, columns)
    assert [note.split(":")[0] for note in notes] == ["no windows by tail", "no windows by when"]
    assert progressive is not None
    found = trained(state, data, progressive.plan, recipe, progressive)
    assert {point.slice for point in found} == {"shop=common"}


def test_nothing_to_score_makes_nothing():
    _, data, plan, recipe = problem()
    assert make_progressive(plan, data, recipe, 0, None, {}) == (None, ())


def test_open_window_goes_on_after_a_resume_as_if_nothing_had_happened():
    ends = []
    for stop in (None, 13):
        state, data, plan, recipe = problem(dropout=0.3)
        plan = with_windows(plan, 10)
        columns = {"shop": pd.Series(["a", "b"] * 200, name="shop")}
        codes, _ = slice_columns(columns, torch.device("cpu"))
        progressive = Progressive(plan, data, recipe, evaluate_every=3, slices=codes)
        if stop is not None:
            trained(state, data, plan.model_copy(update={"last_step": stop}), recipe, progressive)
            kept = progressive.state_dict()
            progressive = Progressive(plan, data, recipe, evaluate_every=3, slices=codes)
            progressive.load_state_dict(kept)
        trained(state, data, plan, recipe, progressive)
        ends.append(progressive.points)
    assert ends[0] == ends[1]
    assert len(ends[0]) == 3 * 3


class Odd(nn.Module):
    """Draws random numbers in every mode, counts its calls in a buffer, and keeps a part in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.frozen, self.norm = nn.BatchNorm1d(2).eval(), nn.BatchNorm1d(2)

    def forward(self, x):
        self.calls += 1
        return self.norm(self.frozen(x)) + torch.rand(1) + random.random() + np.random.rand()


def test_undisturbed_puts_back_modes_buffers_and_random_numbers():
    model = Odd()
    model.norm.train()

    def drawn():
        return float(torch.rand(1)), random.random(), float(np.random.rand())

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    expected = drawn()
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
    with undisturbed(model):
        assert not any(module.training for module in model.modules())
        model(torch.ones(4, 2))
    assert drawn() == expected
    assert float(model.calls) == 0
    assert [module.training for module in (model, model.frozen, model.norm)] == [True, False, True]


def test_reserve_is_nested_disjoint_and_keeps_every_label_value():
    labels = (np.arange(5000) % 50 == 0).astype(float)
    reserves = {}
    for fraction in (0.01, 0.1, 1.0):
        for share in (0.02, 0.05):
            chosen = stage_rows(labels, fraction, 3)
            kept, held = without_reserve(chosen, labels, share, 3)
            assert sorted([*kept, *held]) == chosen.tolist()
            assert set(labels[kept]) == {0.0, 1.0}
            reserves[fraction, share] = set(held)
    # Of a stage a part of the next one's, of a share a part of a larger one's; but for a label value's last row.
    assert reserves[0.1, 0.02] <= reserves[1.0, 0.02] <= reserves[1.0, 0.05]
    assert len(reserves[1.0, 0.02]) == 100
    assert reserves[1.0, 0.02] != set(without_reserve(np.arange(5000), labels, 0.02, 4)[1])


def test_last_row_of_a_label_value_is_never_held_back():
    labels = np.array([0.0] * 99 + [1.0])
    for seed in range(20):
        kept, _ = without_reserve(np.arange(100), labels, 0.2, seed)
        assert 99 in kept


def test_plan_and_forecast_count_the_reserve():
    spec = toy_jobs.spec_with(training={"epochs": 3, "reserve": 0.1, "evaluate_every": 5, "batch_size": 10})
    rows = rows_of_stage(1000, spec.training, spec.stages, "full")
    plan = make_plan(rows, spec.training, spec.stages, "full")
    assert (rows, plan.last_step) == (900, 270)
    # 18 batches of 10 rows, and after the first pass 30 windows of 6 steps with 100 rows each.
    assert monitored_rows(plan, spec.training) == 18 * 10 + 30 * 100


def test_reserve_of_a_single_pass_is_refused():
    with pytest.raises(ValidationError, match="epochs is 1: remove reserve"):
        toy_jobs.spec_with(training={"epochs": 1, "reserve": 0.02})


def test_stage_with_all_of_it_tells_passes_reserve_and_slices_and_trains_the_same_weights(splits, tmp_path):
    plain = run_stage(toy_jobs.train_job(splits, tmp_path / "plain", "pilot"))
    watched = toy_jobs.spec_with(training={"evaluate_every": 3})
    beside = run_stage(toy_jobs.train_job(splits, tmp_path / "beside", "pilot", spec=watched, slices=("shop",)))
    assert beside.parameters_sha256 == plain.parameters_sha256
    assert beside.curve == plain.curve
    assert plain.monitored == ()
    assert {point.figure for point in beside.monitored} == {"progressive_loss", "progressive_loss_evaluated"}
    reserved = toy_jobs.spec_with(training={"reserve": 0.1})
    held = run_stage(toy_jobs.train_job(splits, tmp_path / "held", "pilot", spec=reserved))
    assert held.rows == pytest.approx(0.9 * plain.rows, rel=0.05)
    assert {point.figure for point in held.monitored} == {"reserve_loss"}
    assert {point.rows for point in held.monitored} == {plain.rows - held.rows}
    assert 0 < held.seconds.goodput < 1
