import math
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs
from torch import nn

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.loop import ONE_LOSS_A_ROW, backward, train, train_step
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.errors import TrainingError, UseCaseError
from trainworthy.lifecycle.plan import make_plan

BATCH_NORM = (
    "nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))",
    "nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))",
)
# Without it, one value that is not finite would reach every row by the mean.
FIXED_SCALE = ("[float(training[name].mean()), float(training[name].std())]", "[0.0, 1.0]")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, inputs):
        return self.layers(inputs["x"]).squeeze(1)


def loss_fn(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


class Task:
    """A task of the functions that are given, as a module would be."""

    def __init__(self, **functions):
        vars(self).update({"loss_fn": loss_fn} | functions)


def started(rows: int = 256, spec=toy_jobs.SPEC.training, **functions):
    """State, data, plan and recipe of a small problem that can be learned."""
    torch.manual_seed(0)
    x = torch.randn(rows, 2)
    model = Model()
    task = Task(**functions)
    state = TrainState(model, make_optimizers(task, model, spec.optimizer))
    plan = make_plan(rows, spec, toy_jobs.SPEC.stages, "full")
    recipe = make_recipe(task, spec, plan.horizon_steps)
    return state, TrainData({"x": x}, (x[:, 0] > 0).float()), plan, recipe


def never(state, loss):
    return False


def test_training_on_healthy_rows_ends_without_alarm_and_learns():
    state, data, plan, recipe = started()
    assert train(state, data, plan, recipe, never) is None
    assert state.step == plan.last_step
    assert sum(point.rows for point in state.curve.points) == plan.batch_size * plan.last_step
    assert state.curve.points[-1].loss < 0.8 * state.curve.points[0].loss


def test_training_ends_when_after_step_asks_for_it():
    state, data, plan, recipe = started()
    assert train(state, data, plan, recipe, lambda state, update: state.step == 3) is None
    assert state.step == 3


def inf_gradient(outputs, targets):
    """Finite losses whose gradient is not: the square root of zero."""
    return (outputs * 0).sqrt() + loss_fn(outputs, targets)


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda outputs, targets: loss_fn(outputs, targets) * float("nan"), "non_finite_loss"),
        (lambda outputs, targets: loss_fn(outputs, targets) + float("inf"), "non_finite_loss"),
        (inf_gradient, "non_finite_gradient"),
    ],
)
def test_training_on_what_is_not_finite_stops_with_weights_and_buffers_as_they_were(loss, what):
    state, data, plan, recipe = started()
    train(state, data, plan, recipe, lambda state, update: state.step == 3)
    before = parameters_sha256(state.model)
    alarm = train(state, data, plan, replace(recipe, loss_fn=loss), never)
    assert alarm is not None
    assert (alarm.monitor, alarm.step, state.step) == (what, 3, 3)
    assert parameters_sha256(state.model) == before


def test_loss_beyond_float32_keeps_a_finite_curve():
    state, data, plan, recipe = started(loss_fn=lambda outputs, targets: loss_fn(outputs, targets) * 1e25)
    train(state, data, plan, recipe, lambda state, update: state.step == 5)
    assert all(np.isfinite(point.standard_error) for point in state.curve.points)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("apart", [1e-5, 1.0])
def test_update_tells_mean_and_spread_of_losses_that_are_nearly_equal(accumulate, apart):
    nearly = lambda outputs, targets: 0.7 + apart * targets + 0 * outputs
    state, data, plan, recipe = started(loss_fn=nearly)
    rows = plan.batch(0)[:100]
    update = train_step(state, data, rows, replace(recipe, accumulate=accumulate))
    expected = 0.7 + apart * data.targets[rows].double()
    assert update.loss == pytest.approx(float(expected.mean()), rel=1e-6)
    spread = math.sqrt(update.squared - update.loss**2)
    assert spread == pytest.approx(float(expected.std(unbiased=False)), rel=0.02)


def test_losses_of_few_digits_are_averaged_in_float32():
    state, data, plan, recipe = started(loss_fn=lambda outputs, targets: (loss_fn(outputs, targets) + 256).bfloat16())
    rows = plan.batch(0)
    update = train_step(state, data, rows, recipe)
    assert state.row_losses is not None
    assert state.row_losses.dtype == torch.float32
    assert update.loss == pytest.approx(float(state.row_losses.double().mean()), rel=1e-6)


