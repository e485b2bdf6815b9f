"""What every step does around its own work: read records, reuse, meter, write, report.

A step's file in this folder says only what is its own: `run_step` calls it with a StepRun (step_run.py) and gets a
StepOutcome. `finish_step` is the one way out, on success and on a stop: both write the record, book the cost, render
the report and carry the same metadata keys. In the terminal each step says where the run stands: `step 3 of 8, about 4
minutes left`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import dagster as dg

from trainworthy.assets import ci
from trainworthy.assets.champion import reused_before
from trainworthy.assets.metadata import check_result, refusal_metadata, step_metadata
from trainworthy.assets.output import run_records, write_report
from trainworthy.assets.step_lines import step_line, stopping_text, where_to_look
from trainworthy.assets.step_run import (
    BENCHMARK_STEPS,
    CANDIDATE,
    DATASET_TAG,
    EXPERIMENT,
    INTENT_TAG,
    STOPPED_TAG,
    VERDICT_TAG,
    StepResources,
    StepRun,
    show_in_location,
    without_store,
)
from trainworthy.assets.stopped import StoppedError, error_check
from trainworthy.assets.track import first_step, last_step, track, without_mlflow
from trainworthy.lifecycle.code_identity import KEPT, CodeOnDisk
from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.errors import SettingsError, StateError, TrainworthyError
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.gates.baseline import read_baseline, readable_baseline, with_accepted
from trainworthy.lifecycle.gates.earlier import tell_open
from trainworthy.lifecycle.lineage import identity_of, refuse_outdated
from trainworthy.lifecycle.progress import never_silent
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.records import (
    FORM,
    STAGES,
    STEPS,
    Body,
    Record,
    StageReport,
    Step,
    StoppedStep,
    Verdict,
    record_of,
)
from trainworthy.lifecycle.provenance import collect_provenance
from trainworthy.lifecycle.storage.upstream import parent_hashes, upstream_records
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.stuck_runs import MACHINE_TAG, this_machine
from trainworthy.resources.workspace import Intent, Workspace

BodyT = TypeVar("BodyT", bound=Body, covariant=True)
StepEvents = Iterator[dg.AssetCheckResult | dg.MaterializeResult]


@dataclass(frozen=True)
class StepOutcome(Generic[BodyT]):
    """What a step's own work gives: the body of its record, its checks, and where it ran.

    `body` is None if a check stopped the step before there was a result of its kind.
    """

    checks: tuple[CheckResult, ...]
    body: BodyT | None
    device: str = "host"
    gpu_seconds: float = 0.0
    seeds: tuple[int, ...] = ()
    after: Callable[[Record], None] | None = field(default=None)


# What a step's own work is, what it reads beside its upstream, and whether an equal record may be reused.
Work = Callable[[StepRun], StepOutcome[Body]]
Read = Callable[[UseCase, Workspace], Mapping[str, str]]
Reusable = Callable[[StepRun, Record], bool]
# What is entered around all of it, with the resources, the use case and the run id.
Around = Callable[[StepResources, UseCase, str], AbstractContextManager[None]]


@dataclass(frozen=True)
class StepWork:
    """What a step's own file gives: what `run_step` is called with, and what is entered around that."""

    work: Work
    read: Read = lambda use_case, workspace: {}
    reusable: Reusable = lambda run, record: True
    around: Around = lambda resources, use_case, run_id: nullcontext()


def run_step(
    context: dg.AssetExecutionContext, resources: StepResources, use_case: UseCase, step: Step, own: StepWork
) -> StepEvents:
    """Reuse an equal step or do its work, then finish. The dataset version that the run config names holds for all.

    A TrainworthyError of the work ends the step with its record, cost and report, and one clear message.
    """
    meter, workspace = Meter(), resources.workspace
    if step == STEPS[0]:
        show_in_location(context)
        if _intent(context, resources.declared) == ci.PREFLIGHT:
            ci.forget(workspace.state, use_case.name)
    use_case = use_case.at_version(resources.declared.dataset_version)
    if step == first_step(context):
        dataset = use_case.spec.dataset
        tags = {DATASET_TAG: f"{dataset.name}@{dataset.version}", MACHINE_TAG: this_machine()}
        context.instance.add_run_tags(context.run.run_id, tags)
    try:
        run = _step_run(context, resources, use_case, step, own.read)
        _refuse_benchmark(run)
        read_baseline(use_case.folder)
        earlier = workspace.records.by_identity(use_case.name, step, run.identity)
        if earlier is not None:
            workspace.fetch_files(earlier)
        equal = earlier is not None and not isinstance(earlier, StoppedStep) and own.reusable(run, earlier)
    except TrainworthyError as error:
        # Refused before it began: nothing was spent, and there may be no place for a record.
        context.log_event(dg.AssetObservation(context.asset_key, metadata=refusal_metadata(use_case, error)))
        if _intent(context, resources.declared) == ci.PREFLIGHT:
            ci.tell_refusal(workspace.state, use_case.folder, step, error, context.run_id)
        raise StoppedError(f"{use_case.name} stopped at {step}\n{error}") from None
    if earlier is not None and equal:
        # The newest verdict stays the last judgement, whichever an equal run finds again.
        workspace.records.reuse(earlier, run.run_id, newest=run.trains and not isinstance(earlier, Verdict))
        reuse_text = f"equal to this step of run {earlier.provenance.run_id[:8]}: reused at no cost"
        context.log.info(f"{step_line(run, reused=True)}, {reuse_text}")
        yield from finish_step(run, earlier, reused=True)
        return
    context.log.info(step_line(run))
    with never_silent(step):
        record = _made(run, meter, own.work)
        yield from finish_step(run, record, reused=False)


