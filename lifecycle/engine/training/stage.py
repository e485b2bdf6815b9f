"""One stage of training by our own loop, from job to answer: rows, preprocessing, model, loop, validation, export."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.checkpoints.made_with import made_in_words, made_until
from trainworthy.lifecycle.engine.training.course import take_course
from trainworthy.lifecycle.engine.training.export import export
from trainworthy.lifecycle.engine.training.judging.progress import measure_progress
from trainworthy.lifecycle.engine.training.prepare import prepare
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.session import PREFIX_STEPS, Session
from trainworthy.lifecycle.engine.training.techniques.deadline import make_deadline
from trainworthy.lifecycle.engine.training.techniques.parts import early_stopping_of, part_notes, put_final_weights
from trainworthy.lifecycle.engine.training.validate import unreviewed_inputs, validate
from trainworthy.lifecycle.engine.training.watching import clock
from trainworthy.lifecycle.incidents.incident import as_kept
from trainworthy.lifecycle.plan import make_plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.scoring import choose_device


def train_by_loop(
    job: TrainJob, seconds: clock.Clock, should_stop: Callable[[], bool], forward: Callable[[str], None] | None,
    ranks: Ranks | None = None,
) -> TrainResult:  # fmt: skip
    """Train the stage, resuming from its newest checkpoint; with `ranks` as the first of them.

    Raises what train.py names.
    """
    began, device = time.perf_counter(), choose_device(job.device)
    prepared = prepare(job, device)
    prepare_seconds = time.perf_counter() - began
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage, prepared.oversampled)
    deadline = make_deadline(job, prepared, plan, prepare_seconds)
    began = time.perf_counter()

    def asked() -> bool:
        # Both each time: should_stop looks at the leases as well.
        return should_stop() | (ranks is not None and ranks.asked())

    course = take_course(Session(job, plan, seconds, deadline, asked, forward, ranks), prepared, device)
    trained = time.perf_counter() - began
    state, alarm, stopping = course.state, course.alarm, early_stopping_of(course.state)
    whole = alarm is None and job.stop_after_steps is None and not deadline.reached
    if whole:
        put_final_weights(state)
    metrics, references = validate(job, prepared, state, device) if whole else ({}, None)
    progress = measure_progress(job, prepared, state, device) if whole else None
    unreviewed = unreviewed_inputs(job, prepared, state, device) if whole else None
    seconds.lap(clock.VALIDATION)
    artifact = export(job, prepared, state, device) if whole and job.stage == "full" else None
    seconds.lap(clock.EXPORT)
    metrics["peak_memory_bytes"] = peak_memory_bytes() + course.others_memory_bytes
    made_by = made_until(state.made_by, state.step)
    return TrainResult(
        alarm=alarm,
        rows=len(prepared.rows),
        steps=state.step,
        planned_steps=plan.last_step,
        first_step=plan.first_step if job.start else 0,
        ended="budget" if deadline.reached else "early" if stopping is not None and stopping.ended else "",
        resumed_from_step=course.resumed_from,
        notes=prepared.notes + course.notes + part_notes(state, plan.last_step) + made_in_words(made_by),
        parameters=sum(parameter.numel() for parameter in state.model.parameters()),
        parameters_sha256=parameters_sha256(state.model),
        prefix_steps=min(PREFIX_STEPS, plan.horizon_steps),
        prefix_sha256=state.prefix_sha256,
        checkpoint=course.checkpoint,
        metrics=metrics,
        references=references,
        progress=progress,
        adversarial=course.watch.adversarial,
        curve=tuple(state.curve.points),
        monitored=() if course.progressive is None else tuple(course.progressive.points),
        seconds=seconds.seconds(),
        artifact=artifact.folder if artifact else None,
        artifact_sha256=artifact.sha256 if artifact else None,
        artifact_metrics=artifact.metrics if artifact else {},
        device=device,
        gpu_seconds=trained if device == "cuda" else 0.0,
        alarms=as_kept(course.watch.alarms, Path(job.out)),
        unreviewed=unreviewed,
        made_by=made_by,
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
