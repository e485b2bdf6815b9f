"""One stage of training, from job to answer: rows, preprocessing, model, loop, validation, export."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.data.rows import read_rows
from lifecycle.errors import Problem, UseCaseError
from lifecycle.identity import python_sources, sha256_files
from lifecycle.jobs import Alarm, CheckpointRef, Learned, TrainJob, TrainResult
from lifecycle.progress import Progress, say
from lifecycle.task import Task, fit_preprocessing, load_task
from lifecycle.training.checkpoint import load_checkpoint, load_newest, parameters_sha256, save_checkpoint
from lifecycle.training.features import prepared_features
from lifecycle.training.loop import TrainData, TrainState, train
from lifecycle.training.plan import MIN_STEPS, Plan, make_plan, stage_rows
from lifecycle.training.recipe import make_optimizers, make_recipe
from lifecycle.training.scoring import choose_device, predict_rows
from lifecycle.training.weights import log_odds_shift, row_weights

if TYPE_CHECKING:
    import pandas as pd
    import torch

# An equal rerun must meet the parameters after this many updates.
PREFIX_STEPS = 20


class PreemptedError(Exception):
    """Asked to end (SIGTERM); the checkpoint at the step boundary is written."""


@dataclass(frozen=True)
class Prepared:
    """What a stage trains on; `code_sha256` is the hash of the use case's code as it was loaded."""

    task: Task
    code_sha256: str
    rows: pd.DataFrame
    preprocessing: dict[str, Any]
    data: TrainData
    log_odds_shift: float = 0.0
    notes: tuple[str, ...] = ()


def run_stage(
    job: TrainJob,
    should_stop: Callable[[], bool] = lambda: False,
    forward: Callable[[str], None] | None = None,
) -> TrainResult:
    """Train the stage, resuming from its newest checkpoint.

    Raises PreemptedError, CheckpointError, DatasetError, and UseCaseError if the code changes meanwhile.
    """
    device = choose_device(job.device)
    prepared = prepare(job, device)
    state, notes = _start(job, prepared, device)
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage)
    resumed_from, started = state.step, time.perf_counter()
    if resumed_from:
        say(f"{job.stage}: resumed from step {resumed_from} of {plan.last_step}")
    alarm = _train(job, state, prepared, plan, should_stop, forward)
    seconds = time.perf_counter() - started
    checkpoint = None if alarm or job.stop_after_steps else _save(job, state)
    whole = alarm is None and job.stop_after_steps is None
    metrics, learned = _validate(job, prepared, state, device) if whole else ({}, None)
    artifact = _export(job, prepared, state, device) if whole and job.stage == "full" else None
    metrics["peak_memory_bytes"] = float(peak_memory_bytes())
    return TrainResult(
        alarm=alarm,
        rows=len(prepared.rows),
        steps=state.step,
        planned_steps=plan.last_step,
        resumed_from_step=resumed_from,
        notes=prepared.notes + notes,
        parameters=sum(parameter.numel() for parameter in state.model.parameters()),
        parameters_sha256=parameters_sha256(state.model),
        prefix_steps=min(PREFIX_STEPS, plan.horizon_steps),
        prefix_sha256=state.prefix_sha256,
        checkpoint=checkpoint,
        metrics=metrics,
        learned=learned,
        curve=tuple(state.curve.points),
        artifact=artifact[0] if artifact else None,
        artifact_sha256=artifact[1] if artifact else None,
        device=device,
        gpu_seconds=seconds if device == "cuda" else 0.0,
    )


