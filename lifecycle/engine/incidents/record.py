"""Writes incidents: what led to an alarm, small enough to be sent, whole enough to be replayed."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.engine.training.checkpoints.made_with import made_with
from trainworthy.lifecycle.engine.training.monitors.recorder import LastUpdates, Recorder
from trainworthy.lifecycle.engine.training.monitors.row_keys import keys_of, named_rows
from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.identity import deciding_packages, job_sha256, python_sources, sha256_file, sha256_files
from trainworthy.lifecycle.incidents.incident import (
    FOLDER,
    Environment,
    Incident,
    Interventions,
    incident_id,
    incident_name,
    is_incident,
    write_manifest,
)
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import CheckpointRef, TrainJob
from trainworthy.lifecycle.protocol.records import StoredFile
from trainworthy.lifecycle.protocol.signals import Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.provenance import PRODUCT, git_state
from trainworthy.lifecycle.storage.checkpoints import MANIFEST, checkpoint_path, checkpoints_in
from trainworthy.lifecycle.storage.durable.place import checkpoint_folders
from trainworthy.lifecycle.storage.state import write_atomic

# What an incident may weigh.
MOST_BYTES = 2_000_000
# Of one stage; the first of each monitor stays.
MOST_INCIDENTS = 10
_WRITING = ".writing-"
_FEW = 20


def make_recorder(
    job: TrainJob, prepared: Prepared, plan: Plan, device: str, batch: Callable[[int], tuple[int, ...]]
) -> Recorder:
    """The recorder of a training that keeps incidents; `batch` gives the row numbers of an update, as far as known."""
    box = BlackBox(job, prepared, plan, device)
    return Recorder(device, batch, lambda numbers, losses: named_rows(prepared, job, numbers, losses), box.keep)


@dataclass(frozen=True)
class BlackBox:
    """What the incidents of one training are made of, beside what its recorder keeps of the last updates."""

    job: TrainJob
    prepared: Prepared
    plan: Plan
    device: str

    def keep(self, alarm: Alarm, last_updates: Callable[[], LastUpdates]) -> Alarm:
        """The alarm with its incident's id, or as it was where the stage has enough of them or none can be written.

        An incident never ends a training: what keeps it from being written is told on stderr. A rerun that only shows
        that a training can be repeated keeps none.
        """
        target = Path(self.job.out) / FOLDER / incident_name(alarm.step, alarm.monitor)
        if self.job.stop_after_steps is not None:
            return alarm
        try:
            # Met again after a resume or a roll back: the first is the one of the training as it was.
            if not is_incident(target):
                if not _make_room(target):
                    return alarm
                _write(target, self._incident(alarm, last_updates()))
        # Whatever it is, the training is worth more than its record.
        except Exception as error:
            say(f"the incident {target.name} could not be kept: {type(error).__name__}: {error}")
            return alarm
        return alarm.model_copy(update={"incident": incident_id(target)})

    def _incident(self, alarm: Alarm, updates: LastUpdates) -> Incident:
        # Weights that the last update has spoiled are seen after it.
        step = min(alarm.step, self.plan.last_step - 1)
        return Incident(
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            use_case=Path(self.job.use_case_folder).name,
            identity=self.job.identity,
            job=self.job,
            job_sha256=job_sha256(self.job),
            alarm=alarm,
            step=step,
            plan=self.plan,
            signals=updates.signals,
            samples=updates.samples,
            parameters=updates.parameters,
            batch_rows=updates.batch,
            row_keys=keys_of(self.prepared, self.job, updates.batch),
            random={name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in updates.random.items()},
            environment=environment(self.job, self.prepared.code_sha256, self.device),
            done=_done(updates.taken, self.job),
            checkpoint=_newest_before(self.job, step),
            rows_file=_rows_file(self.job),
        )


def _done(taken: Mapping[str, list[int]], job: TrainJob) -> Interventions:
    interventions = {name: tuple(taken.get(name, ())) for name in ("passed_over", "skipped", "lowered")}
    return Interventions(**interventions, rate_factor=job.training.monitors.rate_factor)


def environment(job: TrainJob, code_sha256: str, device: str) -> Environment:
    """What this process computes with, and whose code it runs."""
    commit, dirty = git_state(Path(job.use_case_folder))
    return Environment(
        made_with=made_with(device),
        packages=dict(deciding_packages()),
        code_sha256=code_sha256,
        trainworthy_sha256=sha256_files(python_sources(PRODUCT / "lifecycle", skip=("report",))),
        git_commit=commit,
        git_dirty=dirty,
    )


def _newest_before(job: TrainJob, step: int) -> CheckpointRef | None:
    """The newest checkpoint of at most `step` updates: this stage's own or a copy, else what it started from."""
    candidates = [
        path
        for folder in checkpoint_folders(job)
        for path in checkpoints_in(folder)
        if path <= checkpoint_path(path.parent, step)
    ]
    for path in sorted(candidates, key=lambda path: path.name, reverse=True):
        if (path / MANIFEST).is_file():
            return CheckpointRef(path=str(path), sha256=sha256_file(path / MANIFEST))
    return job.start


