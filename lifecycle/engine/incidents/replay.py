"""Replays an incident: from its checkpoint to its step, which is then made again and taken apart.

Of a training by a script of the use case's own no update is made again: only the script knows how its update is made.
What was recorded stands, the checkpoint is verified, and the rows that the script told are looked at.
"""

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

from trainworthy.lifecycle.engine.incidents.record import NUMBERS
from trainworthy.lifecycle.engine.incidents.scene import Scene, open_scene, require_code, require_rows
from trainworthy.lifecycle.engine.incidents.step import (
    AsRecorded,
    Step,
    bad_inputs,
    first_bad,
    guilty_rows,
    make_step,
)
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_finite
from trainworthy.lifecycle.engine.training.checkpoints.made_with import made_with
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.prepare import prepare
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState, Update
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.identity import python_sources, sha256_files
from trainworthy.lifecycle.incidents.incident import Incident, read_incident
from trainworthy.lifecycle.progress import Progress
from trainworthy.lifecycle.protocol.jobs import ReplayJob
from trainworthy.lifecycle.protocol.results import Compared, GuiltyRow, ReplayResult
from trainworthy.lifecycle.protocol.signals import Signals
from trainworthy.lifecycle.provenance import PRODUCT
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint

NUMBERS_NOT_REPORTED = "the script did not tell their numbers (session.step(rows=…))"
# Rows that are told of.
_ROWS_TOLD = 5
# Layers that are told of.
_LAYERS = 3


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


def replay_of_script(folder: Path, incident: Incident, *, changed_code: bool) -> ReplayResult:
    """What is known of the step. Raises IncidentError if code or rows are others by now, and DatasetError."""
    require_code(incident, Path(incident.job.use_case_folder), changed_code)
    require_rows(incident)
    device = choose_device("cpu" if incident.environment.made_with["device"] == "cpu" else "auto")
    rows, rows_evidence, code_sha256 = _rows_of_script(incident, device)
    from_step, origin = _checkpoint_of_script(incident)
    signals = incident.at_step
    norms = [] if signals is None or len(signals.grad_norms) != len(incident.parameters) else signals.grad_norms
    return ReplayResult(
        step=incident.step,
        from_step=from_step,
        from_told=origin,
        reproduced="insufficient",
        tolerance=f"{incident.job.trainer} makes its updates itself, so that none can be made again without it",
        compared=(),
        agreed=0,
        on_the_way=0,
        elsewhere=elsewhere(incident, device, code_sha256),
        first_bad=None,
        rows=rows,
        rows_told=rows_evidence,
        layers=outstanding(incident, incident.step, incident.parameters if norms else (), norms),
        notes=_notes_of_script(incident),
    )


def _rows_of_script(incident: Incident, device: str) -> tuple[tuple[GuiltyRow, ...], str, str]:
    """Rows of the update with inputs that are not finite, what that says, and the hash of the code that made them."""
    # Kept features are left alone: what is to be shown shall hang on rows and code alone.
    prepared = prepare(incident.job.model_copy(update={"kept_features": None}), device)
    numbers, sensitive = incident.batch_rows, bool(incident.job.rows.sensitive_features)
    if not numbers:
        why = "they did not fit into the incident" if NUMBERS in incident.left_out else NUMBERS_NOT_REPORTED
        return (), f"not known: {why}", prepared.code_sha256
    batch = prepared.data.take(torch.tensor(numbers, device=device))
    reasons = {place: why for place in range(len(numbers)) if (why := bad_inputs(batch, place))}
    keys = dict(enumerate(incident.row_keys))
    rows = tuple(
        GuiltyRow(
            row=numbers[place],
            key=keys.get(place, {}),
            told="why is not told, since a feature is sensitive" if sensitive else why,
        )
        for place, why in list(reasons.items())[:_ROWS_TOLD]
    )
    evidence = f"{len(reasons)} of {len(numbers)} that the script told have inputs that are not finite"
    return (
        rows,
        f"{evidence}; which of the others did it is not known" if not reasons else evidence,
        prepared.code_sha256,
    )


def _checkpoint_of_script(incident: Incident) -> tuple[int, str]:
    """The step of the checkpoint that the incident names, and what became of it."""
    if incident.checkpoint is None:
        return 0, "the script had written no checkpoint before"
    path = Path(incident.checkpoint.path)
    try:
        step = int(verify_checkpoint(path, identity=incident.identity)["step"])
    except CheckpointError as error:
        return 0, f"{path.name} is no longer what it was: {error.problem}"
    return step, f"the script's newest checkpoint before it, sound: {path / 'files'}"


def _notes_of_script(incident: Incident) -> tuple[str, ...]:
    """What was recorded of the step."""
    signals = incident.at_step
    if signals is None:
        return ("no signals of this step were recorded",)
    norm = f"gradient norm {signals.grad_norm:.9g}" if signals.grad_norms else "no gradient was seen"
    # Told, one that is not finite would be the alarm.
    later = math.isnan(signals.loss) and incident.alarm.monitor != "non_finite_loss"
    loss = "the loss is told after the update, and there was none" if later else f"loss {signals.loss:.9g}"
    return (f"recorded: {loss}; {norm}",)


def elsewhere(incident: Incident, device: str, code_sha256: str) -> tuple[str, ...]:
    """What the bits hang on and is different from when it was recorded."""
    made = incident.environment
    other = [f"{name} {value} instead of {made.made_with[name]}" for name, value in made_with(device).items()
             if made.made_with.get(name, value) != value]  # fmt: skip
    if incident.job.training.compile:
        # What is compiled shows no operation.
        other.append("updates as they are written instead of compiled ones")
    if code_sha256 != made.code_sha256:
        other.append("other code of the use case")
    if sha256_files(python_sources(PRODUCT / "lifecycle", skip=("report",))) != made.trainworthy_sha256:
        other.append("other code of Trainworthy")
    return tuple(other)


def outstanding(incident: Incident, step: int, names: Sequence[str], norms: Sequence[float | None]) -> tuple[str, ...]:
    """The parameters whose gradient stands out most from what was recorded before the step."""
    before = [signals for signals in incident.signals if signals.step < step and len(signals.grad_norms) == len(names)]
    deviations: list[tuple[float, str]] = []
    for place, (name, norm) in enumerate(zip(names, norms, strict=True)):
        if norm is None:
            continue
        if not math.isfinite(norm):
            deviations.append((math.inf, f"{name}: its gradient is not finite"))
            continue
        usual_norms = [signals.grad_norms[place] for signals in before]
        usual = statistics.median(
            [value for value in usual_norms if value is not None and math.isfinite(value)] or [0.0]
        )
        if usual > 0:
            times = norm / usual
            text = f"{name}: gradient norm {norm:.3g}, {times:.3g} times its median before"
            deviations.append((abs(math.log(times)) if times else math.inf, text))
    return tuple(text for _, text in sorted(deviations, reverse=True)[:_LAYERS])
