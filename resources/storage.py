"""Dagster's own storage below the state folder, so that one environment variable moves all local state."""

from __future__ import annotations

import fcntl
import os
from typing import Any

import click
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData

from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.resources.event_log import KeptOpenEventLog
from trainworthy.resources.settings import read_settings


class StateFolderStorage(DagsterSqliteStorage):
    """SQLite at <state folder>/dagster; named in dagster.yaml."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._event_log_storage = KeptOpenEventLog(os.path.join(base_dir, "history", "runs", ""))

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> StateFolderStorage:
        try:
            state = StateFolder(read_settings().var)
            state.check_writable()
        except TrainworthyError as error:
            # Dagster opens its storage before it loads any definitions, so this is where bad settings show first.
            raise click.ClickException(str(error)) from None
        folder = state.folder("dagster")
        folder.mkdir(exist_ok=True)
        with (folder / ".lock").open("w") as file:
            # Two processes that create the tables at once can leave two schema heads for ever (dagster issue 27390).
            fcntl.flock(file, fcntl.LOCK_EX)
            return cls.from_local(str(folder), inst_data=inst_data)
