"""All that Trainworthy uses of Dagster's private modules, those with an underscore in their path.

Each name is looked up when it is imported from here: some bring SQLAlchemy, which definitions must not load. Where
Dagster lacks one of those that dagster.yaml needs, for the storage and the output of workers, it is an error. All else
falls back, since it is comfort: a stop shows its stack, runs of the bare command are not listed under their job, and
the event log opens its files anew for every statement. ruff (TID251) keeps such imports out of every other module.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import SettingsError

if TYPE_CHECKING:
    from dagster._core.code_pointer import ModuleCodePointer as ModuleCodePointer
    from dagster._core.definitions.unresolved_asset_job_definition import (
        UnresolvedAssetJobDefinition as UnresolvedAssetJobDefinition,
    )
    from dagster._core.errors import DagsterUserCodeProcessError as DagsterUserCodeProcessError
    from dagster._core.event_api import EventHandlerFn as EventHandlerFn
    from dagster._core.storage.compute_log_manager import CapturedLogContext as CapturedLogContext
    from dagster._core.storage.compute_log_manager import ComputeIOType as ComputeIOType
    from dagster._core.storage.event_log.base import EventLogStorage as EventLogStorage
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage as SqliteEventLogStorage
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
        SqliteEventLogStorageWatchdog as SqliteEventLogStorageWatchdog,
    )
    from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager as LocalComputeLogManager
    from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS as SQLITE_BUSY_TIMEOUT_SECONDS
    from dagster._core.storage.sqlite_storage import DagsterSqliteStorage as DagsterSqliteStorage
    from dagster._serdes import ConfigurableClassData as ConfigurableClassData

# The newest Dagster that the tests of these names have passed with.
NEWEST_TESTED = "1.13.28"
PLACES = {
    "CapturedLogContext": "dagster._core.storage.compute_log_manager",
    "ComputeIOType": "dagster._core.storage.compute_log_manager",
    "DagsterSqliteStorage": "dagster._core.storage.sqlite_storage",
    "DagsterUserCodeProcessError": "dagster._core.errors",
    "LocalComputeLogManager": "dagster._core.storage.local_compute_log_manager",
    "ModuleCodePointer": "dagster._core.code_pointer",
    "SQLITE_BUSY_TIMEOUT_SECONDS": "dagster._core.storage.sqlite",
    "SqliteEventLogStorage": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "SqliteEventLogStorageWatchdog": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
}


class DagsterPrivateError(SettingsError):
    """The installed Dagster lacks something that Trainworthy needs of it, as a newer one than was tested may.

    Told are the private name, the installed version and the newest tested one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the installed Dagster has no {name}, which Trainworthy needs; {NEWEST_TESTED} is the newest tested",
            value=f"dagster {metadata.version('dagster')}",
            fix=f"pip install dagster=={NEWEST_TESTED} dagster-webserver=={NEWEST_TESTED}, or a newer Trainworthy",
        )


def __getattr__(name: str) -> Any:
    """The private name of Dagster; DagsterPrivateError if the installed one lacks it."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(PLACES[name]), name)
    except (ImportError, AttributeError):
        raise DagsterPrivateError(f"{PLACES[name]}.{name}") from None
