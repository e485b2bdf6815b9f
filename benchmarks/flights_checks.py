"""What the snapshot step says of a folder of flights, check by check: the contract's verdict, then all the others'."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainworthy.lifecycle.contract import polars_engine
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.result import contract_check
from trainworthy.lifecycle.data.backfill import backfill_check
from trainworthy.lifecycle.drift.history import history_check, measure_days
from trainworthy.lifecycle.files.content import ContentHash, combined, content_hash, parquet_files
from trainworthy.lifecycle.files.versions import PublishedVersion
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.records import Cost, DatasetVersion, Provenance
from trainworthy.lifecycle.snapshot import make_snapshot
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase

_NOTHING = Provenance(git_commit=None, git_dirty=None, code_sha256="", environment_sha256="", run_id="", created_at="")
# The order in which a person reads them.
CAN_FIND = ("contract", "drift", "history", "leakage", "backfill")


def snapshot_checks(files: Path, use_case: UseCase, contract: Contract, scratch: Path) -> dict[str, CheckResult]:
    """Each check of the snapshot step by name, the rows judged by `contract`.

    A contract that is broken would end the step; here the other checks are asked all the same.
    """
    found = contract_check(polars_engine.validate_files(files, contract))
    with tempfile.TemporaryDirectory(dir=scratch) as state:
        (Path(state) / "files").mkdir()
        for name, path in parquet_files(files).items():
            os.link(path.resolve(), Path(state, "files", name))
        dataset = _version("v0", files).model_copy(update={"path": "files"})
        checks, _ = make_snapshot(StateFolder(Path(state)), use_case, contract, dataset, lambda *_: _asked_before())
    return {check.name: check for check in (found, *checks[1:])}


def kept_check(published: Path, files: Path) -> CheckResult:
    """The check `backfill` of the step dataset: `files` as v4, after the first three files of `published` as v3."""
    contents = {"v3": combined(content_hash(published).files[:3]), "v4": content_hash(files)}
    versions = {name: _entry(number, contents[name]) for number, name in enumerate(contents, start=3)}
    known = {version.content_hash: contents[name] for name, version in versions.items()}
    return backfill_check("flights", "v4", versions, lambda version: known[version.content_hash])


def history_after(earlier: Path, files: Path, use_case: UseCase) -> CheckResult:
    """The check `history` of `files`, where the version before them held `earlier`: it judges all days that are new."""
    column = use_case.spec.split.time_column or use_case.spec.prediction_time
    before, now = (
        measure_days(path, _version(name, path), column) for name, path in (("old", earlier), ("new", files))
    )
    return history_check(now, [before], window_days=30)


def _version(revision: str, files: Path) -> DatasetVersion:
    import pyarrow.parquet as pq

    return DatasetVersion(
        use_case="flight_delays", parents={}, identity="", provenance=_NOTHING, cost=Cost(), name="flights",
        revision=revision, dvc_hash="", content_hash=revision, path=str(files), files=(),
        rows=sum(pq.read_metadata(path).num_rows for path in parquet_files(files).values()),
    )  # fmt: skip


def _entry(month: int, content: ContentHash) -> PublishedVersion:
    return PublishedVersion(
        parameters={"through_month": month}, rows=1, content_hash=content.sha256, dvc_hash=f"{'0' * 32}.dir"
    )


def _asked_before() -> CheckResult:
    return CheckResult(name="contract", status="pass")


def alarms(checks: Sequence[CheckResult]) -> dict[str, str]:
    """What each check that found something does about it: it `stops` the run, or it `warns`."""
    stops = {check.name for check in stopping(checks)}
    return {
        check.name: "stops" if check.name in stops else "warns"
        for check in checks
        if check.status not in ("pass", "not_applicable", "insufficient")
    }
