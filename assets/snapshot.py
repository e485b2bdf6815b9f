"""snapshot: rows that keep the contract, labelled and split."""

import functools

import dagster as dg

from assets.declare import step_asset
from assets.step import Outcome, StepRun
from assets.validation import checked_contract, chosen_engine
from lifecycle.contract.read import load_contract
from lifecycle.data.snapshot import snapshot_is_whole
from lifecycle.progress import say
from lifecycle.protocol.records import DatasetVersion, Record, Snapshot
from lifecycle.use_case import UseCase


def snapshot_asset(use_case: UseCase) -> dg.AssetsDefinition:
    """The asset <use case>/snapshot."""
    engine = "polars" if chosen_engine(use_case.spec.validation.engine) == "fused" else "great_expectations"
    return step_asset(use_case, "snapshot", snapshot_rows, kinds={engine, "parquet"}, reusable=snapshot_stays)


def snapshot_rows(run: StepRun) -> Outcome:
    """Judge, label, split and write, or take over an equal snapshot. Nothing stays if a check stops the step."""
    from lifecycle.equal_snapshot import equal_identity, remember, taken_over
    from lifecycle.snapshot import make_snapshot

    state, use_case, dataset = run.workspace.state, run.use_case, run.record("dataset", DatasetVersion)
    contract, engine = load_contract(use_case.contract_path), use_case.spec.validation.engine
    identity = equal_identity(state, use_case, contract, dataset, chosen_engine(engine))
    if found := taken_over(state, run.workspace.records, use_case, dataset, identity):
        say(f"snapshot: that of {found.use_case} has the same rows, rules and split; it is taken over")
        return Outcome(checks=found.checks, fields=found.fields)
    say(f"snapshot: {len(contract.rules)} rules on {dataset.rows:,} rows")
    judge = functools.partial(checked_contract, state, use_case.name, dataset.content_hash, engine)
    checks, fields = make_snapshot(state, use_case, contract, dataset, judge)
    return Outcome(checks=checks, fields=fields, after=functools.partial(remember, state, identity))


def snapshot_stays(run: StepRun, record: Record) -> bool:
    """True if the snapshot's files still have the bytes on record."""
    assert isinstance(record, Snapshot)
    return snapshot_is_whole(run.workspace.state, record.splits)
