"""What the sensors and schedules share: a run of a job on one published dataset version."""

from __future__ import annotations

import dagster as dg

from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.run_config import run_config
from trainworthy.lifecycle.use_case import UseCase

_ENDED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}
_UNDER_WAY = [status for status in dg.DagsterRunStatus if status not in _ENDED]


def request(use_case: UseCase, version: str, key: str | None = None) -> dg.RunRequest:
    """A run on this version; with a key Dagster starts no second one of the same key."""
    tags = {"trainworthy/dataset": str(use_case.at_version(version).spec.dataset)}
    return dg.RunRequest(run_key=key, run_config=run_config(dataset_version=version), tags=tags)


def run_key(use_case: UseCase, version: str) -> str:
    """The key of a use case on a version's content."""
    dataset = use_case.at_version(version).spec.dataset
    content = published_version(use_case.project, dataset.name, dataset.version).content_hash
    return f"{use_case.name}:{dataset}:{content[:16]}"


def run_of(instance: dg.DagsterInstance, key: str) -> dg.DagsterRun | None:
    """The run that was started with this key, whoever started it."""
    return next(iter(instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": key}), limit=1)), None)


def under_way(instance: dg.DagsterInstance, job: str) -> dg.SkipReason | None:
    """Why the job is not started while a run of it is on."""
    runs = instance.get_runs(dg.RunsFilter(job_name=job, statuses=_UNDER_WAY), limit=1)
    if not runs:
        return None
    reason = f"run {runs[0].run_id[:8]} is {runs[0].status.value}, the next tick looks again"
    return dg.SkipReason(f"{reason}; if its process is gone: trainworthy doctor --fix")
