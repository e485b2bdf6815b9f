"""`trainworthy check --quick`: what of preflight needs no training, on a snapshot's rows or on rows that are made."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.errors import DatasetError, Problem
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.measured import with_measured_causes
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.checks import stops_the_step
from trainworthy.lifecycle.protocol.jobs import QuickJob, Rows
from trainworthy.lifecycle.protocol.records import DatasetVersion, Snapshot
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.pipeline.check import Part, contract_of, file_parts, function_parts, preflight_job
from trainworthy.resources.settings import Settings, read_settings, use_case_folder
from trainworthy.resources.shared_state import records_of
from trainworthy.resources.worker_process import run_worker

# Rows for a plan of a dataset version of which nobody knows how many rows it has.
UNKNOWN_ROWS = 10_000


class _Source(NamedTuple):
    """Where the rows are from: the job's options, empty where there are none; told in full, and in a few words."""

    options: dict[str, Any]
    told: str
    brief: str = ""


def quick_parts(name: str) -> list[Part]:
    """The files and functions, then a part for each family, of a use case by its name or its folder.

    Raises SettingsError if there is none, WorkerError if model.py breaks.
    """
    settings = read_settings()
    folder = Path(name) if (Path(name) / "use_case.yaml").is_file() else use_case_folder(settings, name)
    parts = file_parts(folder, settings)
    if not all(part.well for part in parts):
        return [*parts, Part("network", untried="fix the files first")]
    use_case, contract = load_use_case(folder), contract_of(folder)
    assert contract is not None
    functions = function_parts(use_case, contract)
    parts += functions
    if any(part.problems for part in functions) and any(part.untried for part in functions):
        # One of them raised, so that the next ones could not be tried: it would do so again.
        return [*parts, Part("network", untried="fix the functions of model.py first")]
    source = _of_snapshot(use_case, contract, settings) or _made(use_case, contract)
    if not source.options:
        return [*parts, Part("network", untried=source.told)]
    with tempfile.TemporaryDirectory() as out:
        say("check: the files are read; a process of its own asks the network, after importing torch")
        answer = run_worker(_job(use_case, contract, out, source.options))
    assert isinstance(answer, PreflightResult)
    return [*parts, Part("rows", evidence=source.told, brief=source.brief), *_parts(answer, use_case.name)]


def _job(use_case: UseCase, contract: Contract, out: str, file_options: dict[str, Any]) -> QuickJob:
    spec, files = use_case.spec, tuple(column.name for column in contract.file_columns)
    rows = Rows(
        features=contract.feature_columns, label=contract.label.name, group=spec.split.resample_by,
        sensitive=contract.sensitive_columns, weight=contract.weight_column, files=files,
        files_root=file_options.pop("files_root", ""), target=target_of(spec.task, contract.label.classes),
        label_file=contract.label.column if contract.label.column in files else None,
    )  # fmt: skip
    return QuickJob(
        use_case_folder=str(use_case.folder), out=out, device=spec.compute.job_device, training=spec.training,
        stages=spec.stages, hyperparameters=spec.hyperparameters, claims=spec.preflight, trainer=spec.trainer,
        rows=rows, processes=spec.compute.processes, **file_options,
    )  # fmt: skip


def _of_snapshot(use_case: UseCase, contract: Contract, settings: Settings) -> _Source | None:
    """The files of the newest snapshot that has the contract's columns; None if there is none."""
    state = StateFolder(settings.var)
    store = records_of(read_settings())
    snapshot = store.newest(use_case.name, "snapshot") if settings.var.is_dir() else None
    if not isinstance(snapshot, Snapshot):
        return None
    paths = [state.absolute(snapshot.splits[name].file.path) for name in ("training", "validation")]
    same = (snapshot.feature_columns, snapshot.label) == (contract.feature_columns, contract.label.name)
    if not same or not all(path.is_file() for path in paths):
        return None
    file_options: dict[str, Any] = {"training_file": str(paths[0]), "validation_file": str(paths[1])}
    if contract.file_columns:
        dataset = store.get(use_case.name, "dataset", snapshot.parents["dataset"])
        if not isinstance(dataset, DatasetVersion) or not state.absolute(dataset.path).is_dir():
            return None
        file_options["files_root"] = str(state.absolute(dataset.path))
    told = f"up to 2,000 of the {snapshot.splits['training'].rows:,} training rows of the newest snapshot"
    return _Source(file_options, told, "of the newest snapshot")


def _made(use_case: UseCase, contract: Contract) -> _Source:
    """How many rows to plan for, where the rows are made; nothing and why where they cannot be."""
    files = {column.name for column in contract.columns if column.file}
    target = target_of(use_case.spec.task, contract.label.classes)
    if contract.label.column in files or kind_of(target).sample_labels(1).ndim > 1:
        told = (
            "labels of files, of texts and of several values a row are not made up: make the snapshot first "
            f"(trainworthy train {use_case.name} --validate)"
        )
        return _Source({}, told)
    dataset = use_case.spec.dataset
    try:
        rows = published_version(use_case.project, dataset.name, dataset.version).rows
    except DatasetError:
        rows = UNKNOWN_ROWS
    told = "made from the contract, since there is no snapshot with its columns"
    return _Source({"made_rows": max(1, rows)}, told, "made from the contract")


def _parts(answer: PreflightResult, name: str) -> list[Part]:
    """A part for each family, with what stops, warns and passed; then what could not be tried, and what is left out."""
    trials = with_measured_causes(answer.trials)
    families = dict.fromkeys(trial.family for trial in trials)
    parts = [_family(family, [trial for trial in trials if trial.family == family]) for family in families]
    return [
        *parts,
        *([Part("untried", answer.untried, asked=False)] if answer.untried else []),
        _left_out(answer, name),
    ]


def _left_out(answer: PreflightResult, name: str) -> Part:
    """What preflight asks beyond these trials, by whole families where none of one was tried, and what asks it."""
    asked = {trial.check for trial in answer.trials}
    open_ids = [check for check in CATALOGUE if check.id not in asked and check.family != "trainer"]
    tried = {trial.family for trial in answer.trials}
    named = dict.fromkeys(check.id if check.family in tried else check.family for check in open_ids)
    others = "leakage, and forecasts of memory, time and cost"
    brief = f"{len(open_ids)} checks that need training, data or the host, {others}; --verbose names them"
    told = ", ".join([*named, others])
    return Part("left out", f"{told}: all asked by {preflight_job(name)}", asked=False, brief=brief)


def _family(name: str, trials: Sequence[Trial]) -> Part:
    stopping = [trial for trial in trials if stops_the_step(trial.status, trial.severity, trial.required)]
    notable = [trial for trial in trials if trial not in stopping and trial.status in ("fail", "error", "insufficient")]
    seconds = sum(trial.seconds for trial in trials)
    brief = f"{len(trials)} {'check' if len(trials) == 1 else 'checks'}"
    words = [f"{brief} in {seconds:.2f} s"]
    for status, word in (("pass", "passed"), ("not_applicable", "not applicable")):
        if names := [trial.check.partition(".")[2] for trial in trials if trial.status == status]:
            words.append(f"{word}: {', '.join(names)}")
    notes = "".join(f"\n    {_word(trial)} {trial.check}: {trial.evidence}" for trial in notable)
    problems = tuple(
        Problem(trial.check, f"{trial.evidence}: {trial.cause}" if trial.cause else trial.evidence, trial.fix)
        for trial in stopping
    )
    return Part(name, "; ".join(words) + notes, problems, open_checks=len(notable), brief=brief)


def _word(trial: Trial) -> str:
    return "inconclusive" if trial.status == "insufficient" else "warning"
