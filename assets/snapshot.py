"""snapshot: rows that keep the contract, labelled and split."""

import functools

import dagster as dg

from trainworthy.assets.declare import step_asset
from trainworthy.assets.step import Outcome
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.validation import checked_contract, chosen_engine
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.snapshot_contract import contract_is_kept
from trainworthy.lifecycle.data.snapshot import snapshot_is_whole
from trainworthy.lifecycle.errors import Problem, UseCaseError
from trainworthy.lifecycle.lineage import identity_of
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.records import DatasetVersion, Record, Snapshot, SnapshotBody
from trainworthy.lifecycle.use_case import UseCase


def snapshot_asset(use_case: UseCase) -> dg.AssetsDefinition:
    """The asset <use case>/snapshot."""
    engine = "polars" if chosen_engine(use_case.spec.validation.engine) == "fused" else "great_expectations"
    return step_asset(use_case, "snapshot", snapshot_rows, kinds={engine, "parquet"}, reusable=snapshot_stays)


def snapshot_rows(run: StepRun) -> Outcome[SnapshotBody]:
    """Judge, label, split and write, or take over an equal snapshot. Nothing stays if a check stops the step."""
    from trainworthy.lifecycle.equal_snapshot import equal_identity, remember, taken_over
    from trainworthy.lifecycle.snapshot import make_snapshot

    state, use_case, dataset = run.workspace.state, run.use_case, run.record("dataset", DatasetVersion)
    contract, engine = declared_contract(run), use_case.spec.validation.engine
    identity = equal_identity(state, use_case, contract, dataset, chosen_engine(engine))
    if equal := taken_over(state, run.workspace.records, use_case, contract, dataset, identity):
        say(f"snapshot: that of {equal.use_case} has the same rows, rules and split; it is taken over")
        return Outcome(checks=equal.checks, body=equal.body)
    say(f"snapshot: {len(contract.rules)} rules on {dataset.rows:,} rows")
    judge = functools.partial(checked_contract, state, use_case.name, dataset.content_hash, engine)
    checks, body = make_snapshot(state, use_case, contract, dataset, judge)
    return Outcome(checks=checks, body=body, after=functools.partial(remember, state, identity))


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
