"""An incident: what a training was at the update where a monitor raised an alarm. A folder that can be replayed.

`incidents/<step>-<monitor>/` of a stage's folder holds `incident.json` and, written last, `manifest.json` with its
SHA-256. The checkpoint to start from and the rows are named by path and hash. A portable folder holds them too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError

from trainworthy.lifecycle.errors import IncidentError
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import CheckpointRef, TrainJob
from trainworthy.lifecycle.protocol.records import StoredFile
from trainworthy.lifecycle.protocol.signals import Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import write_atomic

FOLDER = "incidents"
_NAME = re.compile(r"\d+-[A-Za-z0-9_]+")
_AGAIN = "copy the folder again from where it was made"


class Environment(Frozen):
    """What the bits of a step hang on: torch, threads, instructions and device; packages; and whose code it was.

    `code_sha256` is the use case's, `trainworthy_sha256` that of the package lifecycle.
    """

    made_with: dict[str, str]
    packages: dict[str, str]
    code_sha256: str
    trainworthy_sha256: str
    git_commit: str | None
    git_dirty: bool | None


class Interventions(Frozen):
    """What the policy had done to the training by then, by step.

    Batches `passed_over` were not even looked at, those in `skipped` were not applied; after each of `lowered` the
    learning rate was multiplied by `rate_factor`.
    """

    passed_over: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    lowered: tuple[int, ...] = ()
    rate_factor: float = 1.0

    def rate_factor_of(self, step: int) -> float:
        """What the learning rate of a step was multiplied by."""
        return self.rate_factor ** sum(lowered < step for lowered in self.lowered)


class Incident(Frozen):
    """The black box. `signals` are the last updates, the one of the alarm last; `samples` the last closer looks.

    `batch_rows` are row numbers of the stage's rows, `row_keys` what the contract allows to name them by. `checkpoint`
    is the newest from before the step, None if the stage began without one. `random` are torch's generators before the
    step, base64. `left_out` says what did not fit.
    """

    # An incident is about numbers that are not finite: JSON takes them as strings.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, ser_json_inf_nan="strings")

    form: Literal[1] = 1
    made_at: str
    use_case: str
    identity: str
    job: TrainJob
    job_sha256: str
    alarm: Alarm
    step: int
    plan: Plan
    signals: tuple[Signals, ...]
    samples: tuple[Sample, ...]
    parameters: tuple[str, ...]
    batch_rows: tuple[int, ...]
    row_keys: tuple[dict[str, str], ...]
    random: dict[str, str]
    environment: Environment
    done: Interventions
    checkpoint: CheckpointRef | None
    rows_file: StoredFile
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder's name."""
        return incident_name(self.step, self.alarm.monitor)

    @property
    def at_step(self) -> Signals | None:
        """The signals of the alarm's own update."""
        return next((signals for signals in reversed(self.signals) if signals.step == self.step), None)


def incident_name(step: int, monitor: str) -> str:
    """Name of an incident's folder; nothing in a monitor's name can lead out of the stage's."""
    return f"{step}-{re.sub(r'[^A-Za-z0-9_]', '_', monitor)}"


def incident_id(folder: Path) -> str:
    """How an incident below the state folder is named: `<use case>/<training>/<stage>/<step>-<monitor>`."""
    return "/".join((*folder.parts[-5:-2], folder.name))


def is_incident(folder: Path) -> bool:
    """True for a folder whose name and content are an incident's."""
    return bool(_NAME.fullmatch(folder.name)) and (folder / "incident.json").is_file()


def as_kept(alarms: Iterable[Alarm], out: Path) -> tuple[Alarm, ...]:
    """The alarms of the stage in the folder `out`: one whose incident gave way to another's names none any more."""
    return tuple(
        alarm
        if alarm.incident is None or is_incident(out / FOLDER / alarm.incident.rpartition("/")[2])
        else alarm.model_copy(update={"incident": None})
        for alarm in alarms
    )


def write_manifest(folder: Path) -> None:
    """Name every file of the folder by its SHA-256; written last."""
    files = {path.relative_to(folder).as_posix(): sha256_file(path) for path in _files(folder)}
    write_atomic(folder / "manifest.json", canonical_json({"files": files}))


def read_incident(folder: Path) -> Incident:
    """The incident, if every file is the one that the manifest names. Raises IncidentError."""
    _verify(folder)
    try:
        return Incident.model_validate_json((folder / "incident.json").read_bytes())
    except (OSError, ValidationError) as error:
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise IncidentError(
            f"incident.json is of another form: {first}", value=str(folder), fix="replay it by the version that made it"
        ) from None


def _verify(folder: Path) -> None:
    try:
        named: dict[str, Any] = json.loads((folder / "manifest.json").read_text())["files"]
        present = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
        wrong = sorted(name for name, sha256 in named.items() if not _is(present.get(name), sha256))
        wrong += sorted(present.keys() - named.keys())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise IncidentError("this folder holds no incident", value=str(folder), fix=_AGAIN) from None
    if wrong or "incident.json" not in named:
        raise IncidentError("files of the incident were changed since it was made", value=wrong, fix=_AGAIN)


def _is(path: Path | None, sha256: str) -> bool:
    return path is not None and not path.is_symlink() and sha256_file(path) == sha256


def _files(folder: Path) -> list[Path]:
    """What a manifest names. A link could lead anywhere, so that it counts as a file that was changed."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink())
    # Python writes the bytecode of a portable incident's code where it runs.
    return [path for path in files if path != folder / "manifest.json" and "__pycache__" not in path.parts]
