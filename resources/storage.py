"""Dagster's own storage below the state folder, so that one environment variable moves all local state."""

from __future__ import annotations

from typing import Any

from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData

from resources.settings import read_settings


class StateFolderStorage(DagsterSqliteStorage):
    """SQLite at <state folder>/dagster; named in dagster.yaml."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> StateFolderStorage:
        return cls.from_local(str(read_settings().var / "dagster"), inst_data=inst_data)
