"""One stage of training by a use case's own script, from job to answer; training/stage.py is that of our own loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from trainworthy.lifecycle.engine.incidents.record import make_recorder
from trainworthy.lifecycle.engine.trainers.agreement import leave
from trainworthy.lifecycle.engine.trainers.checkpoints import ScriptCheckpoints
from trainworthy.lifecycle.engine.trainers.ended import WORDS, TrainingEndedError
from trainworthy.lifecycle.engine.trainers.logbook import Logbook
from trainworthy.lifecycle.engine.trainers.ranks import FirstSession
from trainworthy.lifecycle.engine.trainers.returned import answering_model, module_of
from trainworthy.lifecycle.engine.trainers.session import TrainingSession
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256, save_checkpoint
from trainworthy.lifecycle.engine.training.export import export
from trainworthy.lifecycle.engine.training.prepare import Prepared, prepare
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.ranks.replicas import facts_of
from trainworthy.lifecycle.engine.training.session import PREFIX_STEPS, Session
from trainworthy.lifecycle.engine.training.stage import peak_memory_bytes
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.engine.training.techniques.deadline import Deadline
from trainworthy.lifecycle.engine.training.validate import unreviewed_inputs, validate
from trainworthy.lifecycle.engine.training.watching import clock
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.incidents.incident import as_kept
from trainworthy.lifecycle.plan import make_plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import OwnTrainer, TrainResult
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.training_script import load_script


@dataclass(frozen=True)
class ScriptRun:
    """A script's training that came to its end: what it returned, None where that is no result, and what is known."""

    prepared: Prepared
    session: TrainingSession
    log: Logbook
    checkpoints: ScriptCheckpoints
    returned: object
    device: str
    seconds: float


def run_script(
    job: TrainJob, seconds: clock.Clock, should_stop: Callable[[], bool], forward: Callable[[str], None] | None,
    ranks: Ranks | None = None,
) -> ScriptRun:  # fmt: skip
    """Prepare the stage's rows and call the script, with `ranks` as the first of them.

    Raises TrainingError if it breaks the contract.
    """
    began, device = time.perf_counter(), choose_device(job.device)
    prepared = prepare(job, device)
    prepare_seconds = time.perf_counter() - began
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage)
    if ranks is not None:
        ranks.refuse_others(facts_of(job, prepared, plan))
    deadline = Deadline(job, prepare_seconds / len(prepared.rows), plan.batch_size)
    recorder = make_recorder(job, prepared, plan, device, lambda step: ())
    log = Logbook(Session(job, plan, seconds, deadline, should_stop, forward), recorder)
    checkpoints = ScriptCheckpoints(job)
    session, began = _session(log, prepared, checkpoints, device, ranks), time.perf_counter()
    returned = _returned(session, log, prepared, job)
    return ScriptRun(prepared, session, log, checkpoints, returned, device, time.perf_counter() - began)


def _session(
    log: Logbook, prepared: Prepared, checkpoints: ScriptCheckpoints, device: str, ranks: Ranks | None
) -> TrainingSession:
    if ranks is None:
        return TrainingSession(log, prepared, checkpoints, device)
    return FirstSession(log, prepared, checkpoints, device, ranks)


def _of_processes(ranks: Ranks | None) -> tuple[str, ...]:
    return () if ranks is None else (f"the script was run by {ranks.size} processes",)