def _made(run: StepRun, meter: Meter, work: Work) -> Record:
    """The kept record of the step's work, which says why where a gate stopped it.

    Raises StoppedError if it cannot be kept, or what follows a passed step fails.
    """
    outcome: StepOutcome[Body]
    try:
        outcome = work(run)
        if outcome.body is not None and not stopping(outcome.checks):
            # What is named is there before what names it.
            run.workspace.keep_files(outcome.body)
    except TrainworthyError as error:
        outcome, message = StepOutcome(checks=(error_check(error),), body=None), str(error)
    except BaseException as error:
        # A cancel or a bug: Dagster tells it, but what was spent is booked here.
        _book_interrupted(run, meter, error)
        raise
    else:
        message = stopping_text(outcome.checks)
    record = _record(run, outcome, meter, message)
    try:
        run.workspace.records.put(record, run.run_id, newest=run.trains)
        if outcome.after is not None and record.passed:
            outcome.after(record)
    except TrainworthyError as error:
        raise StoppedError(f"{run.use_case.name} stopped at {run.step}\n{error}") from None
    return record


def finish_step(run: StepRun, record: Record, *, reused: bool) -> StepEvents:
    """The one way out: track, report, then materialize if the gate passed, else observe and fail."""
    from trainworthy.lifecycle.report import in_words

    workspace, log = run.workspace, run.context.log
    stopped, last = not record.passed, run.step == last_step(run)
    if stopped or isinstance(record, Verdict):
        ended = {STOPPED_TAG: run.step} if stopped else {VERDICT_TAG: in_words.decision(record)}
        run.context.instance.add_run_tags(run.run_id, ended)
    report, tracked = None, None
    before = reused_before(run, record) if reused and isinstance(record, Verdict) else None
    if run.trains:
        with without_mlflow(run, needed=stopped or last):
            tracked = run.tracked()
    if stopped or (run.trains and last):
        report = write_report(run, workspace, tracked, stopped_at=run.step if stopped else None, before=before)
        try:
            workspace.keep_report(run.use_case.name, run.run_id, report)
        except StateError as error:
            log.warning(f"the report lies on this machine alone: {error.problem}")
    if tracked is not None:
        with without_mlflow(run, needed=stopped or last):
            track(run, tracked, record, reused, report)
    if run.intent == ci.PREFLIGHT and (stopped or last):
        log.info(ci.tell(run, workspace.state, run_records(run, workspace.records)))
    metadata = step_metadata(run, workspace, record, tracked, reused=reused, report=report, before=before)
    look_at = where_to_look(record, report if run.trains else None)
    if last and run.intent == EXPERIMENT and isinstance(record, StageReport):
        # All that an experiment measures; a candidate is told by its verdict.
        look_at = [in_words.validated(record), *look_at]
    declared = {spec.name for spec in run.context.assets_def.check_specs}
    for check in with_accepted(run.step, record.checks, readable_baseline(run.use_case.folder)):
        if check.name in declared:
            yield check_result(check)
    if stopped:
        key = run.context.asset_key
        run.context.log_event(dg.AssetObservation(key, metadata=metadata, description=f"stopped at {run.step}"))
        message = record.error if isinstance(record, StoppedStep) else stopping_text(record.checks)
        message = "\n".join([message, *look_at])
        raise StoppedError(f"{run.use_case.name} stopped at {run.step}\n{message}")
    if not reused:
        log.info(f"passed in {record.cost.wall_seconds:.1f} s for {record.cost.usd:.4f} USD")
    if run.trains and run.step != STEPS[-1]:
        for line in tell_open(run.step, record.checks, continued=run.use_case.spec.stages.mode == "continue"):
            log.warning(line)
    for line in (*(before.lines if before else ()), *look_at):
        log.info(line)
    if isinstance(record, Verdict):
        log.info(f"verdict: {in_words.decision(record)}; its reasons: trainworthy verdict {record.use_case}")
    yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(record.identity))


