"""A snapshot that was made before of the same rows by the same rules: taken over instead of judged and written again.

Two use cases on one dataset, say to compare two networks, and one use case after a change of its model.py ask the same
of the same rows: no part of the snapshot calls a use case's code. `equal_snapshots/<identity>` in the state folder
holds which use case has such a snapshot, and its record's hash.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.code_identity import ENTRIES, KEPT, CodeOnDisk
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.snapshot_contract import keep_contract
from trainworthy.lifecycle.data.snapshot import install_rows, snapshot_is_whole
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.identity import step_identity
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import DatasetVersion, Record, Snapshot, SnapshotBody, Split, part_of
from trainworthy.lifecycle.spec.use_case import Engine
from trainworthy.lifecycle.storage.metrics import add_metrics, metrics_of
from trainworthy.lifecycle.storage.records import RecordStore, record_sha256
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
from trainworthy.lifecycle.use_case import UseCase


@dataclass(frozen=True)
class TakenOver:
    """The checks and the body of a snapshot's record, whose files lie below the use case's own name; whose it was."""

    checks: tuple[CheckResult, ...]
    body: SnapshotBody
    use_case: str


def equal_identity(
    state: StateFolder, use_case: UseCase, contract: Contract, dataset: DatasetVersion, engine: Engine
) -> str:
    """What decides a snapshot, without the use case's name and code.

    The earlier versions that the use case has seen are part of it: `history` judges the days that the last one lacks.
    """
    parts = {"name": dataset.name, "version": dataset.revision, "class_weights": use_case.spec.training.imbalance}
    return step_identity(
        "equal_snapshot",
        sections=declared_sections(use_case, "snapshot") | parts | {"engine": engine},
        inputs={
            "rows": dataset.content_hash,
            "contract": contract.sha256,
            "earlier": " ".join(_earlier(state, use_case, dataset)),
        },
        code_sha256=CodeOnDisk(state.folder(*KEPT)).of(ENTRIES["snapshot"]).sha256,
    )


def remember(state: StateFolder, identity: str, record: Record) -> None:
    """Let others take over this snapshot."""
    write_atomic(state.folder("equal_snapshots", identity), f"{record.use_case} {record_sha256(record)}".encode())


def taken_over(
    state: StateFolder, records: RecordStore, use_case: UseCase, contract: Contract, dataset: DatasetVersion,
    identity: str,
) -> TakenOver | None:  # fmt: skip
    """The snapshot of that identity under this use case's name; None without one, or if a byte of it has changed."""
    try:
        other, sha256 = state.folder("equal_snapshots", identity).read_text(encoding="ascii").split()
        record, measured = records.get(other, "snapshot", sha256), metrics_of(state, other)
    except (OSError, ValueError, TrainworthyError):
        return None
    if not isinstance(record, Snapshot) or not snapshot_is_whole(state, record.splits):
        return None
    for metrics in measured:
        if metrics.measured == (dataset.name, dataset.content_hash, _day_column(use_case)):
            add_metrics(state, use_case.name, metrics)
    own = {
        "splits": _under_own_name(state, use_case, record),
        "contract": keep_contract(state, use_case.name, contract),
    }
    return TakenOver(_taken_checks(record, use_case), part_of(record, SnapshotBody).model_copy(update=own), other)


def _day_column(use_case: UseCase) -> str | None:
    return use_case.spec.split.time_column or use_case.spec.prediction_time


def _earlier(state: StateFolder, use_case: UseCase, dataset: DatasetVersion) -> list[str]:
    """Contents of the versions of the dataset that were validated before this one."""
    key = (dataset.name, _day_column(use_case))
    contents = [
        metrics.content_hash
        for metrics in metrics_of(state, use_case.name)
        if (metrics.dataset, metrics.day_column) == key
    ]
    return contents[: contents.index(dataset.content_hash)] if dataset.content_hash in contents else contents


def _taken_checks(record: Snapshot, use_case: UseCase) -> tuple[CheckResult, ...]:
    """The record's checks; the first, of the contract, says whose they are."""
    whose = "an earlier snapshot of" if record.use_case == use_case.name else "the snapshot of use case"
    contract, *rest = record.checks
    evidence = f"{contract.evidence}. Taken over from {whose} {record.use_case}: the same rows, rules and split"
    return contract.model_copy(update={"evidence": evidence}), *rest


def _under_own_name(state: StateFolder, use_case: UseCase, record: Snapshot) -> dict[str, Split]:
    """The splits as files of this use case: hard links where there are such, so that each may remove its own."""
    source = state.absolute(record.splits["training"].file.path).parent
    target = state.folder("snapshots", use_case.name, source.name)
    splits = {name: _moved(state, split, target) for name, split in record.splits.items()}
    if not snapshot_is_whole(state, splits):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as folder:
            linked = Path(shutil.copytree(source, Path(folder, source.name), copy_function=_link))
            install_rows(linked, target)
    return splits


def _moved(state: StateFolder, split: Split, folder: Path) -> Split:
    path = state.relative(folder / Path(split.file.path).name)
    return split.model_copy(update={"file": split.file.model_copy(update={"path": path})})


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
