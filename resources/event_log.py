"""Dagster's event log in SQLite, with its files kept open: what a step's events and checks cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine
from watchdog.events import FileSystemEvent
from watchdog.observers import Observer

from trainworthy.resources.dagster_private import (
    SQLITE_BUSY_TIMEOUT_SECONDS,
    SqliteEventLogStorage,
    SqliteEventLogStorageWatchdog,
)

if TYPE_CHECKING:
    from trainworthy.resources.dagster_private import EventHandlerFn, EventLogStorage

# The index and the runs in progress; a process that serves the UI reads many more, one after the other.
KEPT_OPEN = 4
# What this file uses of Dagster's event log, beside what it imports.
USED = (
    *("_base_dir", "_connect", "_db_lock", "_initialized_dbs", "_obs", "_watchers"),
    *("conn_string_for_shard", "dispose", "path_for_shard"),
)


def fits(stock: EventLogStorage) -> bool:
    """True if the event log that Dagster made has all parts by which its files can be kept open."""
    return all(hasattr(stock, name) for name in USED) and hasattr(SqliteEventLogStorageWatchdog, "_process_log")


class KeptOpenEventLog(SqliteEventLogStorage):
    """Dagster's event log, with its database files kept open between statements.

    Dagster opens and closes a file about five times an event, and SQLite writes its journal back at
    every last close. Eight assets with 24 checks on a busy machine: 2.7 CPU s and 8.3 s so, 1.6 and 1.7
    kept open. Each event is still committed by itself.
    """

    def __init__(self, base_dir: str) -> None:
        self._engines: dict[tuple[str, int], Engine] = {}
        super().__init__(base_dir)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        if shard not in self._initialized_dbs:
            with super()._connect(shard):
                pass  # Dagster's own way of opening makes the tables.
        with self._db_lock, self._engine(shard).begin() as connection:
            yield connection

    def _engine(self, shard: str) -> Engine:
        """The engine of a file, of which the least recently used are closed. Called under the lock only."""
        # By inode, so that a file which was removed or replaced is opened anew.
        key = (shard, _inode(self.path_for_shard(shard)))
        engine = self._engines.pop(key, None) or create_engine(
            self.conn_string_for_shard(shard),
            pool_size=1,
            max_overflow=0,
            connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS},
        )
        self._engines[key] = engine
        while len(self._engines) > KEPT_OPEN:
            self._engines.pop(next(iter(self._engines))).dispose()
        return engine

    def watch(self, run_id: str, cursor: str | None, callback: EventHandlerFn) -> None:
        """Call back for each new event of the run, as Dagster does; the UI's run page lives on it."""
        if not self._obs:
            self._obs = Observer()
            self._obs.start()
        handler = _JournalWatchdog(self, run_id, callback, cursor)
        self._watchers[run_id][callback] = (handler, self._obs.schedule(handler, self._base_dir, recursive=True))

    def dispose(self) -> None:
        """Close all files."""
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()
        super().dispose()


class _JournalWatchdog(SqliteEventLogStorageWatchdog):
    """Looks at the journal too: while a process keeps the file open, its new events are only there."""

    def __init__(
        self, storage: SqliteEventLogStorage, run_id: str, callback: EventHandlerFn, cursor: str | None
    ) -> None:
        super().__init__(storage, run_id, callback, cursor)
        log = storage.path_for_shard(run_id)
        self._patterns = [log, f"{log}-wal"]

    def on_modified(self, event: FileSystemEvent) -> None:
        self._process_log()


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0
