"""One stage of training, from job to answer: rows, preprocessing, model, loop, validation, export."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lifecycle.jobs import Alarm, TrainJob, TrainResult
from lifecycle.progress import Progress, say
from lifecycle.training.checkpoint import parameters_sha256
from lifecycle.training.checkpointing import Checkpoints, open_checkpoints, resume
from lifecycle.training.export import export
from lifecycle.training.loop import TrainState, train
from lifecycle.training.plan import Plan, make_plan
from lifecycle.training.prepare import Prepared, prepare, seed_everything
from lifecycle.training.recipe import make_optimizers, make_recipe
from lifecycle.training.scoring import choose_device
from lifecycle.training.validate import validate

# An equal rerun must meet the parameters after this many updates.
PREFIX_STEPS = 20


class PreemptedError(Exception):
    """Asked to end (SIGTERM); the checkpoint at the step boundary is written."""


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
    with open_checkpoints(job, state) as checkpoints:
        alarm = _train(job, state, prepared, plan, checkpoints, should_stop, forward)
        seconds = time.perf_counter() - started
        checkpoint = None if alarm or job.stop_after_steps else checkpoints.last(state)
        notes += checkpoints.told()
    whole = alarm is None and job.stop_after_steps is None
    metrics, learned = validate(job, prepared, state, device) if whole else ({}, None)
    artifact = export(job, prepared, state, device) if whole and job.stage == "full" else None
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


def _start(job: TrainJob, prepared: Prepared, device: str) -> tuple[TrainState, tuple[str, ...]]:
    """A fresh state, then the stage's own newest checkpoint, else the one of the stage before."""
    seed_everything(job.training.seed)
    model = prepared.task.build_model(prepared.preprocessing, job.hyperparameters).to(device)
    state = TrainState(model, make_optimizers(prepared.task, model, job.training.optimizer))
    return state, resume(job, state)


def _train(
    job: TrainJob,
    state: TrainState,
    prepared: Prepared,
    plan: Plan,
    checkpoints: Checkpoints,
    should_stop: Callable[[], bool],
    forward: Callable[[str], None] | None,
) -> Alarm | None:
    progress = Progress(f"{job.stage}: step", plan.last_step, state.step, forward)

    def after_step(state: TrainState, loss: float) -> bool:
        progress.advance(f"loss {loss:.4f}")
        if state.step == min(PREFIX_STEPS, plan.horizon_steps):
            state.prefix_sha256 = parameters_sha256(state.model)
        if should_stop():
            checkpoints.last(state)
            raise PreemptedError
        if state.step < plan.last_step:
            checkpoints.after_step(state)
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
