"""snapshot: rows that keep the contract, labelled and split."""

import dagster as dg

from assets.declare import step_asset
from assets.step import Outcome, StepRun
from assets.validation import checked_contract, chosen_engine
from lifecycle.checks import CheckResult, stopping
from lifecycle.contract.availability import availability_check
from lifecycle.contract.model import load_contract
from lifecycle.data.class_balance import class_balance_check
from lifecycle.data.files import read_columns
from lifecycle.data.snapshot import install_snapshot, snapshot_is_whole, with_label, written_splits
from lifecycle.data.split import split_columns, split_rows, splits_check
from lifecycle.drift.check import drift_check
from lifecycle.drift.history import judged_days
from lifecycle.leakage.battery import leakage
from lifecycle.progress import say
from lifecycle.records import DatasetVersion, Record, Snapshot
from lifecycle.storage.metrics import add_metrics
from lifecycle.use_case import UseCase


def snapshot_asset(use_case: UseCase) -> dg.AssetsDefinition:
    """The asset <use case>/snapshot."""
    kinds = {"polars" if chosen_engine(use_case.spec.validation.engine) == "fused" else "great_expectations", "parquet"}
    return step_asset(use_case, "snapshot", make_snapshot, kinds=kinds, reusable=snapshot_stays)


def make_snapshot(run: StepRun) -> Outcome:
    """Validate, label, split and write. Nothing stays if a check stops the step."""
    spec, dataset, state = run.use_case.spec, run.record("dataset", DatasetVersion), run.workspace.state
    contract, source = load_contract(run.use_case.contract_path), state.absolute(dataset.path)
    say(f"snapshot: {len(contract.rules)} rules on {dataset.rows:,} rows")
    checks: tuple[CheckResult, ...] = (
        checked_contract(state, spec.name, dataset.content_hash, source, contract, spec.validation.engine),
        availability_check(contract, contract.feature_columns),
    )
    if stopping(checks):
        return Outcome(checks=checks, fields=None)
    columns = (*split_columns(spec.split, contract), spec.prediction_time, contract.label.column)
    labelled, label = with_label(read_columns(source, columns), contract.label), contract.label.name
    splits = split_rows(labelled, spec.split, contract)
    checks += (
        splits_check(splits, spec.split, label, contract.primary_key, len(labelled)),
        class_balance_check(splits["training"][label], spec.training.class_weights),
    )
    if stopping(checks):
        return Outcome(checks=checks, fields=None)
    history, metrics = judged_days(state, run.use_case, source, dataset)
    with written_splits(state, run.use_case, source, splits, label) as written:
        checks += (history, leakage(written, contract, spec.split), drift_check(written, contract, spec.split))
        if stopping(checks):
            return Outcome(checks=checks, fields=None)
        fields = install_snapshot(state, run.use_case, contract, dataset, splits, written)
    if metrics is not None:
        add_metrics(state, run.use_case.name, metrics)
    excluded = dataset.rows - len(labelled)
    fields |= {"rows": len(labelled), "excluded_rows": excluded, "excluded_share": excluded / dataset.rows}
    return Outcome(checks=checks, fields=fields)


def snapshot_stays(run: StepRun, record: Record) -> bool:
    """True if the snapshot's files still have the bytes on record."""
    assert isinstance(record, Snapshot)
    return snapshot_is_whole(run.workspace.state, record.splits)
