"""snapshot: rows that keep the contract, labelled and split."""

import functools

import dagster as dg

from assets.declare import step_asset
from assets.step import Outcome, StepRun
from assets.validation import checked_contract, chosen_engine
from lifecycle.contract.model import load_contract
from lifecycle.data.snapshot import snapshot_is_whole
from lifecycle.progress import say
from lifecycle.records import DatasetVersion, Record, Snapshot
from lifecycle.use_case import UseCase


def snapshot_asset(use_case: UseCase) -> dg.AssetsDefinition:
    """The asset <use case>/snapshot."""
    engine = "polars" if chosen_engine(use_case.spec.validation.engine) == "fused" else "great_expectations"
    return step_asset(use_case, "snapshot", snapshot_rows, kinds={engine, "parquet"}, reusable=snapshot_stays)


def snapshot_rows(run: StepRun) -> Outcome:
    """Judge, label, split and write. Nothing stays if a check stops the step."""
    from lifecycle.snapshot import make_snapshot

    state, use_case, dataset = run.workspace.state, run.use_case, run.record("dataset", DatasetVersion)
    contract = load_contract(use_case.contract_path)
    say(f"snapshot: {len(contract.rules)} rules on {dataset.rows:,} rows")
    judge = functools.partial(
        checked_contract, state, use_case.name, dataset.content_hash, use_case.spec.validation.engine
    )
    checks, fields = make_snapshot(state, use_case, contract, dataset, judge)
    return Outcome(checks=checks, fields=fields)


def snapshot_stays(run: StepRun, record: Record) -> bool:
    """True if the snapshot's files still have the bytes on record."""
    assert isinstance(record, Snapshot)
    return snapshot_is_whole(run.workspace.state, record.splits)