def peak_memory_bytes() -> int:
    """Peak resident memory of this process, so that it can be held against the forecast.

    Linux's ru_maxrss starts from the size of the process that started this one: a worker of 500 MB
    started from one of 2 GB said 2 GB. VmHWM starts anew.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        # In bytes on macOS; in KiB where there is no /proc.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def seed_everything(seed: int) -> None:
    """Seed every generator a use case may draw from, and ask torch for deterministic kernels."""
    import numpy as np
    import torch

    # cuBLAS needs this for deterministic kernels, before its first use.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


def prepare(job: TrainJob, device: str) -> Prepared:
    """The stage's rows and tensors; preprocessing is fitted on these training rows only.

    In mode continue every stage sees all training rows, since the stages are pauses of one run.
    """
    import torch

    code = _code_sha256(job)
    task = load_task(Path(job.use_case_folder))
    rows = read_rows(job.training_file, job.rows, (job.rows.weight,) if job.rows.weight else ())
    rows_sha256 = "all"
    if job.stages.mode == "restart":
        chosen = stage_rows(rows[job.rows.label].to_numpy(), job.stages.fraction(job.stage), job.training.seed)
        rows, rows_sha256 = rows.iloc[chosen].reset_index(drop=True), hashlib.sha256(chosen.tobytes()).hexdigest()
    seed_everything(job.training.seed)
    features = rows[list(job.rows.features)]
    preprocessing = fit_preprocessing(task, features, job.hyperparameters)
    inputs, notes = prepared_features(job, task, features, preprocessing, rows_sha256, code)
    data = _on_device(inputs, rows[job.rows.label], device)
    labels, given = rows[job.rows.label].to_numpy(), rows[job.rows.weight].to_numpy() if job.rows.weight else None
    weights = row_weights(labels, job.training.class_weights, given)
    if weights is not None:
        data = replace(data, weights=torch.tensor(weights, dtype=torch.float32, device=device))
    return Prepared(task, code, rows, preprocessing, data, log_odds_shift(labels, weights), notes)


def _code_sha256(job: TrainJob) -> str:
    return sha256_files(python_sources(Path(job.use_case_folder)))


def _require_same_code(job: TrainJob, prepared: Prepared) -> None:
    """An artifact with other code than the trained one would score with weights that do not belong to it."""
    if _code_sha256(job) != prepared.code_sha256:
        problem = "the use case's code changed during the training"
        raise UseCaseError(Path(job.use_case_folder).name, [Problem("model.py", problem, "run the training again")])


def to_train_data(task: Task, rows: pd.DataFrame, preprocessing: dict[str, Any], job: Any, device: str) -> TrainData:
    """Whole tensors on the device; the model's code sees the declared features and nothing else."""
    inputs = task.to_tensors(rows[list(job.rows.features)], preprocessing)
    return _on_device(inputs, rows[job.rows.label], device)


def _on_device(inputs: Mapping[str, torch.Tensor], labels: pd.Series, device: str) -> TrainData:
    import torch

    targets = torch.tensor(labels.to_numpy(), dtype=torch.float32)
    return TrainData({name: tensor.to(device) for name, tensor in inputs.items()}, targets.to(device))


def _start(job: TrainJob, prepared: Prepared, device: str) -> tuple[TrainState, tuple[str, ...]]:
    """A fresh state, then the stage's own newest checkpoint, else the one of the stage before."""
    seed_everything(job.training.seed)
    model = prepared.task.build_model(prepared.preprocessing, job.hyperparameters).to(device)
    state = TrainState(model, make_optimizers(prepared.task, model, job.training.optimizer))
    found, notes = load_newest(_checkpoint_folder(job), job.identity, state)
    if not found and job.start is not None:
        load_checkpoint(Path(job.start.path), job.identity, state, job.start.sha256)
    return state, notes


def _checkpoint_folder(job: TrainJob) -> Path:
    return Path(job.out) / "checkpoints"


def _save(job: TrainJob, state: TrainState) -> CheckpointRef:
    return save_checkpoint(_checkpoint_folder(job), job.identity, state)


def _train(
    job: TrainJob,
    state: TrainState,
    prepared: Prepared,
    plan: Plan,
    should_stop: Callable[[], bool],
    forward: Callable[[str], None] | None,
) -> Alarm | None:
    progress = Progress(f"{job.stage}: step", plan.last_step, state.step, forward)

    def after_step(state: TrainState, loss: float) -> bool:
        progress.advance(f"loss {loss:.4f}")
        if state.step == min(PREFIX_STEPS, plan.horizon_steps):
            state.prefix_sha256 = parameters_sha256(state.model)
        if should_stop():
            _save(job, state)
            raise PreemptedError
        if state.step % job.training.checkpoint_every_steps == 0 and state.step < plan.last_step:
            _save(job, state)
        return state.step == job.stop_after_steps

    try:
        recipe = make_recipe(prepared.task, job.training, plan.horizon_steps)
        alarm = train(state, prepared.data, plan, recipe, after_step)
    finally:
        progress.close()
    return None if alarm is None else _with_rows(alarm, job, prepared, plan)


