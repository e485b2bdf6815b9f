"""What `trainworthy diagnose` needs of a run: its pilot's job, or that of what came before, and the answer as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.code_identity import step_code_sha256
from trainworthy.lifecycle.errors import RecordError, SettingsError, TrainworthyError, did_you_mean
from trainworthy.lifecycle.gates.diagnosis import DIAGNOSED_STAGES, ORDER, answer, exchange_row
from trainworthy.lifecycle.gates.host import HOST_CHECKS
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.protocol.checks import stops_the_step
from trainworthy.lifecycle.protocol.jobs import JobFile, PreflightJob, TrainJob
from trainworthy.lifecycle.protocol.records import PreflightReport, StageReport
from trainworthy.lifecycle.protocol.training_figures import Diagnosis, Exchange, Part
from trainworthy.lifecycle.run_config import told_command
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import read_settings, use_case_folder, use_case_folders
from trainworthy.resources.shared_state import records_of

# Where one of these stops preflight, its worker is not started.
BEFORE_WORKER = frozenset(check.id for check in HOST_CHECKS)


def named_parts(names: Sequence[str]) -> tuple[Part, ...]:
    """The parts of these names. Raises SettingsError for an unknown one."""
    known: dict[str, Part] = {part: part for part in ORDER}
    for name in names:
        if name not in known:
            raise SettingsError("no part of a training has that name", value=name, fix=did_you_mean(name, known))
    return tuple(known[name] for name in names)


def stage_of_run(name_or_run: str) -> tuple[StageReport | PreflightReport, TrainJob]:
    """The pilot of a run, or of a use case's newest one, with the job that its training was asked for by.

    Smoke of a run that ended there. Of a run that preflight stopped its report, with the job that its pilot would have
    been. Raises RecordError where there is none, where preflight stopped before its worker made anything, or where its
    files are gone.
    """
    state = StateFolder(read_settings().var)
    report = _newest_report(records_of(read_settings()), name_or_run)
    _refuse_not_started(report)
    if isinstance(report, StageReport):
        folder = state.folder("training", report.use_case, report.training_run, report.kind)
    else:
        folder = state.folder("preflight", report.use_case, report.provenance.run_id)
    try:
        job = JobFile.model_validate_json((folder / "job.json").read_bytes()).job
    except (OSError, ValidationError):
        job = None
    if isinstance(job, PreflightJob):
        job = pilot_of(job)
    if not isinstance(job, TrainJob) or not all(
        Path(file).is_file() for file in (job.training_file, job.validation_file)
    ):
        fix = f"train again: {told_command('experiment', report.use_case)}"
        raise RecordError(f"the files of this run's {report.kind} are gone", value=report.provenance.run_id, fix=fix)
    if job.trainer is not None:
        fix = "exchange parts in the script by hand: the page docs/how-to/diagnose.md says which, and in which order"
        raise RecordError("parts of a training script can't be exchanged from outside", value=job.trainer, fix=fix)
    return report, job.model_copy(update={"ends_at": None})


def _refuse_not_started(report: StageReport | PreflightReport) -> None:
    """Raises RecordError where preflight's host checks kept its worker from starting: there is no job of it."""
    stopped_by = [
        trial for trial in trials_of(report.checks)
        if trial.check in BEFORE_WORKER and stops_the_step(trial.status, trial.severity, trial.required)
    ]  # fmt: skip
    if not stopped_by:
        return
    told = "; ".join(f"{trial.check}: {trial.evidence}; {trial.fix}" for trial in stopped_by)
    raise RecordError(
        "preflight stopped before anything could be made", value=report.provenance.run_id,
        fix=f"fix what its host checks say, then run again ({told})",
    )  # fmt: skip


def pilot_of(job: PreflightJob) -> TrainJob:
    """The pilot that a preflight was asked about, for a diagnosis: without an export nothing is calibrated."""
    same = (
        "use_case_folder", "out", "device", "rows", "loaders", "training", "stages", "hyperparameters", "trainer",
        "training_file", "validation_file",
    )  # fmt: skip
    return TrainJob(
        **{name: getattr(job, name) for name in same}, identity="diagnosis", stage="pilot",
        calibration_file=job.validation_file,
    )  # fmt: skip