def _rows_file(job: TrainJob) -> StoredFile:
    path = Path(job.training_file)
    cache = job.kept_features
    sha256 = cache.split_sha256 if cache is not None else sha256_file(path)
    return StoredFile(path=str(path), sha256=sha256, bytes=path.stat().st_size)


def _make_room(target: Path) -> bool:
    """True if one more may be written; a later one of a monitor gives way to the first of another."""
    incidents = [path for path in target.parent.glob("*-*") if is_incident(path)]
    if len(incidents) < MOST_INCIDENTS:
        return True
    incidents.sort(key=lambda path: path.stat().st_mtime_ns)
    monitors = [path.name.partition("-")[2] for path in incidents]
    if target.name.partition("-")[2] in monitors:
        return False
    later = [path for place, path in enumerate(incidents) if monitors[place] in monitors[:place]]
    for path in later[-1:]:
        shutil.rmtree(path)
    return bool(later)


def _write(target: Path, incident: Incident) -> None:
    """Whole or not at all, and for its owner alone."""
    parent = target.parent
    parent.mkdir(mode=0o700, exist_ok=True, parents=True)
    # Whatever a killed process left: the stage's folder is locked, so that nobody else writes here.
    for left in parent.glob(f"{_WRITING}*"):
        shutil.rmtree(left)
    temporary = Path(tempfile.mkdtemp(dir=parent, prefix=_WRITING))
    try:
        write_atomic(temporary / "incident.json", _within(incident, MOST_BYTES))
        write_manifest(temporary)
        os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


# Of our own loop they follow from the plan; of a script nobody knows them then.
NUMBERS = "numbers of the batch's rows"
_Smaller = Callable[[Incident], Mapping[str, Any]]
# What is left out first; each says what it takes away.
_SMALLER: tuple[tuple[str, _Smaller], ...] = (
    ("closer looks before the last one", lambda incident: {"samples": incident.samples[-1:]}),
    (
        f"gradient norms by parameter before the last {_FEW} updates",
        lambda incident: {"signals": (*_without_norms(incident.signals[:-_FEW]), *incident.signals[-_FEW:])},
    ),
    ("keys of the batch's rows, but for those of the alarm", lambda incident: {"row_keys": ()}),
    (NUMBERS, lambda incident: {"batch_rows": ()}),
    (
        "the closer look and all gradient norms by parameter",
        lambda incident: {"samples": (), "signals": _without_norms(incident.signals)},
    ),
    ("names of the parameters", lambda incident: {"parameters": ()}),
)


def _without_norms(signals: Sequence[Signals]) -> tuple[Signals, ...]:
    return tuple(signal._replace(grad_norms=[]) for signal in signals)


def _within(incident: Incident, most_bytes: int) -> bytes:
    """The incident's JSON, without what does not fit into so many bytes; what that is, it says itself."""
    content = incident.model_dump_json().encode()
    for omitted, smaller in _SMALLER:
        if len(content) <= most_bytes:
            break
        left_out = (*incident.left_out, omitted)
        incident = incident.model_copy(update={**smaller(incident), "left_out": left_out})
        content = incident.model_dump_json().encode()
    return content
