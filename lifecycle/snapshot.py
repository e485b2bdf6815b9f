"""The snapshot step: judged, labelled, split, written, looked at for leaks and drift, and only then installed.

The rows are never held whole: splits are cut on a few columns, the rows are streamed from file to file by their number,
and leakage and drift read columns of the written splits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.contract.availability import availability_check
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.class_balance import class_balance_check
from trainworthy.lifecycle.data.file_rows import look_at_files
from trainworthy.lifecycle.data.files import key_hashes, read_columns
from trainworthy.lifecycle.data.snapshot import install_snapshot, with_label, written_splits
from trainworthy.lifecycle.data.split import split_columns, split_rows, splits_check
from trainworthy.lifecycle.drift.check import drift_check
from trainworthy.lifecycle.drift.history import judged_days
from trainworthy.lifecycle.drift.nulls import nulls_between_splits
from trainworthy.lifecycle.leakage.battery import leakage
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.records import DatasetVersion, SnapshotBody
from trainworthy.lifecycle.storage.metrics import add_metrics
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase


def make_snapshot(
    state: StateFolder,
    use_case: UseCase,
    contract: Contract,
    dataset: DatasetVersion,
    judge: Callable[[Path, Contract], CheckResult],
) -> tuple[tuple[CheckResult, ...], SnapshotBody | None]:
    """The checks, and the body of the Snapshot record; None if a check stops the step: then nothing stays.

    `judge` gives the check `contract` of a folder of Parquet files.
    """
    spec, source, label = use_case.spec, state.absolute(dataset.path), contract.label.name
    checks = (judge(source, contract), availability_check(contract, contract.feature_columns))
    if stopping(checks):
        return checks, None
    files = look_at_files(source, contract)
    checks += (files.check,)
    if stopping(checks):
        return checks, None
    times = () if spec.prediction_time is None else (spec.prediction_time,)
    columns = (*split_columns(spec.split, contract), *times, contract.label.column)
    labelled = with_label(read_columns(source, columns), contract.label, source)
    splits, labelled_rows = split_rows(labelled, spec.split, contract), len(labelled)
    del labelled  # the splits hold their own copy
    hashes = key_hashes(source, contract.primary_key)
    checks += (
        splits_check(splits, spec.split, contract.label, contract.primary_key, labelled_rows, hashes),
        class_balance_check(splits["training"][label], spec.training.imbalance, contract.label.kind),
    )
    if stopping(checks):
        return checks, None
    del hashes
    history, metrics = judged_days(state, use_case, source, dataset)
    with written_splits(state, use_case, source, splits, label, files.hashes) as written:
        history = history or nulls_between_splits(written, spec.split)
        checks += (history, leakage(written, contract, spec.split, spec.prediction_time))
        checks += (drift_check(written, contract, spec.split),)
        if stopping(checks):
            return checks, None
        body = install_snapshot(state, use_case, contract, dataset, splits, written, labelled_rows)
    if metrics is not None:
        add_metrics(state, use_case.name, metrics)
    return checks, body
