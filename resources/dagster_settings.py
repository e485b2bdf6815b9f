"""What dagster.yaml says of Dagster's storage, read without opening it: a database that is away can be named so."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import yaml

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.unique_keys import yaml_mistake
from trainworthy.resources.settings import Settings

FILE = "dagster.yaml"
HOW_TO = "docs/how-to/postgresql.md"
Kind = Literal["state_folder", "postgresql", "other"]
# The sections that say where Dagster keeps its history; the last three are the first one's parts.
_STORAGES = ("storage", "run_storage", "event_log_storage", "schedule_storage")


def dagster_home(settings: Settings) -> Path:
    """The folder whose dagster.yaml holds: DAGSTER_HOME, else the project."""
    return Path(os.environ.get("DAGSTER_HOME") or settings.project)


def declared(home: Path) -> Mapping[str, Any]:
    """What dagster.yaml holds, {} if there is none. Raises SettingsError for one that is no YAML."""
    path = home / FILE
    text = ""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else "{}"
        document = yaml.safe_load(text)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        mistake = yaml_mistake(error, text)
        problem = f"{mistake.where(FILE)} cannot be read: {mistake.problem}"
        raise SettingsError(problem, value=str(path), fix=mistake.fix) from None
    return document if isinstance(document, Mapping) else {}


def refuse_unset(home: Path) -> None:
    """Raises SettingsError for variables that dagster.yaml's storage asks for and nobody set: Dagster tells them in 60
    lines.

    Elsewhere {env: TEXT} may be a value: a label of a pod, say.
    """
    document = declared(home)
    unset = sorted({name for part in _STORAGES for name in _variables(document.get(part)) if name not in os.environ})
    if unset:
        fix = f"export {unset[0]}=… where Dagster and its commands run ({HOW_TO}), or correct {FILE}"
        noun = "a variable that is" if len(unset) == 1 else "variables that are"
        problem = f"{FILE} asks for {noun} not set: {', '.join(unset)}"
        raise SettingsError(problem, value=str(home / FILE), fix=fix, code="dagster.unset")


def storage_kind(home: Path) -> Kind:
    """Where Dagster's storage lies by dagster.yaml: in the state folder, in PostgreSQL, or elsewhere."""
    if _postgres(home) is not None:
        return "postgresql"
    storage = declared(home).get("storage") or declared(home).get("run_storage")
    # As resources/storage.py is named there; without a storage nothing of Dagster's is kept anywhere else.
    own = isinstance(storage, Mapping) and (storage.get("custom") or {}).get("class") == "StateFolderStorage"
    return "state_folder" if own or not storage else "other"


def database_address(home: Path) -> str:
    """The address of Dagster's PostgreSQL database, with its password: never to be shown.

    Raises SettingsError if a variable is not set, or dagster.yaml says less than an address.
    """
    refuse_unset(home)
    postgres = _postgres(home) or {}
    if "postgres_url" in postgres:
        return _value(postgres["postgres_url"])
    parts = postgres.get("postgres_db") or {}
    try:
        user, password, name = (quote(_value(parts[key]), safe="") for key in ("username", "password", "db_name"))
        host, port = _value(parts["hostname"]), _value(parts.get("port", 5432))
    except KeyError as error:
        fix = f"write postgres_url, or postgres_db with username, password, hostname and db_name ({HOW_TO})"
        raise SettingsError(f"storage.postgres of {FILE} lacks {error}", value=str(home / FILE), fix=fix) from None
    query = urlencode({key: _value(value) for key, value in (parts.get("params") or {}).items()})
    return f"postgresql://{user}:{password}@{host}:{port}/{name}{query and f'?{query}'}"


def _postgres(home: Path) -> Mapping[str, Any] | None:
    """What is said of the database: below `storage`, or for runs, events and schedules apart, as Dagster's Helm chart
    does, which names one database for all three."""
    document = declared(home)
    if "postgres" in (document.get("storage") or {}):
        return document["storage"]["postgres"] or {}
    runs = document.get("run_storage") or {}
    return runs.get("config") or {} if str(runs.get("module")).startswith("dagster_postgres") else None


def _value(declared: Any) -> str:
    """A value of dagster.yaml, which may be {env: NAME} of a variable that is set."""
    return os.environ[str(declared["env"])] if isinstance(declared, Mapping) else str(declared)


def _variables(value: Any) -> Iterator[str]:
    """Names in {env: NAME}, wherever one stands."""
    match value:
        case {"env": str(name), **rest} if not rest:
            yield name
        case Mapping():
            for nested in value.values():
                yield from _variables(nested)
        case list():
            for nested in value:
                yield from _variables(nested)
        case _:
            pass
