"""An incident's training as it was: model, optimizers, rows and order, from where it was recorded or a portable folder.

A portable folder holds `code/`, `preprocessing.json`, `batches.pt` with the tensors of each step, and `checkpoint/`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import load_checkpoint
from trainworthy.lifecycle.engine.training.monitors.row_keys import keys_of
from trainworthy.lifecycle.engine.training.prepare import prepare, seed_everything
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import (
    Batches,
    Recipe,
    Share,
    Stateful,
    TrainData,
    TrainState,
    whole,
)
from trainworthy.lifecycle.engine.training.techniques.scaler import scaler_of
from trainworthy.lifecycle.errors import CheckpointError, IncidentError
from trainworthy.lifecycle.identity import python_sources, sha256_file, sha256_files
from trainworthy.lifecycle.incidents.incident import Incident
from trainworthy.lifecycle.plan import Plan, make_plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.storage.checkpoints import checkpoints_in
from trainworthy.lifecycle.task import Task, load_task


@dataclass(frozen=True)
class Scene:
    """All that an update is made of. `folder` is the code's; `origin` says where the state comes from.

    `rows` gives the numbers of the rows of a step's batch, `keys` their keys, none where they are not known.
    """

    task: Task
    folder: Path
    code_sha256: str
    preprocessing: dict[str, Any]
    state: TrainState
    data: Batches
    recipe: Recipe
    plan: Plan
    device: str
    origin: str
    checkpoint: Path | None
    rows: Callable[[int], tuple[int, ...]]
    keys: Callable[[int], tuple[dict[str, str], ...]]


@dataclass
class CarriedState:
    """A part of the state that changes no update: carried along as it was read."""

    saved: dict[str, Any]

    def state_dict(self) -> dict[str, Any]:
        return self.saved

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.saved = state


@dataclass(frozen=True)
class PackedBatches:
    """The batches of a portable folder, by step; rows of a batch are numbered from 0."""

    steps: Mapping[int, dict[str, Any]]
    device: str

    def batches(self, plan: Plan, first_step: int, share: Share = whole) -> Generator[tuple[TrainData, Tensor]]:
        """Data of each step from `first_step` on, and the numbers of its rows therein: all of them, in order."""
        for step in range(first_step, plan.last_step):
            made = self.steps[step]
            data = TrainData(made["inputs"], made["targets"], made["weights"]).to(self.device)
            yield data, share(torch.arange(len(data.targets), device=self.device))


def is_portable(folder: Path) -> bool:
    """True if the folder holds its own code and batches."""
    return (folder / "batches.pt").is_file()


def open_scene(folder: Path, incident: Incident, out: Path, *, changed_code: bool = False) -> Scene:
    """The training at the incident's checkpoint, on the device that it ran on where there is one.

    Nothing is written but in `out`, where rows that stay on the disk are mapped.

    Raises IncidentError, CheckpointError, DatasetError.
    """
    device = choose_device("cpu" if incident.environment.made_with["device"] == "cpu" else "auto")
    return _packed(folder, incident, device) if is_portable(folder) else _local(incident, device, out, changed_code)


def _local(incident: Incident, device: str, out: Path, changed_code: bool) -> Scene:
    # Kept features are left alone: what is to be shown shall hang on rows and code alone.
    job = incident.job.model_copy(update={"kept_features": None})
    require_code(incident, Path(job.use_case_folder), changed_code)
    require_rows(incident)
    prepared = prepare(job, device, out)
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage, prepared.oversampled)
    if plan.model_copy(update={"oversampled": None}) != incident.plan:
        fix = "replay it by the version of Trainworthy that recorded it"
        raise IncidentError("the stage's rows or their order are not those of the incident", fix=fix)
    recipe, data = make_recipe(prepared.task, job.training, plan.horizon_steps), prepared.data
    if isinstance(data, LoadedRows):
        data, recipe = data.in_loaders(recipe)
    checkpoints = _checkpoints(incident)
    state, origin, used = _state(prepared.task, job, incident.identity, prepared.preprocessing, device, checkpoints)
    rows = lambda step: tuple(plan.batch(step).tolist())
    keys = lambda step: keys_of(prepared, job, rows(step))
    return Scene(
        prepared.task, Path(job.use_case_folder), prepared.code_sha256, prepared.preprocessing, state, data, recipe,
        plan, device, origin, used, rows, keys,
    )  # fmt: skip


def _packed(folder: Path, incident: Incident, device: str) -> Scene:
    code, job = folder / "code", incident.job
    try:
        steps = torch.load(folder / "batches.pt", weights_only=True, map_location="cpu")
        preprocessing = json.loads((folder / "preprocessing.json").read_text())
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        fix = "copy the folder again from where it was made"
        raise IncidentError(f"the portable incident cannot be read: {error}", value=str(folder), fix=fix) from None
    task = load_task(code)
    recipe = make_recipe(task, job.training, incident.plan.horizon_steps)
    if job.training.tensors == "per_batch":
        # Its loaders had augmented what they made.
        recipe = Recipe(**{**vars(recipe), "augment": None})
    checkpoints = [(path, None) for path in (folder / "checkpoint").glob("step-*")]
    state, origin, used = _state(task, job, incident.identity, preprocessing, device, checkpoints)
    data = PackedBatches(steps, device)
    return Scene(
        task, code, code_sha256(code), preprocessing, state, data, recipe, incident.plan, device, origin, used,
        lambda step: tuple(steps[step]["rows"]), lambda step: incident.row_keys if step == incident.step else (),
    )  # fmt: skip


def code_sha256(folder: Path) -> str:
    """Hash of a use case's code, as a training has it."""
    return sha256_files(python_sources(folder))


