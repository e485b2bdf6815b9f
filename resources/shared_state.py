"""Records and verdicts where the settings say: in the state folder, a folder that several machines see, or a bucket."""

from __future__ import annotations

import os
from pathlib import Path

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.promotion.log import VerdictLog
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.storage.durable.bucket import Bucket, check_address, is_bucket
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.bucket import BucketState
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.shared.store import StateStore
from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
from trainworthy.resources.settings import STATE, Settings


def shared_state(settings: Settings) -> StateStore:
    """The store, which is not asked yet. Raises SettingsError for what is no folder and no address of a bucket."""
    place = settings.shared
    if place is None:
        return FolderState(settings.var)
    if is_bucket(place):
        check_address(place)
        return BucketState(Bucket(place))
    if not Path(place).is_dir():
        # Never made here: a volume that is not mounted would look empty.
        fix = f"mount it, or name an existing folder in {STATE}"
        raise SettingsError("the folder for shared state does not exist", value=place, fix=fix)
    return FolderState(Path(place))


def refuse_own_registry(settings: Settings) -> None:
    """Raises SettingsError where state is shared, and the registry that its verdicts promote in is this machine's own.

    Its version 1 and that of another machine are two models, and a log that both write would take one for the other.
    """
    if settings.shared is not None and not os.environ.get("MLFLOW_TRACKING_URI"):
        raise SettingsError(
            f"{STATE} shares verdicts, and the registry that they promote in lies in this machine's state folder",
            value=without_credentials(settings.shared),
            fix="name a server that all machines reach in MLFLOW_TRACKING_URI (docs/how-to/postgresql.md), or unset "
            f"{STATE}",
            code="state.own_registry",
        )


def records_of(settings: Settings) -> StateRecords:
    """The records."""
    return StateRecords(shared_state(settings))


def verdict_log_of(settings: Settings, use_case: str) -> VerdictLog:
    """The verdict log of a use case."""
    return VerdictLog(shared_state(settings), use_case)


def report_of(settings: Settings, use_case: str, run_id: str) -> Path:
    """Where a run's report lies on this machine; one of another machine is fetched, if there is one."""
    path = StateFolder(settings.var).folder("reports", use_case, f"{run_id}.html")
    if settings.shared is not None and not path.is_file():
        stored = shared_state(settings).get(report_key(use_case, run_id))
        if stored is not None:
            write_atomic(path, stored.content)
    return path


def report_key(use_case: str, run_id: str) -> str:
    """The report's key in the shared state."""
    return f"reports/{use_case}/{run_id}.html"