def _with_rows(alarm: Alarm, job: TrainJob, prepared: Prepared, plan: Plan) -> Alarm:
    """Name the rows of the bad batch: those with inputs that are not finite, else the first of the batch."""
    import torch

    batch = plan.batch(alarm.step)
    bad = torch.zeros(len(batch), dtype=torch.bool)
    for tensor in prepared.data.inputs.values():
        if tensor.is_floating_point():
            bad |= ~torch.isfinite(tensor[batch.to(tensor.device)]).flatten(1).all(dim=1).cpu()
    named = batch[bad] if bool(bad.any()) else batch
    keys = prepared.rows.iloc[named[:20].tolist()][list(job.rows.keys)]
    shown = tuple({str(name): str(value) for name, value in row.items()} for row in keys.to_dict("records"))
    return alarm.model_copy(update={"row_keys": shown})


def _validate(
    job: TrainJob, prepared: Prepared, state: TrainState, device: str
) -> tuple[dict[str, float], Learned | None]:
    """Metrics on the validation split, and at the pilot whether the network has learned something.

    Every row counts once, and what the training's weights added to the log-odds is taken out.
    """
    import numpy as np

    from lifecycle.evaluation.calibration import apply_platt
    from lifecycle.evaluation.metrics import auc, log_loss
    from lifecycle.training.learned import cross_fitted_linear, measure_learned

    rows = read_rows(job.validation_file, job.rows)
    labels, groups = rows[job.rows.label].to_numpy(), rows[job.rows.group].to_numpy()
    probabilities = predict_rows(
        prepared.task, state.model, prepared.preprocessing, rows[list(job.rows.features)], device
    )
    if prepared.log_odds_shift:
        probabilities = apply_platt(probabilities, {"slope": 1.0, "intercept": -prepared.log_odds_shift})
    prior = float(prepared.rows[job.rows.label].mean())
    metrics = {
        "val_loss": float(log_loss(labels, probabilities).mean()),
        "val_auc": float(auc(labels, probabilities)),
        "val_loss_of_prior": float(log_loss(labels, np.full(len(labels), prior)).mean()),
    }
    if job.stage != "pilot":
        return metrics, None
    linear = cross_fitted_linear(rows, job.rows, job.training.seed)
    return metrics, measure_learned(labels, probabilities, linear, groups, prior, job.training.seed)


def _export(job: TrainJob, prepared: Prepared, state: TrainState, device: str) -> tuple[str, str]:
    """Calibrate on the calibration split, then write the artifact that will be evaluated and shipped.

    Raises UseCaseError if the code on disk, which is copied, is no longer the code that was trained.
    """
    from lifecycle.artifact import write_artifact
    from lifecycle.evaluation.calibration import fit_platt
    from lifecycle.golden import draw_requests

    _require_same_code(job, prepared)
    rows = read_rows(job.calibration_file, job.rows)
    features = rows[list(job.rows.features)]
    probabilities = predict_rows(prepared.task, state.model, prepared.preprocessing, features, device)
    calibration = fit_platt(rows[job.rows.label].to_numpy(), probabilities)
    validation = read_rows(job.validation_file, job.rows)[list(job.rows.features)]
    return write_artifact(
        Path(job.out) / "artifact",
        task_folder=Path(job.use_case_folder),
        model=state.model,
        example=prepared.task.to_tensors(features.head(MIN_STEPS), prepared.preprocessing),
        preprocessing=prepared.preprocessing,
        calibration=calibration,
        requests=draw_requests(validation, job.rows.sensitive, job.training.seed, (prepared.rows, features)),
    )