def test_loss_of_the_wrong_shape_is_told():
    state, data, plan, recipe = started(loss_fn=lambda outputs, targets: loss_fn(outputs, targets).mean())
    with pytest.raises(TrainingError, match=r"\(4,\), got \(\)") as caught:
        train_step(state, data, plan.batch(0)[:4], recipe)
    assert caught.value.code == ONE_LOSS_A_ROW


def test_update_is_held_to_the_norm():
    state, data, plan, recipe = started(spec=toy_jobs.spec_with(training={"optimizer": {"name": "sgd"}}).training)
    before = torch.nn.utils.parameters_to_vector(state.model.parameters()).detach().clone()
    norm = train_step(state, data, plan.batch(0), replace(recipe, clip_norm=0.01)).grad_norm
    moved = torch.nn.utils.parameters_to_vector(state.model.parameters()).detach() - before
    assert norm > 0.01
    assert float(moved.norm()) == pytest.approx(0.01 * 0.01, rel=0.02)


def updated(**training):
    """Weights after one update of a network without batch norm, whose batch has 64 rows."""
    spec = toy_jobs.spec_with(training=training).training
    state, data, plan, recipe = started(spec=spec)
    state.model.layers[1] = nn.Identity()
    assert plan.batch_size == 64
    train(state, data, plan, recipe, lambda state, update: True)
    return torch.nn.utils.parameters_to_vector(state.model.parameters()).detach()


