"""smoke, pilot, full: training on 1 %, 10 % and 100 % of the rows, with a go or no-go after each."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from trainworthy.assets.announce import announce_incidents
from trainworthy.assets.committed import tell_uncommitted
from trainworthy.assets.contract import judged_contract
from trainworthy.assets.mirror import machine_followed, mirrored
from trainworthy.assets.step import StepOutcome, StepWork
from trainworthy.assets.step_run import StepOfRun, StepRun
from trainworthy.assets.training_job import Stage, job_kind, train_job
from trainworthy.lifecycle.artifact import verify_artifact
from trainworthy.lifecycle.cost.duration import remaining_cost
from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.errors import CheckpointError, WorkerError
from trainworthy.lifecycle.gates.data_curve import Point, curve_after_full, curve_at_pilot, data_curve_check, point_of
from trainworthy.lifecycle.gates.diagnosis import (
    MOST_EXCHANGES,
    parts_in_order,
    to_diagnose,
    trainings_within,
    with_diagnosis,
)
from trainworthy.lifecycle.gates.measured import with_measured_fixes
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.gates.seeds import (
    lost_gpu_seconds,
    one_that_counts,
    seed_results,
    seeds_check,
    seeds_of,
    spread,
    updates_of_stages,
)
from trainworthy.lifecycle.gates.stage import for_run, stage_checks, training_checks
from trainworthy.lifecycle.leakage.unreviewed import unreviewed_check
from trainworthy.lifecycle.lineage import training_run_id
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob, TrainJob
from trainworthy.lifecycle.protocol.records import (
    STAGES,
    DataCurve,
    Forecast,
    PreflightReport,
    Record,
    Snapshot,
    StageBody,
    StageFindings,
    StageReport,
    Step,
    joined,
    part_of,
)
from trainworthy.lifecycle.protocol.results import DiagnoseResult, TrainResult
from trainworthy.lifecycle.protocol.training_figures import SeedResult, TrainingFigures
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint
from trainworthy.lifecycle.storage.metrics_file import MetricsLine
from trainworthy.lifecycle.tasks import Kind


def train_stage(run: StepRun) -> StepOutcome[StageBody]:
    """Train the stage in the worker and judge go or no-go."""
    stage = cast(Stage, run.step)
    if stage == STAGES[0]:
        # Here and not by preflight, which may be one of an earlier run.
        tell_uncommitted(run)
    snapshot = run.record("snapshot", Snapshot)
    training_run = training_run_id(run.use_case, run.code_sha256, snapshot)
    meter, spec, spent = Meter(), run.use_case.spec, _spent(run)
    results, lost = _trainings(run, snapshot, training_run, stage, meter, spent)
    seed, kind = one_that_counts(stage, results), job_kind(run)
    result, trained = results[seed], seed_results(stage, results, kind.score, lost)
    state = run.workspace.state
    this_stage = meter.cost(run.rented).usd
    still = _still_to_come(run, snapshot, stage)
    curve, extra_checks = stage_curve(run, kind, result, trained, still, this_stage / len(results))
    # That the losses cannot tell is said once, by the pilot.
    if curve is not None and (stage == "pilot" or curve.gain is not None):
        run.context.log.info(f"data-learning curve: {curve.told}")
    if stage != "smoke":
        waiting = judged_contract(run).unreviewed_features
        reviewed = unreviewed_check(waiting, result.unreviewed, run.use_case.name)
        extra_checks = (*extra_checks, reviewed, seeds_check(stage, trained, seed))
    still_usd = still.high if still else math.inf
    checks = stage_checks(stage, result, spent + this_stage, still_usd, spec.budget.run_usd, *extra_checks)
    measured = _own_preflight(run)
    checks = with_measured_fixes(checks, () if measured is None else trials_of(measured.checks))
    checks = for_run(checks, run.run_id)
    diagnosed = None
    if (failed := to_diagnose(stage, result, checks)) is not None:
        left = _affordable_seconds(run, spent + meter.cost(run.rented).usd)
        training = train_job(run, snapshot, training_run, stage, seed, seconds_left=left)
        diagnosed = diagnose_stage(run, snapshot, training, failed, None if result.alarm is None else result.steps)
        checks = checks if diagnosed is None else with_diagnosis(checks, failed, diagnosed.diagnosis)
    findings = StageFindings(
        training_run=training_run,
        fraction=spec.stages.fraction(stage),
        seed=seed,
        checkpoint=state.relative(Path(result.checkpoint.path)) if result.checkpoint else None,
        checkpoint_sha256=result.checkpoint.sha256 if result.checkpoint else None,
        artifact=state.relative(Path(result.artifact)) if result.artifact else None,
        metrics=result.metrics | spread(trained),
        seconds=result.seconds,
        trained=trained,
        data_curve=curve,
        avoided_usd=still if stopping(checks) and stage != "full" else None,
        attempts=tuple(
            attempt for seed_result in (*results.values(), *lost.values()) for attempt in seed_result.attempts
        ),
        left_out_steps=sum(seed_result.planned_steps - seed_result.steps for seed_result in results.values()),
        diagnosis=None if diagnosed is None else diagnosed.diagnosis,
    )
    return StepOutcome(
        checks=checks,
        body=joined(StageBody, part_of(result, TrainingFigures), findings),
        device=result.device,
        gpu_seconds=sum(seed_result.gpu_seconds for seed_result in results.values())
        + lost_gpu_seconds(result.device, lost)
        + (0.0 if diagnosed is None else diagnosed.gpu_seconds),
        seeds=tuple(results),
    )


def _trainings(
    run: StepRun, snapshot: Snapshot, training_run: str, stage: Stage, meter: Meter, spent: float
) -> tuple[dict[int, TrainResult], dict[int, WorkerError]]:
    """Each seed's training, the declared one first; a pilot that its own checks stop needs no others.

    Beside them the pilot's other seeds that gave no answer: these only measure the spread, and stop nothing.
    `spent` are the USD of the run before this stage, and `meter` has measured since.
    """
    results: dict[int, TrainResult] = {}
    lost: dict[int, WorkerError] = {}
    seeds = seeds_of(run.use_case.spec.training, stage)
    for seed in seeds:
        left = _affordable_seconds(run, spent + meter.cost(run.rented).usd)
        job = train_job(run, snapshot, training_run, stage, seed, seconds_left=left)
        # Followed is the one that surely counts: of several full trainings nobody knows it yet.
        followed = not results and (len(seeds) == 1 or stage != "full")
        try:
            with _mirrored(run, Path(job.out)) if followed else contextlib.nullcontext():
                result = run.in_worker(job, left)
        except WorkerError as error:
            if stage != "pilot" or not results:
                raise
            run.context.log.warning(f"seed {seed} gave no answer, the pilot goes on without it: {error.problem}")
            lost[seed] = error
            continue
        assert isinstance(result, TrainResult)
        results[seed] = result
        spent_all = result.ended == "budget"
        if spent_all or (stage == "pilot" and len(results) == 1 and stopping(training_checks(stage, result))):
            break
    return results, lost


@contextlib.contextmanager
def _mirrored(run: StepRun, folder: Path) -> Iterator[None]:
    """The windows that the worker writes in `folder`, in the run's MLflow while it trains; its incidents are sent.

    Beside them what the machine does, if the worker is on it.
    """

    def send(lines: Sequence[MetricsLine]) -> None:
        announce_incidents(run, [line.alarm for line in lines if line.alarm is not None])
        run.tracking.log_curve(run.tracked(), run.step, lines)

    def send_machine(figures: Mapping[str, float]) -> None:
        run.tracking.log_system(run.tracked(), figures)

    machine = contextlib.nullcontext() if run.use_case.spec.compute.elsewhere else machine_followed(send_machine)
    with mirrored(folder, send, run.context.log.warning), machine:
        yield


def diagnose_stage(
    run: StepRun, snapshot: Snapshot, training: TrainJob, failed: CheckResult, ended_after: int | None
) -> DiagnoseResult | None:
    """Parts of the stage's `training` exchanged until it ends by its budget; None where the worker gave no answer.

    `ended_after` are the updates after which an alarm ended the stage.
    """
    spec, split = run.use_case.spec, snapshot.splits["training"]
    updates = updates_of_stages(split.rows, split.positives or 0, spec.training, spec.stages)
    out = Path(training.out) / "diagnosis"
    job = DiagnoseJob(
        use_case_folder=training.use_case_folder,
        out=str(out),
        device=training.device,
        training=training.model_copy(update={"out": str(out)}),
        parts=parts_in_order((failed,)),
        most=MOST_EXCHANGES,
        trainings=trainings_within(updates[training.stage], updates["full"]),
        updates=ended_after,
    )
    try:
        result = run.in_worker(job)
    except WorkerError as error:
        # It explains a stop, and makes none.
        run.context.log.warning(f"no diagnosis: {error.problem}")
        return None
    assert isinstance(result, DiagnoseResult)
    # What it says stands in the failed check.
    run.context.log.info(f"diagnosis: {result.diagnosis.at_fault or 'no part'} is at fault")
    return result


def stage_is_whole(run: StepRun, record: Record) -> bool:
    """True if the checkpoint and the artifact that later steps need have the bytes on record."""
    report, state = cast(StageReport, record), run.workspace.state
    if report.checkpoint is None or (report.artifact is None and report.kind == "full"):
        return False
    try:
        verify_checkpoint(state.absolute(report.checkpoint), report.checkpoint_sha256)
        if report.artifact is not None:
            verify_artifact(state.absolute(report.artifact), report.artifact_sha256 or "")
    except CheckpointError:
        return False
    return True


def _spent(run: StepRun) -> float:
    """USD that this run has spent: upstream steps that it made itself, the stages before included."""
    records: Mapping[Step, Record | None] = {
        step: run.workspace.records.of_run(run.use_case.name, step, run.run_id)
        for step in ("dataset", "snapshot", "preflight", *STAGES)
    }
    return sum(r.cost.usd for r in records.values() if r is not None and r.provenance.run_id == run.run_id)


def _affordable_seconds(run: StepRun, spent: float) -> float:
    """How long the machine may run for what the budget still has."""
    price, left = run.rented.usd_per_hour, run.use_case.spec.budget.run_usd - spent
    return left / price * 3600 if price else math.inf


def _still_to_come(run: StepRun, snapshot: Snapshot, stage: Stage) -> Forecast | None:
    """Forecast for the stages after this one, by their share of the updates."""
    spec, split = run.use_case.spec, snapshot.splits["training"]
    updates = updates_of_stages(split.rows, split.positives or 0, spec.training, spec.stages)
    return remaining_cost(_preflight(run), updates, stage)


def _preflight(run: StepRun) -> PreflightReport | None:
    """The run's preflight, else the newest one, for what it forecast; None where that gave no answer."""
    preflight = _own_preflight(run) or run.workspace.records.newest(run.use_case.name, "preflight")
    return preflight if isinstance(preflight, PreflightReport) else None


