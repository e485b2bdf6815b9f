"""What watching a training costs, beside the bare loop and others; rounds of all take turns in one process."""

from __future__ import annotations

import copy
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.loop import OPTIMIZER, Loop, Setting, Task, _plan, bare, lightning, measure, ours, ratios, settings
from lifecycle.training.loop import train
from lifecycle.training.monitors.all import all_monitors
from lifecycle.training.monitors.watch import Watch
from lifecycle.training.prepare import seed_everything
from lifecycle.training.recipe import make_optimizers, make_recipe
from lifecycle.training.state import TrainData, TrainState, Update
from lifecycle.training.watching.progressive import Progressive
from lifecycle.training_spec import MonitorsSpec, ScheduleSpec, TrainingSpec


def watched(model: nn.Module, data: TrainData, setting: Setting) -> Loop:
    """The product's loop with all monitors, and every EVALUATE_EVERY-th batch scored in evaluation mode beside it."""
    spec = TrainingSpec(
        optimizer=OPTIMIZER, schedule=ScheduleSpec(warmup=0.0, decay="constant"), batch_size=setting.batch_size,
        epochs=1, precision="fp32", clip_norm=1e6, seed=0,
    )  # fmt: skip
    steps = setting.updates * (setting.rounds + 1)
    task: Any = Task
    state = TrainState(model, make_optimizers(task, model, OPTIMIZER))
    plan, recipe = _plan(setting, steps), make_recipe(task, spec, steps)
    watch = Watch(model, MonitorsSpec(), all_monitors(state, plan), steps)
    progressive, windows = Progressive(plan, data, recipe, evaluate_every=EVALUATE_EVERY), [0]

    def run(updates: int) -> float:
        end = state.step + updates

        def after(state: TrainState, update: Update) -> bool:
            closed = state.curve.points[-1] if len(state.curve.points) > windows[0] else None
            beside = progressive.after_step(state, closed)
            if closed is not None:
                windows[0] = len(state.curve.points)
                watch.after_points(state, (closed, *beside))
            return state.step == end

        started = time.process_time()
        train(state, data, plan, recipe, after, watch)
        return (time.process_time() - started) / updates

    return run


# A forward pass is a third of an update: every hundredth batch costs a third of a percent.
EVALUATE_EVERY = 100


def under_anomaly(model: nn.Module, data: TrainData, setting: Setting) -> Loop:
    """The bare loop under detect_anomaly."""
    run_bare = bare(model, data, setting)

    def run(updates: int) -> float:
        with torch.autograd.set_detect_anomaly(True):
            return run_bare(updates)

    return run


def overhead() -> dict[str, float]:
    """Ratios to the bare loop, medians of rounds, in CPU seconds of one thread."""
    seed_everything(0)
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    for name, setting in settings().items():
        model = setting.model()
        data = TrainData({"x": setting.inputs}, (setting.inputs.float().flatten(1).sum(1) > 0).float())
        make: dict[str, Callable[[nn.Module, TrainData, Setting], Loop]] = {
            "bare": bare, "ours": ours, "watched": watched, "anomaly": under_anomaly,
        }  # fmt: skip
        if importlib.util.find_spec("pytorch_lightning") is not None:
            make["lightning"] = lightning
        loops = {kind: one(copy.deepcopy(model), data, setting) for kind, one in make.items()}
        figures |= ratios(name, measure(loops, setting))
    return figures
