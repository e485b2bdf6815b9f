"""What watching a training costs, beside the bare loop and others; rounds of all take turns in one process."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.loop import Loop, Setting, bare, loops, made, measure, ratios, settings
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState, Update
from trainworthy.lifecycle.engine.training.watching.progressive import Progressive
from trainworthy.lifecycle.spec.training import MonitorsSpec


def watched(model: nn.Module, data: TrainData, setting: Setting) -> Loop:
    """The product's loop with all monitors, and every EVALUATE_EVERY-th batch scored in evaluation mode beside it."""
    state, plan, recipe = made(model, setting)
    watch = Watch(model, MonitorsSpec(), all_monitors(state, plan), plan.last_step)
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

        started = setting.clock()
        train(state, data, plan, recipe, after, watch)
        return (setting.clock() - started) / updates

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


def overhead(short: bool) -> dict[str, float]:
    """Ratios to the bare loop, medians of rounds, in CPU seconds of one thread."""
    seed_everything(0)
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    for name, setting in settings(short).items():
        beside = {"watched": watched, "anomaly": under_anomaly}
        figures |= ratios(name, measure(loops(setting, beside), setting))
    return figures
