"""What the command line prints of verdicts, as text, and where a use case stands."""

from __future__ import annotations

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.history import rolled_back
from trainworthy.lifecycle.promotion.judged import Standing, standing
from trainworthy.lifecycle.protocol.records import Verdict
from trainworthy.lifecycle.run_config import first_model_fix
from trainworthy.lifecycle.storage.records import FileRecordStore, record_sha256
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.settings import dagster_url, mlflow_url, read_settings, use_case_folder


def newest_verdict(use_case: str) -> Verdict:
    """The newest verdict. Raises RecordError if the use case was never judged, or if the log lacks the verdict."""
    entries = verdict_log(use_case)
    found = FileRecordStore(StateFolder(read_settings().var)).newest(use_case, "promotion")
    fix = judge_fix(use_case, entries)
    if not isinstance(found, Verdict):
        raise RecordError("there is no verdict yet", value=use_case, fix=fix)
    if record_sha256(found) not in {entry.verdict_sha256 for entry in entries}:
        problem = "the newest verdict is not in the log: its run ended before it was entered, so it never counted"
        raise RecordError(problem, value=found.provenance.run_id, fix=fix)
    return found


def judge_fix(use_case: str, entries: tuple[log.LogEntry, ...]) -> str:
    """How a verdict comes about: without a champion the first run must say that it is the first."""
    if log.champion(entries) is None:
        return first_model_fix(use_case_folder(read_settings(), use_case))
    return f"run: dagster job execute -m trainworthy.pipeline.definitions -j train_{use_case}"


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
    from trainworthy.lifecycle.report.formatting import seconds

    state = StateFolder(read_settings().var)
    reasons = "\n".join(f"  - {reason}" for reason in verdict.reasons)
    spent = sum(cost.usd for cost in verdict.step_costs.values()) + verdict.cost.usd
    wall = sum(cost.wall_seconds for cost in verdict.step_costs.values()) + verdict.cost.wall_seconds
    report = state.folder("reports", verdict.use_case, f"{verdict.provenance.run_id}.html")
    run_id = verdict.provenance.run_id
    judged = f"judged {verdict.provenance.created_at[:16].replace('T', ' ')} UTC"
    withdrawn = rolled_back(verdict_log(verdict.use_case), verdict.model_version)
    since = f"Since then: {withdrawn.told}.\n" if withdrawn and verdict.decision == "promote" else ""
    champion = log.champion(verdict_log(verdict.use_case))
    live = f"version {champion.model_version}" if champion else "none"
    decided = f"{verdict.decision.upper()}{verdict.headline and f', {verdict.headline}'}"
    return (
        f"\n{verdict.use_case}: {decided} (model version {verdict.model_version}), {judged}\n"
        f"{since}"
        f"{reasons}\n\n"
        f"champion    {live}\n"
        f"cost        this run: {spent:.4f} USD, {seconds(wall)}; "
        f"with reused steps: {verdict.model_cost.usd + verdict.cost.usd:.4f} USD\n"
        f"report      {report}\n"
        f"Dagster UI  make ui, then {dagster_url()}/runs/{run_id}\n"
        f"MLflow UI   make mlflow-ui, then {mlflow_url()}\n"
    )
