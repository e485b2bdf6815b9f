"""Dagster's own storage below the state folder, so that one environment variable moves all local state."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Any

import click

from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.resources.dagster_private import DagsterPrivateError
from trainworthy.resources.settings import claim_state, read_settings

try:
    from trainworthy.resources.dagster_private import DagsterSqliteStorage
except DagsterPrivateError as error:
    raise click.ClickException(str(error)) from None

if TYPE_CHECKING:
    from trainworthy.resources.dagster_private import ConfigurableClassData, EventLogStorage


class StateFolderStorage(DagsterSqliteStorage):
    """SQLite at <state folder>/dagster; named in dagster.yaml."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._event_log_storage = kept_open(self.event_log_storage, os.path.join(base_dir, "history", "runs", ""))

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> StateFolderStorage:
        try:
            state = claim_state(read_settings())
        except TrainworthyError as error:
            # Dagster opens its storage before it loads any definitions, so this is where bad settings show first.
            raise click.ClickException(str(error)) from None
        folder = state.folder("dagster")
        folder.mkdir(exist_ok=True)
        with (folder / ".lock").open("w") as file:
            # Two processes that create the tables at once can leave two schema heads for ever (dagster issue 27390).
            fcntl.flock(file, fcntl.LOCK_EX)
            return cls.from_local(str(folder), inst_data=inst_data)


def kept_open(stock: EventLogStorage, folder: str) -> EventLogStorage:
    """The event log in that folder with its files kept open; Dagster's own where its parts have other names."""
    try:
        from trainworthy.resources.event_log import KeptOpenEventLog, fits
    except DagsterPrivateError:
        return stock
    return KeptOpenEventLog(folder) if fits(stock) else stock