def require_code(incident: Incident, folder: Path, changed_code: bool) -> None:
    """Raises IncidentError if the use case's code is another one by now."""
    made = incident.environment
    if not (folder / "model.py").is_file():
        raise IncidentError("the use case's folder is not there", value=str(folder), fix="replay a portable incident")
    if changed_code or code_sha256(folder) == made.code_sha256:
        return
    commit = f"git checkout {made.git_commit}" if made.git_commit and not made.git_dirty else "restore it"
    raise IncidentError(
        "the use case's code is not the one that met the incident",
        value=str(folder),
        fix=f"{commit}, or replay with --changed-code to see whether the new code does it too",
    )


def require_rows(incident: Incident) -> None:
    """Raises IncidentError if the training rows are others by now."""
    file = incident.rows_file
    if not Path(file.path).is_file() or sha256_file(Path(file.path)) != file.sha256:
        fix = f"materialize {incident.use_case}/snapshot again on the same dataset version, or replay a portable folder"
        raise IncidentError("the snapshot's training rows are gone or were changed", value=file.path, fix=fix)


def _state(
    task: Task, job: TrainJob, identity: str, preprocessing: dict[str, Any], device: str,
    checkpoints: Sequence[tuple[Path, str | None]],
) -> tuple[TrainState, str, Path | None]:  # fmt: skip
    """The state of the first sound checkpoint of those, else of the stage's beginning; what it is, where it lies.

    A training removes its old checkpoints: the way from further back gives the same bits and takes longer.
    """
    refused = []
    for path, sha256 in checkpoints:
        state = _fresh(task, job, preprocessing, device)
        try:
            load_checkpoint(path, identity, state, sha256)
        except CheckpointError as error:
            refused.append(f"{path.name}: {error.problem}")
        else:
            return state, "; ".join((f"from the checkpoint of step {state.step}", *refused)), path
    if job.start is not None:
        fix = "run the stage before again, or replay a portable incident"
        raise IncidentError("no checkpoint of the incident's training is left", value=refused, fix=fix)
    reasons = "; ".join(refused) or "no checkpoint was written before"
    return _fresh(task, job, preprocessing, device), f"from the stage's beginning, since {reasons}", None


def _checkpoints(incident: Incident) -> list[tuple[Path, str | None]]:
    """The incident's own, then what the stage still has of before its onset, newest first."""
    own = incident.checkpoint
    older = [
        path
        for path in checkpoints_in(Path(incident.job.out) / "checkpoints")
        if int(path.name.removeprefix("step-")) <= min(incident.alarm.onset, incident.step)
    ]
    start = incident.job.start
    named = [] if own is None else [(Path(own.path), own.sha256)]
    first = [] if start is None else [(Path(start.path), start.sha256)]
    return [*named, *((path, None) for path in older), *first]


def _fresh(task: Task, job: TrainJob, preprocessing: dict[str, Any], device: str) -> TrainState:
    """As stage.py begins: the same seed, model, optimizers and scaler. What changes no update is only carried along."""
    seed_everything(job.training.seed)
    model = task.build_model(preprocessing, job.hyperparameters).to(device)
    state = TrainState(model, make_optimizers(task, model, job.training.optimizer))
    parts: dict[str, Stateful] = {**scaler_of(job.training.precision)}
    if job.training.ema is not None:
        parts["average"] = CarriedState({})
    if job.training.early_stopping is not None:
        parts["early_stopping"] = CarriedState({})
    state.also |= parts
    return state