def _step_run(
    context: dg.AssetExecutionContext, resources: StepResources, use_case: UseCase, step: Step, read: Read
) -> StepRun:
    workspace, dataset = resources.workspace, use_case.spec.dataset
    workspace.state.check_writable()
    workspace.state.check_room()
    workspace.require_shared()
    if resources.declared.dataset_version:
        published_version(use_case.project, dataset.name, dataset.version)
    values = read(use_case, workspace)
    compute = use_case.spec.compute
    sku = workspace.prices.rented(compute.sku, spot=compute.spot)
    code_of = functools.partial(CodeOnDisk(workspace.state.folder(*KEPT)).step, use_case.folder)
    upstream = upstream_records(workspace.records, use_case.name, step, context.run.run_id)
    workspace.fetch_files(*upstream.values())
    alone: dict[Step, Record] = {
        name: record for name, record in upstream.items() if _not_of_run(workspace, use_case, name, context.run.run_id)
    }
    refuse_outdated(use_case, code_of, alone, workspace.records)
    intent = _intent(context, resources.declared)
    code = code_of(step)
    identity = identity_of(use_case, step, code, upstream, values)
    return StepRun(
        workspace=workspace, tracking=resources.tracking, launcher=resources.launcher, declared=resources.declared,
        use_case=use_case, step=step, run_id=context.run.run_id, intent=intent, upstream=upstream, identity=identity,
        code_sha256=code, context=context, sku=sku,
    )  # fmt: skip


def _intent(context: dg.AssetExecutionContext, declared: Intent) -> str:
    """What the run is for, by its job; without one, as `Materialize all`, an experiment unless it says else."""
    return context.run.tags.get(INTENT_TAG, CANDIDATE if declared.candidate else EXPERIMENT)


def _refuse_benchmark(run: StepRun) -> None:
    """Raises SettingsError for a step that meets the benchmark in a run that is none of a candidate."""
    if run.intent == EXPERIMENT and run.step in BENCHMARK_STEPS:
        raise SettingsError(
            f"this run is an experiment, which ends before {run.step}: the benchmark is for candidates",
            value="intent: candidate is false",
            fix=f"launch the job train_{run.use_case.name}, or write candidate: true under resources, intent, config",
        )


def _not_of_run(workspace: Workspace, use_case: UseCase, step: Step, run_id: str) -> bool:
    return workspace.records.of_run(use_case.name, step, run_id) is None


def _record(run: StepRun, outcome: StepOutcome[Body], meter: Meter, message: str) -> Record:
    provenance = collect_provenance(
        run.use_case.folder,
        code_sha256=run.code_sha256,
        run_id=run.run_id,
        seeds=outcome.seeds,
        device=outcome.device,
    )
    head = Record(
        kind=run.step,
        use_case=run.use_case.name,
        parents=parent_hashes(run.upstream),
        identity=run.identity,
        provenance=provenance,
        cost=meter.cost(run.rented, run.machines * max(1, run.use_case.spec.compute.gpus), outcome.gpu_seconds),
        checks=outcome.checks,
        task=run.use_case.spec.task.kind,
        form=FORM,
    )
    return StoppedStep(**dict(head), error=message) if outcome.body is None else record_of(head, outcome.body)


def _book_interrupted(run: StepRun, meter: Meter, error: BaseException) -> None:
    """Record, cost and tracked state of a step that was cancelled or broke."""
    cancelled = not isinstance(error, Exception)
    what = "cancelled" if cancelled else f"{type(error).__name__}: {error}"
    resumed = ", and training resumes" if run.step in STAGES else ""
    fix = f"run again: finished steps are reused{resumed}" if cancelled else "see the traceback"
    check = CheckResult(name="completed", status="error", evidence=what, fix=fix)
    record = _record(run, StepOutcome(checks=(check,), body=None), meter, what)
    with without_store(run):
        run.workspace.records.put(record, run.run_id)
    tracked = None
    if run.trains:
        # What broke is what is to be told, not that MLflow is away, too.
        with without_mlflow(run, needed=False):
            tracked = run.tracked()
            track(run, tracked, record, reused=False, report=None)
            ended = f"{'cancelled' if cancelled else 'broke'} at {run.step}"
            run.tracking.end(tracked, "KILLED" if cancelled else "FAILED", run.named(ended))
    with without_store(run):
        metadata = step_metadata(run, run.workspace, record, tracked, reused=False, report=None)
        run.context.log_event(dg.AssetObservation(run.context.asset_key, metadata=metadata, description=what))
    if cancelled:
        # Else Dagster shows a run that nobody ended from its page, as by Ctrl-C or SIGTERM, as one that failed. Last,
        # since its database may be away, and what ended the run is what is to be raised.
        with suppress(Exception):
            show_as_cancelled(run.context)


def show_as_cancelled(context: dg.AssetExecutionContext) -> None:
    """Make Dagster end the run as cancelled; nothing if it was ended from its page."""
    dagster_run = context.instance.get_run_by_id(context.run.run_id)
    if dagster_run is not None and dagster_run.status == dg.DagsterRunStatus.STARTED:
        context.instance.report_run_canceling(dagster_run, "ended by a signal")
