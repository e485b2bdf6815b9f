"""Each monitor that a training is given finds its fault: as all_monitors makes it, not as a test would."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from made_signals import same, shown, with_gradients, with_layers, with_sample
from torch import nn

from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.monitor import CurveMonitor
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.training_figures import CurvePoint

STEPS = 400
MEMORY_BYTES = 5e8


def registered(reweighted=False):
    """Those of a training with the parameters that the made-up signals are of, by class."""
    model = nn.Sequential()
    for name in ("first", "middle", "head"):
        model.add_module(name, nn.Linear(10, 10))
    state = TrainState(model, (torch.optim.AdamW(model.parameters()),))
    plan = SimpleNamespace(last_step=STEPS, steps_per_epoch=100)
    found = all_monitors(
        state, plan, prior_loss=0.69, memory_limit_bytes=8e8, reweighted=reweighted,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    return {type(monitor).__name__: monitor for monitor in found}


def loss_of(level):
    return lambda seen: seen._replace(loss=level(seen.step), squared=level(seen.step) ** 2 + 0.02)


# What each is shown: every update's signals, and every sample.
PLANTED = {
    "StaleGradients": (with_gradients(lambda n, norm: 0.2), same),
    "NotZeroed": (lambda seen: with_gradients(lambda n, norm: norm * (seen.step + 1))(seen), same),
    "RepeatedBatches": (lambda seen: seen._replace(batch=seen.step % 3), same),
    "NotOptimized": (same, with_sample(left_out=("head.weight",))),
    "DeadLayer": (same, with_layers(zero_rows=1.0)),
    "Unchanged": (with_gradients(lambda n, norm: None if n < 4 else norm), same),
    "RoundedAway": (same, with_sample(unchanged=(0.95,) * 6)),
    "UpdateRatio": (same, with_sample(changes=(0.4,) * 6)),
    "WeightsShrink": (
        loss_of(lambda step: 0.69),
        lambda seen: replace(seen, norms=tuple(0.4 ** (seen.step / 20) * norm for norm in seen.norms)),
    ),
    "ConstantPredictions": (loss_of(lambda step: 0.69), with_sample(spread=0.0)),
    "Plateau": (loss_of(lambda step: 0.69), same),
    "RiseAboveBest": (loss_of(lambda step: 0.35 if step < 200 else 0.9), same),
    "WaitsForRows": (lambda seen: seen._replace(seconds=0.15, wait_seconds=0.1), same),
    "ThroughputDrop": (lambda seen: seen._replace(seconds=0.5 if seen.step >= 100 else seen.seconds), same),
    "MemoryGrowth": (same, lambda seen: replace(seen, memory_bytes=MEMORY_BYTES + 2e6 * seen.step)),
    "GpuIdle": (same, with_sample(gpu_busy=0.1)),
    "ReplicasApart": (same, with_sample(replicas=((1, 2, 3, 4, 5, 6), (1, 2, 3, 9, 5, 6)))),
}


def test_every_monitor_of_a_training_has_a_planted_fault_here():
    assert {*PLANTED, "Overfitting"} == set(registered())


@pytest.mark.parametrize("name", PLANTED)
def test_registered_monitor_finds_its_fault_and_nothing_in_a_healthy_training(name):
    every, sampled = PLANTED[name]
    assert shown(registered()[name], STEPS, every, sampled)
    assert shown(registered()[name], STEPS) == []


@pytest.mark.parametrize(("by", "found"), [(0.015, True), (-0.015, False)], ids=["overfitted", "healthy"])
def test_registered_monitor_of_the_curve_finds_a_reserve_that_rises(by, found):
    monitor, of = registered()["Overfitting"], {"rows": 200, "standard_error": 0.01, "learning_rate": 1e-3}
    assert isinstance(monitor, CurveMonitor)
    points = (
        (
            CurvePoint(step=10 * n, loss=0.5 - 0.02 * n, **of),
            CurvePoint(step=10 * n, loss=0.5 + by * n, mode="evaluation", scored="reserve", **of),
        )
        for n in range(12)
    )
    assert any([monitor.after_points(shown) for shown in points]) == found


def test_rise_is_looked_for_where_the_loss_that_is_seen_is_the_one_that_is_trained():
    seen, other = (
        {type(one).__name__ for one in every.values()} for every in (registered(), registered(reweighted=True))
    )
    assert seen - other == {"RiseAboveBest"}
    assert other < seen
