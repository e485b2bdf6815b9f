"""Incidents by name: below the state folder's `training/<use case>/<training>/<stage>/incidents/`, or a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.errors import IncidentError, did_you_mean, nearest
from trainworthy.lifecycle.incidents.incident import FOLDER, incident_id, is_incident

# What an error lists where no name is near.
_MOST_NAMES = 10


def known_incidents(var: Path) -> dict[str, Path]:
    """Every recorded incident by its id, `<use case>/<training>/<stage>/<step>-<monitor>`, newest first."""
    incidents = [path for path in (var / "training").glob(f"*/*/*/{FOLDER}/*") if is_incident(path)]
    incidents.sort(key=lambda path: (path / "incident.json").stat().st_mtime, reverse=True)
    return {incident_id(path): path for path in incidents}


def find_incident(var: Path, id_or_path: str) -> Path:
    """The folder of an incident, named by its path or by the end of its id. Raises IncidentError.

    An id is only compared with those that there are, so that none leads anywhere else.
    """
    if (Path(id_or_path) / "incident.json").is_file():
        return Path(id_or_path).resolve()
    known = known_incidents(var)
    parts = id_or_path.strip("/").split("/")
    matches = [name for name in known if name.split("/")[-len(parts) :] == parts]
    if len(matches) == 1:
        return known[matches[0]]
    if matches:
        raise IncidentError("several incidents are named so", value=matches, fix="name one of them in full")
    raise IncidentError("no such incident", value=id_or_path, fix=_near(id_or_path, known))


def _near(id_or_path: str, known: dict[str, Path]) -> str:
    if not known:
        return "no training here has met an alarm; a portable one is named by its folder"
    names = dict.fromkeys([*list(known)[:_MOST_NAMES], *_ends(known)])
    return did_you_mean(id_or_path, names if nearest(id_or_path, names) else list(known)[:_MOST_NAMES])


def _ends(known: dict[str, Path]) -> Iterator[str]:
    for name in known:
        yield name.rpartition("/")[2]
