"""What the command line prints: verdicts and dataset versions, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from lifecycle.data.versions import read_versions
from lifecycle.errors import DatasetError, RecordError
from lifecycle.promotion import log
from lifecycle.promotion.history import rolled_back
from lifecycle.promotion.judged import Standing, standing
from lifecycle.records import Verdict
from lifecycle.storage.records import FileRecordStore, record_sha256
from lifecycle.storage.state import StateFolder
from lifecycle.use_case import UseCase, load_use_case
from resources.settings import projects, read_settings, use_case_folder


def newest_verdict(use_case: str) -> Verdict:
    """The newest verdict. Raises RecordError if the use case was never judged, or if the log lacks the verdict."""
    entries = verdict_log(use_case)
    found = FileRecordStore(StateFolder(read_settings().var)).newest(use_case, "promotion")
    fix = f"run: dagster job execute -m pipeline.definitions -j train_{use_case}"
    if not isinstance(found, Verdict):
        raise RecordError("there is no verdict yet", value=use_case, fix=fix)
    if record_sha256(found) not in {entry.verdict_sha256 for entry in entries}:
        problem = "the newest verdict is not in the log: its run ended before it was entered, so it never counted"
        raise RecordError(problem, value=found.provenance.run_id, fix=fix)
    return found


def champion_version(use_case: str) -> str | None:
    """Version of the champion by the verdict log, None without one. Raises RecordError for a broken log."""
    entry = log.champion(verdict_log(use_case))
    return entry.model_version if entry else None


def verdict_log(use_case: str) -> tuple[log.LogEntry, ...]:
    """The entries of the verdict log. Raises SettingsError for an unknown use case, RecordError for a broken log."""
    settings = read_settings()
    use_case_folder(settings, use_case)
    return log.read(StateFolder(settings.var).folder("verdicts", f"{use_case}.jsonl"))


def standing_of(use_case: UseCase) -> Standing:
    """Champion and waiting dataset versions, by the verdict log. Raises RecordError for a broken one."""
    store = FileRecordStore(StateFolder(read_settings().var))
    return standing(use_case, verdict_log(use_case.name), store)


def find_use_case(name: str) -> UseCase:
    """The use case of that name. Raises SettingsError with the nearest name, UseCaseError if it cannot be loaded."""
    return load_use_case(use_case_folder(read_settings(), name))


def verdict_text(verdict: Verdict) -> str:
    """Decision, reasons, cost and where to look, for a terminal."""
    state = StateFolder(read_settings().var)
    reasons = "\n".join(f"  - {reason}" for reason in verdict.reasons)
    spent = sum(cost.usd for cost in verdict.step_costs.values()) + verdict.cost.usd
    wall = sum(cost.wall_seconds for cost in verdict.step_costs.values()) + verdict.cost.wall_seconds
    report = state.folder("reports", verdict.use_case, f"{verdict.provenance.run_id}.html")
    run_id = verdict.provenance.run_id
    judged = f"judged {verdict.provenance.created_at[:16].replace('T', ' ')} UTC"
    withdrawn = rolled_back(verdict_log(verdict.use_case), verdict.model_version)
    since = f"Since then: {withdrawn.told}.\n" if withdrawn and verdict.decision == "promote" else ""
    return (
        f"\n{verdict.use_case}: {verdict.decision.upper()} (model version {verdict.model_version}), {judged}\n{since}"
        f"{reasons}\n\n"
        f"cost        {spent:.4f} USD in the run that was judged, {wall:.0f} s; "
        f"the model in all {verdict.model_cost.usd + verdict.cost.usd:.4f} USD\n"
        f"report      {report}\n"
        f"Dagster UI  make ui, then http://127.0.0.1:3000/runs/{run_id}\n"
        f"MLflow UI   make mlflow-ui, then http://127.0.0.1:5000\n"
    )


def datasets_text() -> str:
    """Every published version with rows and parameters."""
    lines = [
        f"{name}@{revision:<6} {version.rows:>12,} rows  {version.content_hash[:12]}  "
        + ", ".join(f"{key}={value}" for key, value in version.parameters.items())
        for project in projects(read_settings())
        for name, versions in read_versions(project).items()
        for revision, version in versions.items()
    ]
    return "\n".join(lines) or "no dataset version is published yet: trainworthy datasets publish --help"


def publish_dataset(name: str, revision: str, parameters: Sequence[str]) -> str:
    """Publish a version of a project's dataset; NAME=VALUE parameters are read as YAML scalars."""
    from resources.dvc import DatasetStore

    pairs = [parameter.partition("=") for parameter in parameters]
    wrong = [parameter for parameter, (_, sign, _) in zip(parameters, pairs, strict=True) if not sign]
    if wrong:
        raise DatasetError("parameters are written NAME=VALUE", value=wrong, fix="for example through_month=9")
    values = {key: yaml.safe_load(value) for key, _, value in pairs}
    state = StateFolder(read_settings().var)
    state.check_writable()
    version = DatasetStore(state.root).publish(_project_of(name), name, revision, values)
    told = f"{version.rows:,} rows, content hash {version.content_hash}"
    return f"published {name}@{revision}: {told}; now commit data/versions.yaml"


def _project_of(dataset: str) -> Path:
    """The project whose dvc.yaml builds the dataset; with one project that one, so that it tells what is wrong."""
    known = projects(read_settings())
    building = [project for project in known if dataset in _stages(project)]
    if len(known) == 1 or len(building) == 1:
        return (building or known)[0]
    problem = "no project builds this dataset" if not building else "two projects build a dataset of this name"
    told = [str(project) for project in building or known]
    raise DatasetError(f"{problem}: {', '.join(told)}", value=dataset, fix="name one folder in TRAINWORTHY_USE_CASES")


def _stages(project: Path) -> dict[str, object]:
    path = project / "dvc.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
    return values.get("stages") or {} if isinstance(values, dict) else {}
