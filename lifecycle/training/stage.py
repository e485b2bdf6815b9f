"""One stage of training, from job to answer: rows, preprocessing, model, loop, validation, export."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from lifecycle.jobs import Alarm, TrainJob, TrainResult
from lifecycle.progress import say
from lifecycle.training.checkpoints.checkpoint import parameters_sha256
from lifecycle.training.checkpoints.checkpointing import open_checkpoints, resume
from lifecycle.training.export import export
from lifecycle.training.flight import PREFIX_STEPS, Flight, open_flight
from lifecycle.training.loop import TrainState, train
from lifecycle.training.plan import Plan, make_plan
from lifecycle.training.prepare import Prepared, prepare, seed_everything
from lifecycle.training.recipe import make_optimizers, make_recipe
from lifecycle.training.rows.loading import LoadedRows
from lifecycle.training.scoring import choose_device
from lifecycle.training.techniques.deadline import Deadline
from lifecycle.training.techniques.parts import early_stopping_of, make_parts, put_final_weights, told
from lifecycle.training.validate import validate
from lifecycle.training.watching import clock
from lifecycle.training.watching.progressive import Progressive, make_progressive


def run_stage(
    job: TrainJob,
    should_stop: Callable[[], bool] = lambda: False,
    forward: Callable[[str], None] | None = None,
    spent: Mapping[int, float] | None = None,
) -> TrainResult:
    """Train the stage, resuming from its newest checkpoint. `spent` are seconds before this call, by part of the clock.

    Raises PreemptedError, CheckpointError, DatasetError, and UseCaseError if the code changes meanwhile.
    """
    with closing(clock.Clock.open(Path(job.out) / "seconds.bin", spent or {})) as seconds:
        if job.trainer is not None:
            from lifecycle.trainers.stage import train_by_script

            return train_by_script(job, seconds, should_stop, forward)
        return _run(job, seconds, should_stop, forward)


def _run(
    job: TrainJob, seconds: clock.Clock, should_stop: Callable[[], bool], forward: Callable[[str], None] | None
) -> TrainResult:
    began, device = time.perf_counter(), choose_device(job.device)
    prepared = prepare(job, device)
    prepare_seconds = time.perf_counter() - began
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage)
    state, progressive, notes = _start(job, prepared, plan, device)
    deadline = Deadline(job, prepare_seconds / len(prepared.rows), plan.batch_size)
    state.clock, resumed_from = seconds, state.step
    if resumed_from:
        say(f"{job.stage}: resumed from step {resumed_from} of {plan.last_step}")
    seconds.lap(clock.START)
    seconds.resume(resumed_from)
    stopping, alarm, began = early_stopping_of(state), None, time.perf_counter()
    with open_checkpoints(job, state) as checkpoints:
        with open_flight(job, state, plan, progressive, checkpoints, deadline, should_stop, forward) as flight:
            if stopping is None or not stopping.ended:
                alarm = _train(state, prepared, flight)
        trained = time.perf_counter() - began
        checkpoint = None if alarm or job.stop_after_steps else checkpoints.last(state)
        notes += checkpoints.told()
    whole = alarm is None and job.stop_after_steps is None and not deadline.reached
    notes += told(state, plan.last_step) + flight.trace.told()
    if whole:
        put_final_weights(state)
    metrics, learned = validate(job, prepared, state, device) if whole else ({}, None)
    seconds.lap(clock.VALIDATION)
    artifact = export(job, prepared, state, device) if whole and job.stage == "full" else None
    seconds.lap(clock.EXPORT)
    metrics["peak_memory_bytes"] = float(peak_memory_bytes())
    return TrainResult(
        alarm=alarm,
        rows=len(prepared.rows),
        steps=state.step,
        planned_steps=plan.last_step,
        ended="budget" if deadline.reached else "early" if stopping is not None and stopping.ended else "",
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
        monitored=() if progressive is None else tuple(progressive.points),
        seconds=seconds.seconds(),
        artifact=artifact[0] if artifact else None,
        artifact_sha256=artifact[1] if artifact else None,
        device=device,
        gpu_seconds=trained if device == "cuda" else 0.0,
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


def _start(
    job: TrainJob, prepared: Prepared, plan: Plan, device: str
) -> tuple[TrainState, Progressive | None, tuple[str, ...]]:
    """A fresh state, then the stage's own newest checkpoint, else the one of the stage before."""
    seed_everything(job.training.seed)
    model = prepared.task.build_model(prepared.preprocessing, job.hyperparameters).to(device)
    state = TrainState(model, make_optimizers(prepared.task, model, job.training.optimizer))
    state.also |= make_parts(job, prepared, model, device)
    progressive, left_out = make_progressive(
        plan, prepared.data, make_recipe(prepared.task, job.training, plan.horizon_steps),
        job.training.evaluate_every, prepared.reserve, {name: prepared.rows[name] for name in job.slices},
    )  # fmt: skip
    if progressive is not None:
        state.also["progressive"] = progressive
    return state, progressive, left_out + resume(job, state)


def _train(state: TrainState, prepared: Prepared, flight: Flight) -> Alarm | None:
    """Train to the plan's end, or to what ends it before; the alarm, with the rows of its batch."""
    job, plan = flight.job, flight.plan
    data, recipe = prepared.data, make_recipe(prepared.task, job.training, plan.horizon_steps)
    if isinstance(data, LoadedRows):
        data, recipe = data.in_loaders(recipe)
    if flight.progressive is not None:
        flight.progressive.before_first_step(state)
        state.clock.lap(clock.VALIDATION)
    alarm = train(state, data, plan, recipe, flight.after_step)
    return None if alarm is None else _with_rows(alarm, job, prepared, plan)


def _with_rows(alarm: Alarm, job: TrainJob, prepared: Prepared, plan: Plan) -> Alarm:
    """Name the rows of the bad batch: those with inputs that are not finite, else the first of the batch."""
    import torch

    batch = plan.batch(alarm.step)
    bad = torch.zeros(len(batch), dtype=torch.bool)
    for tensor in prepared.data.take(batch).inputs.values():
        if tensor.is_floating_point():
            bad |= ~torch.isfinite(tensor).flatten(1).all(dim=1).cpu()
    named = batch[bad] if bool(bad.any()) else batch
    keys = prepared.rows.iloc[named[:20].tolist()][list(job.rows.keys)]
    shown = tuple({str(name): str(value) for name, value in row.items()} for row in keys.to_dict("records"))
    return alarm.model_copy(update={"row_keys": shown})
