"""snapshot: rows that keep the contract, labelled and split; and which engine judges them: each gives one verdict."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from trainworthy.assets.step import StepOutcome, StepWork
from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.result import RuleResult, contract_check
from trainworthy.lifecycle.contract.snapshot_contract import contract_is_kept
from trainworthy.lifecycle.data.snapshot import snapshot_is_whole
from trainworthy.lifecycle.errors import Problem, SettingsError, UseCaseError
from trainworthy.lifecycle.lineage import identity_of
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.leak import suspicions
from trainworthy.lifecycle.protocol.records import DatasetVersion, Record, Snapshot, SnapshotBody
from trainworthy.lifecycle.spec.use_case import Engine, chosen_engine
from trainworthy.lifecycle.storage.state import StateFolder

Validate = Callable[[Path, Contract], tuple[RuleResult, ...]]
IN_WORDS = {
    "fused": "the fused engine",
    "great_expectations": "Great Expectations",
    "spark": "Great Expectations on Spark",
}


def snapshot_rows(run: StepRun) -> StepOutcome[SnapshotBody]:
    """Judge, label, split and write, or take over an equal snapshot. Nothing stays if a check stops the step."""
    from trainworthy.lifecycle.equal_snapshot import equal_identity, remember, taken_over
    from trainworthy.lifecycle.snapshot import make_snapshot

    state, use_case, dataset = run.workspace.state, run.use_case, run.record("dataset", DatasetVersion)
    contract, engine = declared_contract(run), use_case.spec.validation.engine
    run.workspace.share_metrics(use_case.name)
    identity = equal_identity(state, use_case, contract, dataset, chosen_engine(engine))
    if equal := taken_over(state, run.workspace.records, use_case, contract, dataset, identity):
        say(f"snapshot: that of {equal.use_case} has the same rows, rules and split; it is taken over")
        run.workspace.share_metrics(use_case.name)
        return StepOutcome(checks=equal.checks, body=equal.body)
    say(f"snapshot: {len(contract.rules)} rules on {dataset.rows:,} rows")
    judge = functools.partial(checked_contract, state, use_case.name, dataset.content_hash, engine)
    checks, body = make_snapshot(state, use_case, contract, dataset, judge)
    if strongest := to_review(checks, contract, use_case.name):
        say(f"snapshot: {strongest}")
    for suspicion in suspicions(checks):
        say(f"snapshot: suspicious, not shown to be a leak: {suspicion}")
    run.workspace.share_metrics(use_case.name)
    return StepOutcome(checks=checks, body=body, after=functools.partial(remember, state, identity))


def to_review(checks: Sequence[CheckResult], contract: Contract, use_case: str) -> str:
    """The input that tells most of the label alone, with its figures, if nobody has reviewed it; empty else.

    Below what decides alone, no statistic tells a leak from an honest input: only who knows when its value is known.
    """
    from trainworthy.lifecycle.leakage.single_feature import FAMILY

    details = [detail for check in checks if check.name == "leakage" for detail in check.details]
    strongest = [detail for detail in details if (detail["family"], detail["status"]) == (FAMILY, "pass")]
    unreviewed = [detail for detail in strongest if {*detail["columns"]} & {*contract.unreviewed_features}]
    if not unreviewed:
        return ""
    question = f"is its value known when the model is asked? trainworthy contract review {use_case}"
    return f"{unreviewed[0]['evidence']}. Nobody has reviewed it: {question}"


def declared_contract(run: StepRun) -> Contract:
    """contract.yaml as it is in the step's identity. Raises UseCaseError if it was edited while the step began."""
    contract = load_contract(run.use_case.contract_path)
    read = {"contract": contract.sha256}
    if identity_of(run.use_case, run.step, run.code_sha256, run.upstream, read) != run.identity:
        changed = Problem("contract.yaml", "was edited while the snapshot step began", "run again")
        raise UseCaseError(run.use_case.name, [changed])
    return contract


def snapshot_stays(run: StepRun, record: Record) -> bool:
    """True if the snapshot's files, and the contract that judged them, still have the bytes on record."""
    assert isinstance(record, Snapshot)
    state, contract = run.workspace.state, record.contract
    return snapshot_is_whole(state, record.splits) and (contract is None or contract_is_kept(state, contract))


def checked_contract(
    state: StateFolder, use_case: str, dataset: str, engine: Engine, folder: Path, contract: Contract
) -> CheckResult:
    """The check `contract` of a dataset's files; all failing rows lie below validation/<use case>/<dataset's hash>."""
    from trainworthy.lifecycle.contract.failing_rows import write_failing_rows

    chosen = chosen_engine(engine)
    results = validator(chosen)(folder, contract)
    target = state.folder("validation", use_case, dataset[:16])
    files = {rows_file.rule: rows_file for rows_file in write_failing_rows(folder, contract, results, target)}
    check = contract_check(results)
    details = [dict(detail) for detail in check.details]
    for detail in details:
        if rows_file := files.get(detail["rule"]):
            detail["failing_rows"] = {"rows": rows_file.rows, "file": state.relative(target / rows_file.file)}
    evidence = f"{check.evidence}. Judged by {IN_WORDS[chosen]}"
    return check.model_copy(update={"evidence": evidence, "details": tuple(details)})


def validator(engine: Engine) -> Validate:
    """The engine's function. Raises SettingsError where Spark is not installed."""
    if engine == "great_expectations":
        from trainworthy.expectations.validate import validate_files
    elif engine == "spark":
        _refuse_without(("pyspark",))
        from trainworthy.expectations.spark import validate_files
    else:
        from trainworthy.lifecycle.contract.polars_engine import validate_files
    return validate_files


def _refuse_without(modules: Sequence[str]) -> None:
    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        raise SettingsError(
            "validation.engine is spark, and that is not installed",
            value=", ".join(absent),
            fix="pip install -e '.[spark]' (it needs Java 17), or write validation: {engine: auto}",
        )


STEP = StepWork(snapshot_rows, reusable=snapshot_stays)