def _own_preflight(run: StepRun) -> PreflightReport | None:
    """The preflight that the run made or reused: what another measured, of other code or rates, says nothing of it."""
    preflight = run.workspace.records.of_run(run.use_case.name, "preflight", run.run_id)
    return preflight if isinstance(preflight, PreflightReport) else None


def stage_curve(
    run: StepOfRun, kind: Kind, result: TrainResult, trained: Sequence[SeedResult], still_usd: Forecast | None,
    training_usd: float,
) -> tuple[DataCurve | None, tuple[CheckResult, ...]]:  # fmt: skip
    """The curve after pilot or full, and the pilot's check of it; `training_usd` is what one training cost."""
    last, spec = point_of(result.rows, result.metrics, trained), run.use_case.spec
    if run.step == "full":
        pilot = _recorded(run.record("pilot", StageReport))
        return curve_after_full(pilot, last, training_usd, spec.stages.mode, kind.words), ()
    if run.step != "pilot":
        return None, ()
    smoke, rows = _recorded(run.record("smoke", StageReport)), run.record("snapshot", Snapshot).splits["training"].rows
    curve, primary = curve_at_pilot(smoke, last, rows, still_usd, spec.stages.mode, kind.words), spec.benchmark.primary
    # Of another metric the margin says nothing about the loss that the stages measure.
    margin = primary.margin if primary.metric == kind.loss else None
    return curve, (data_curve_check(curve, last, margin),)


def _recorded(stage: StageReport) -> Point | None:
    return point_of(stage.rows, stage.metrics, stage.trained)


STEP = StepWork(train_stage, reusable=stage_is_whole)