def _newest_report(store: StateRecords, name_or_run: str) -> StageReport | PreflightReport:
    """The newest pilot of the use case, or of the one run whose id begins so; smoke of a run that ended there.

    Where none of them came to a stage, the newest preflight that stopped its run.
    """
    names = [folder.name for folder in use_case_folders(read_settings())]
    runs = [(name, run_id) for name in names for run_id in store.run_ids(name)]
    chosen = [run for run in runs if run[0] == name_or_run] or [run for run in runs if run[1].startswith(name_or_run)]
    if name_or_run not in names and len({run_id for _, run_id in chosen}) > 1:
        fix = "write more of it: " + ", ".join(run_id[:12] for _, run_id in chosen[:5])
        raise RecordError("several runs begin so", value=name_or_run, fix=fix)
    # One at a time: there may be hundreds of runs, each of several requests where records lie in a bucket.
    stages = (
        record
        for name, run_id in chosen
        for step in reversed(DIAGNOSED_STAGES)
        if isinstance(record := store.of_run(name, step, run_id), StageReport)
    )
    stopped = (
        record
        for name, run_id in chosen
        if isinstance(record := store.of_run(name, "preflight", run_id), PreflightReport) and not record.passed
    )
    newest = next(chain(stages, stopped), None)
    if newest is None:
        problem = "this run trained nothing" if chosen else "no such run or use case"
        fix = "name a use case or a run's id, as the report and Dagster show it; known use cases: " + ", ".join(names)
        if chosen:
            fix = (
                "only what came to the end of smoke or pilot, or what preflight stopped, can be diagnosed: its report "
                "says how far it came"
            )
        raise RecordError(problem, value=name_or_run, fix=fix)
    return newest


def notes(store: StateRecords, report: StageReport | PreflightReport, training: TrainJob) -> list[str]:
    """What is not plain of the run that is diagnosed: a newer one trained nothing, or code and settings differ now."""
    of_newest = _of_newest(store, report)
    try:
        use_case = load_use_case(use_case_folder(read_settings(), report.use_case))
    except TrainworthyError:
        return of_newest
    spec = use_case.spec
    if step_code_sha256(use_case.folder, report.kind) != report.provenance.code_sha256:
        before = f": it ended at a validation loss of {loss:.4g}" if (loss := _loss(report)) is not None else ""
        of_newest.append(f"the code is another since that run, and today's is trained here{before}")
    then = {**training.training.model_dump(), "hyperparameters": training.hyperparameters}
    now = {**spec.training.model_dump(), "hyperparameters": spec.hyperparameters}
    changed = [name for name, value in then.items() if name != "seed" and now.get(name) != value]
    other = f"with that run's settings: use_case.yaml has others now in {', '.join(changed)}"
    return [*of_newest, *([other] if changed else [])]


def _loss(report: StageReport | PreflightReport) -> float | None:
    return report.metrics.get("val_loss") if isinstance(report, StageReport) else None


def _of_newest(store: StateRecords, report: StageReport | PreflightReport) -> list[str]:
    """Whether the use case's newest run reused this report, or is newer and trained nothing."""
    newest, run_id = store.run_ids(report.use_case)[0], report.provenance.run_id
    this = f"run {run_id[:8]}, made {report.provenance.created_at}"
    if newest == run_id:
        return []
    if store.of_run(report.use_case, report.kind, newest) == report:
        return [f"run {newest[:8]} reuses the {report.kind} of {this}"]
    if any(store.of_run(report.use_case, stage, newest) is not None for stage in DIAGNOSED_STAGES):
        return []
    return [f"run {newest[:8]} is newer and trained nothing: this is {this}"]


def diagnosis_text(report: StageReport | PreflightReport, training: TrainJob, diagnosis: Diagnosis) -> str:
    """A table of the exchanges, and the answer."""
    trained = f"its {report.kind} again" if isinstance(report, StageReport) else "the pilot that it did not come to"
    gains = {exchange.part: _gain(exchange) for exchange in diagnosis.exchanges}
    width = max(map(len, gains.values()), default=0) + 2
    lines = [
        f"{report.use_case}, run {report.provenance.run_id[:8]}: {trained}, "
        f"{diagnosis.updates:,} updates on {diagnosis.rows:,} rows with seed {training.training.seed}",
        "",
        f"{'exchanged':16}{'validation loss':>16}  gain",
        f"{'nothing':16}{diagnosis.loss:16.4g}",
        *(_line(exchange, gains[exchange.part], width) for exchange in diagnosis.exchanges),
        f"{'best constant':16}{diagnosis.prior_loss:16.4g}",
        "",
        answer(diagnosis),
    ]
    return "\n".join(lines)


def _gain(exchange: Exchange) -> str:
    if exchange.gain is None:
        return ""
    recovers = " recovers" if exchange.status == "recovers" else ""
    return f"{exchange.gain.value:+.4g} ± {exchange.gain.standard_error:.2g}{recovers}"


def _line(exchange: Exchange, gain: str, width: int) -> str:
    if exchange.loss is None or not gain:
        why = f" ({exchange.told})" if exchange.told else ""
        return f"{exchange.part:16}{'–':>16}  {exchange_row(exchange)['result']}{why}"
    return f"{exchange.part:16}{exchange.loss:16.4g}  {gain:{width}}{exchange.told}"