def train_by_script(
    job: TrainJob, seconds: clock.Clock, should_stop: Callable[[], bool], forward: Callable[[str], None] | None,
    ranks: Ranks | None = None,
) -> TrainResult:  # fmt: skip
    """Train the stage by job.trainer, with `ranks` as the first of them.

    Raises PreemptedError, and TrainingError if the script breaks the contract.
    """

    def asked() -> bool:
        # Both each time: should_stop looks at the leases as well.
        return should_stop() | (ranks is not None and ranks.asked())

    ran = run_script(job, seconds, asked, forward, ranks)
    prepared, log, checkpoints, device = ran.prepared, ran.log, ran.checkpoints, ran.device
    if log.session.ended == "asked":
        raise PreemptedError(_preempted(checkpoints, log))
    # The other processes leave here; their peaks, together.
    others_bytes = 0.0 if ranks is None else leave(ranks, ran.returned)
    whole = log.session.ended in (None, "planned")
    state, checkpoint, metrics, references, unreviewed, artifact = None, None, {}, None, None, None
    if whole:
        # Weights that the script never read have moved nothing.
        prepared = prepared if ran.session.read_weights else replace(prepared, raised=None)
        state = TrainState(answering_model(ran.returned, job, prepared, device), (), step=log.done)
        checkpoint = save_checkpoint(Path(job.out) / "final", job.identity, state)
        seconds.lap(clock.CHECKPOINT)
        metrics, references = validate(job, prepared, state, device)
        unreviewed = unreviewed_inputs(job, prepared, state, device)
        seconds.lap(clock.VALIDATION)
        artifact = export(job, prepared, state, device) if job.stage == "full" else None
        seconds.lap(clock.EXPORT)
    metrics["peak_memory_bytes"] = peak_memory_bytes() + others_bytes
    return TrainResult(
        alarm=log.alarm,
        rows=len(prepared.rows),
        steps=log.done,
        planned_steps=log.session.plan.last_step,
        ended=_ended(log),
        resumed_from_step=log.resumed_from,
        notes=prepared.notes + checkpoints.notes + checkpoints.cost_notes() + _of_processes(ranks),
        parameters=0 if state is None else sum(parameter.numel() for parameter in state.model.parameters()),
        parameters_sha256="" if state is None else parameters_sha256(state.model),
        prefix_steps=min(PREFIX_STEPS, log.session.plan.horizon_steps),
        prefix_sha256=log.prefix_sha256,
        checkpoint=checkpoint,
        metrics=metrics,
        references=references,
        curve=tuple(log.curve.points),
        seconds=seconds.seconds(),
        artifact=artifact.folder if artifact else None,
        artifact_sha256=artifact.sha256 if artifact else None,
        artifact_metrics=artifact.metrics if artifact else {},
        device=device,
        gpu_seconds=ran.seconds if device == "cuda" else 0.0,
        alarms=as_kept(log.alarms, Path(job.out)),
        trainer=_own_trainer(ran),
        unreviewed=unreviewed,
    )


def _ended(log: Logbook) -> Literal["", "early", "budget"]:
    """As a stage's answer says it."""
    if log.session.ended == "budget":
        return "budget"
    return "early" if log.session.ended in (None, "planned") and log.done < log.session.plan.last_step else ""


def _returned(session: TrainingSession, log: Logbook, prepared: Prepared, job: TrainJob) -> object:
    """What the script returned, as a module where the stage is done; None where the training ended before."""
    assert job.trainer is not None
    try:
        with _closed(log):
            returned = load_script(prepared.task, job.trainer)(session)
            return returned if log.session.ended == "rerun" else _module(returned, log, prepared, job)
    except (TrainingEndedError, SystemExit):
        # Lightning leaves by SystemExit when it is asked to end.
        if not log.must_end():
            raise TrainingError(f"{job.trainer} ended its process", fix="return the model from train") from None
        if log.session.ended == "planned":
            raise TrainingError(
                f"{job.trainer} made another update after all {log.session.plan.last_step} that are planned",
                fix="end the loop when session.should_stop is True, or plan more: training.epochs, training.batch_size",
            ) from None
        return None


def _module(returned: object, log: Logbook, prepared: Prepared, job: TrainJob) -> torch.nn.Module | None:
    """What was trained, once the last update was looked at, too. Raises TrainingEndedError by an alarm."""
    if log.session.ended not in (None, "planned"):
        return None
    if not log.done:
        raise TrainingError(f"{job.trainer} told no update", fix="call session.step(loss=…) at each update")
    log.look_back()
    module = module_of(returned, job, prepared)
    log.refuse_spoiled(module)
    return module


@contextmanager
def _closed(log: Logbook) -> Iterator[None]:
    try:
        yield
    finally:
        log.close()


def _preempted(checkpoints: ScriptCheckpoints, log: Logbook) -> str:
    if checkpoints.step == log.done:
        return "preempted; a checkpoint is written"
    return f"preempted at step {log.done}; the trainer's newest checkpoint is of step {checkpoints.step}"


def _own_trainer(ran: ScriptRun) -> OwnTrainer:
    """What could be seen of the script's training."""
    assert ran.log.session.job.trainer is not None
    return OwnTrainer(
        file=ran.log.session.job.trainer,
        gradients=ran.log.gradients_seen,
        closer=ran.log.models.know_optimizers,
        weights=ran.log.prefix_sha256 is not None,
        checkpoints=ran.checkpoints.written,
        asked_to_end=WORDS[ran.log.session.ended] if ran.log.ignored and ran.log.session.ended else "",
        unwatched=ran.log.models.unwatched,
        unread_weights=ran.session.has_weights and not ran.session.read_weights,
    )
