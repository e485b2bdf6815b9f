"""Replays an incident: from its checkpoint to its step, which is then made again and taken apart."""

from __future__ import annotations

import base64
import itertools
import math
import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.incidents.deviations import elsewhere, outstanding
from trainworthy.lifecycle.engine.incidents.rows import guilty_rows
from trainworthy.lifecycle.engine.incidents.scene import Scene, open_scene
from trainworthy.lifecycle.engine.incidents.script import replay_of_script
from trainworthy.lifecycle.engine.incidents.step import AsRecorded, Step, first_bad, make_step
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_finite
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState, Update
from trainworthy.lifecycle.incidents.incident import Incident, read_incident
from trainworthy.lifecycle.progress import Progress
from trainworthy.lifecycle.protocol.jobs import ReplayJob
from trainworthy.lifecycle.protocol.results import Compared, ReplayResult
from trainworthy.lifecycle.protocol.signals import Signals


def run_replay(job: ReplayJob) -> ReplayResult:
    """Do the incident's step again and say what it shows. Raises IncidentError, CheckpointError, DatasetError."""
    folder = Path(job.incident)
    incident = read_incident(folder)
    if incident.job.trainer is not None:
        return replay_of_script(folder, incident, changed_code=job.changed_code)
    # Sums of several threads are added up in another order.
    torch.set_num_threads(int(incident.environment.made_with["threads"]))
    scene = open_scene(folder, incident, Path(job.out), changed_code=job.changed_code)
    from_step = scene.state.step
    way = _go(scene, incident, incident.step)
    notes = list[str]()
    if scene.state.step < incident.step:
        notes.append(f"the update of step {scene.state.step} spoiled the weights, so that it is looked at")
        at, scene = scene.state.step, open_scene(folder, incident, Path(job.out), changed_code=job.changed_code)
        way = _go(scene, incident, at)
    notes += _random_notes(scene, incident)
    step = make_step(scene, *_batch(scene), AsRecorded(incident.done))
    reproduced, tolerance, compared = _reproduced(incident, step, way)
    bad = first_bad(step)
    rows, rows_evidence = guilty_rows(step, sensitive=bool(incident.job.rows.sensitive_features))
    names = [name for name, _ in scene.state.model.named_parameters()]
    return ReplayResult(
        step=step.number,
        from_step=from_step,
        from_told=scene.origin,
        reproduced=reproduced,
        tolerance=tolerance,
        compared=compared,
        agreed=sum(difference == 0 for difference in way),
        on_the_way=len(way),
        elsewhere=elsewhere(incident, scene.device, scene.code_sha256),
        first_bad=bad,
        rows=rows,
        rows_told=rows_evidence,
        layers=outstanding(incident, step.number, names, step.update.grad_norms),
        notes=tuple(notes),
    )


def _go(scene: Scene, incident: Incident, to_step: int) -> list[float]:
    """Train to a step, or to the first before it whose update spoils the weights.

    By how much each update that was recorded differs, relative to it.
    """
    recorded = {signals.step: signals for signals in incident.signals}
    differences, spoiled = list[float](), list[int]()
    progress = Progress("replay: step", to_step, scene.state.step)

    def after_step(state: TrainState, update: Update) -> bool:
        progress.advance()
        if state.step - 1 in recorded:
            differences.append(_difference(recorded[state.step - 1], update))
        if not parameters_finite(state.model):
            spoiled.append(state.step - 1)
        return bool(spoiled)

    plan = scene.plan.model_copy(update={"last_step": to_step})
    train(scene.state, scene.data, plan, scene.recipe, after_step, AsRecorded(incident.done).watch)
    progress.close()
    if spoiled:
        scene.state.step = spoiled[0]
    return differences


def _batch(scene: Scene) -> tuple[TrainData, Tensor]:
    scene.state.model.train()
    plan = scene.plan.model_copy(update={"last_step": scene.state.step + 1})
    with closing(scene.data.batches(plan, scene.state.step)) as batches:
        return next(batches)


def _random_notes(scene: Scene, incident: Incident) -> tuple[str, ...]:
    if incident.random.get("torch") in (None, base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()):
        return ()
    return ("torch's random numbers are not where they were: something draws from them that is no part of an update",)


def _difference(recorded: Signals, update: Update) -> float:
    """The largest relative difference of loss and gradient norm; 0 if their bits are equal."""
    return max(_relative(recorded.loss, update.loss), _relative(recorded.grad_norm, update.grad_norm))


def _relative(recorded: float, replayed: float) -> float:
    if recorded == replayed or (math.isnan(recorded) and math.isnan(replayed)):
        return 0.0
    if not (math.isfinite(recorded) and math.isfinite(replayed)):
        # Whether it is NaN or infinite may hang on the order of a sum.
        return 0.0 if math.isfinite(recorded) == math.isfinite(replayed) else math.inf
    return abs(replayed - recorded) / max(abs(recorded), abs(replayed))


def _reproduced(
    incident: Incident, step: Step, way: Sequence[float]
) -> tuple[Literal["bit_for_bit", "within_tolerance", "not"], str, tuple[Compared, ...]]:
    """Whether the step came out again, within what, and its figures side by side."""
    signals, update = next((signals for signals in incident.signals if signals.step == step.number), None), step.update
    if signals is None:
        return "not", "no signals of this step were recorded", ()
    pairs = {"loss": (signals.loss, update.loss), "gradient norm": (signals.grad_norm, update.grad_norm)}
    compared = tuple(
        Compared(
            name=name,
            recorded=f"{recorded:.9g}",
            replayed=f"{replayed:.9g}",
            equal=recorded == replayed or (math.isnan(recorded) and math.isnan(replayed)),
            difference=_relative(recorded, replayed) if math.isfinite(_relative(recorded, replayed)) else None,
        )
        for name, (recorded, replayed) in pairs.items()
    )
    if all(figure.equal for figure in compared) and not any(way):
        return "bit_for_bit", "", compared
    largest = max([*way, *(math.inf if figure.difference is None else figure.difference for figure in compared)])
    usual = _usual_change(incident.signals)
    tolerance = f"{largest:.1e} relative; from one update to the next the recorded loss changes by {usual:.1e}"
    return ("within_tolerance" if largest < usual else "not"), tolerance, compared


def _usual_change(signals: Sequence[Signals]) -> float:
    """The median relative change of the loss between neighbouring updates: a smaller difference means nothing."""
    losses = [signal.loss for signal in signals if math.isfinite(signal.loss)]
    changes = [_relative(before, after) for before, after in itertools.pairwise(losses)]
    return statistics.median(changes) if changes else 0.0