def test_accumulated_parts_make_the_update_of_the_whole_batch():
    sgd = {"name": "sgd"}
    whole, parts = (updated(batch_size=64 // k, accumulate=k, optimizer=sgd) for k in (1, 4))
    assert torch.allclose(whole, parts, atol=1e-7)


@pytest.mark.parametrize(("rows", "accumulate", "sizes"), [(13, 4, [4, 3, 3, 3]), (12, 4, [3] * 4), (3, 8, [1] * 3)])
def test_parts_of_an_update_differ_by_one_row_and_share_the_weighted_mean(rows, accumulate, sizes):
    state, data, _, recipe = started()
    state.model.layers[1] = nn.Identity()
    data = replace(data, weights=torch.rand(len(data.targets)) * 2)
    seen = []

    def losses(outputs, targets):
        seen.append(len(targets))
        return loss_fn(outputs, targets)

    chosen = torch.arange(rows)
    backward(state.model, data, chosen, recipe, torch.Generator(), of=rows)
    whole = flat_gradients(state.model)
    train_step(state, data, chosen, replace(recipe, accumulate=accumulate, loss_fn=losses, clip_norm=1e9))
    assert seen == sizes
    assert torch.allclose(flat_gradients(state.model), whole, atol=1e-6)


def flat_gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def test_bf16_computes_in_bfloat16_and_keeps_the_weights_in_float32():
    seen = []

    def losses(outputs, targets):
        seen.append(outputs.dtype)
        return loss_fn(outputs, targets)

    spec = toy_jobs.spec_with(training={"precision": "bf16"}).training
    state, data, plan, recipe = started(spec=spec, loss_fn=losses)
    assert train(state, data, plan, recipe, lambda state, update: state.step == 3) is None
    assert set(seen) == {torch.bfloat16}
    assert {parameter.dtype for parameter in state.model.parameters()} == {torch.float32}


class Parts(nn.Module):
    """`cut` is a part of a larger tensor; `late` is used from the third update on."""

    def __init__(self, gap: bool) -> None:
        super().__init__()
        whole = torch.linspace(-1, 1, 8).reshape(2, 4)
        self.cut = nn.Parameter(whole[:, :2] if gap else whole[:, :2].clone())
        self.late = nn.Parameter(torch.zeros(2))
        self.updates = 0

    def forward(self, inputs):
        self.updates += 1
        late = self.late if self.updates > 2 else 0.0
        return (inputs["x"] @ self.cut + late).sum(1)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("gap", [False, True])
def test_declared_optimizers_update_as_torchs_plain_ones_do(name, gap):
    _, data, plan, recipe = started()
    spec = toy_jobs.SPEC.training.optimizer.model_copy(update={"name": name})
    kind = {"adamw": torch.optim.AdamW, "sgd": partial(torch.optim.SGD, momentum=0.9)}[name]
    plain = lambda model, _: [
        kind(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, foreach=False, fused=False)
    ]
    weights = []
    for task in (Task(), Task(build_optimizers=plain)):
        model = Parts(gap)
        state = TrainState(model, make_optimizers(task, model, spec))
        train(state, data, plan, recipe, lambda state, update: state.step == 12)
        weights.append(flat_weights(model))
    assert torch.allclose(*weights, rtol=1e-5, atol=1e-7)
    assert bool(model.late.detach().any())


def flat_weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_own_optimizers_follow_the_schedule_each_at_its_own_rate():
    def build_optimizers(model, optimizer):
        rate = optimizer["learning_rate"]
        first, last = model.layers[0].parameters(), model.layers[3].parameters()
        return [torch.optim.SGD(first, lr=rate / 10), torch.optim.AdamW(last, lr=rate)]

    def learning_rate(step, steps, training):
        return training["optimizer"]["learning_rate"] * (1 + step)

    state, data, plan, recipe = started(build_optimizers=build_optimizers, learning_rate=learning_rate)
    before = [parameter.detach().clone() for parameter in state.model.parameters()]
    train(state, data, plan, recipe, lambda state, update: state.step == 3)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in state.optimizers]
    assert rates == pytest.approx([0.003, 0.03])
    changed = [not torch.equal(a, b) for a, b in zip(before, state.model.parameters(), strict=True)]
    # Batch norm's two are in no optimizer, and a bias in front of it has no gradient.
    assert changed == [True, False, False, False, True, True]


def test_augmentation_is_drawn_from_seed_and_step_alone():
    drawn = []

    def augment(inputs, targets, generator):
        noise = torch.randn(inputs["x"].shape, generator=generator)
        drawn.append(noise)
        return {"x": inputs["x"] + noise}, targets

    for first in (0, 2):
        state, data, plan, recipe = started(augment=augment)
        state.step = first
        torch.rand(first)
        train(state, data, plan, recipe, lambda state, update: state.step == 4)
    # Steps 0, 1, 2, 3, then 2 and 3 again.
    assert torch.equal(drawn[2], drawn[4])
    assert torch.equal(drawn[3], drawn[5])
    assert not torch.equal(drawn[0], drawn[1])


def poisoned(rows: pd.DataFrame) -> pd.DataFrame:
    x1 = rows["x1"].copy()
    x1.iloc[2000] = np.inf
    return rows.assign(x1=x1)


def test_row_that_is_not_finite_is_named_and_reaches_no_checkpoint(splits, tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", FIXED_SCALE, BATCH_NORM)
    sick = toy_jobs.copy_splits(splits, tmp_path / "splits", training=poisoned)
    spec = toy_jobs.spec_with(training={"checkpoint_every_steps": 1})
    result = run_stage(toy_jobs.train_job(sick, tmp_path / "out", "full", use_case=use_case, spec=spec))
    alarm = result.alarm
    assert alarm is not None
    assert alarm.monitor == "non_finite_loss"
    bad = pd.read_parquet(sick / "training.parquet").iloc[2000]
    assert alarm.row_keys == ({"row_id": str(bad["row_id"])},)
    assert alarm.rule == "rows_not_finite"
    assert result.checkpoint is None
    assert result.artifact is None
    assert result.steps == alarm.step > 0
    checkpoints = sorted((tmp_path / "out" / "checkpoints").glob("step-*"))
    assert checkpoints
    assert checkpoints[-1].name <= f"step-{alarm.step:08d}"
    for path in checkpoints:
        model = torch.load(path / "state.pt", weights_only=True)["model"]
        assert all(torch.isfinite(tensor).all() for tensor in model.values())
    # The weights at the alarm are the ones before its step, bit for bit.
    before = {"use_case": use_case, "spec": spec, "stop_after_steps": alarm.step}
    stopped = run_stage(toy_jobs.train_job(sick, tmp_path / "before", "full", **before))
    assert result.parameters_sha256 == stopped.parameters_sha256


def test_preprocessing_that_is_not_finite_is_refused_before_training(splits, tmp_path):
    sick = toy_jobs.copy_splits(splits, tmp_path / "splits", training=poisoned)
    with pytest.raises(UseCaseError, match="fit_preprocessing"):
        run_stage(toy_jobs.train_job(sick, tmp_path / "out", "full"))
