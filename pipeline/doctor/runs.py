"""Runs: those that are stuck, the pool slots they hold, and workers that nobody waits for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import dagster as dg
import psutil

from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.pipeline.doctor.ports import command_of
from trainworthy.pipeline.doctor.stores import dagster_folder
from trainworthy.resources.settings import Settings
from trainworthy.resources.stuck_runs import end_stuck_run, leaked_slots, stuck_runs

FIX = "trainworthy doctor --fix"


@contextlib.contextmanager
def instance_of(settings: Settings) -> Iterator[dg.DagsterInstance | None]:
    """Dagster's instance on the state folder; None if nothing ever ran there, so that looking writes nothing."""
    if not (dagster_folder(settings) / "history" / "runs.db").is_file():
        yield None
        return
    with dg.DagsterInstance.from_config(str(settings.project)) as instance:
        yield instance


def stuck(settings: Settings) -> Iterator[CheckResult]:
    """No run is marked as running whose process is gone."""
    with instance_of(settings) as instance:
        found = stuck_runs(instance) if instance else []
    named = ", ".join(
        f"{item.run.job_name} {item.run.run_id[:8]} ({f'pid {item.pid}' if item.pid else 'it named none'})"
        for item in found[:5]
    )
    yield holds(
        "stuck_runs",
        not found,
        severity="warning",
        observed=len(found),
        evidence=f"marked as running, and the process is gone: {named}" if found else "none",
        fix=f"{FIX} marks them as failed, unless they run on another machine or in another container; "
        "then run again: training resumes",
    )


def pools(settings: Settings) -> Iterator[CheckResult]:
    """No slot of a pool is held by a run that has ended or has no process."""
    with instance_of(settings) as instance:
        found = list(leaked_slots(instance)) if instance else []
    named = ", ".join(f"{pool} by run {run_id[:8]}" for pool, run_id in found)
    # An error: the next step of that pool waits without end.
    yield holds(
        "pool_slots",
        not found,
        observed=len(found),
        evidence=f"held without a run: {named}; the next step of that pool would wait for ever" if found else "none",
        fix=f"{FIX} frees them",
    )


def workers(settings: Settings) -> Iterator[CheckResult]:
    """No worker of this state folder lives on without the Dagster process that started it."""
    mine = f"{settings.var}/"
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if (
                "trainworthy.lifecycle.worker" in command
                and any(part.startswith(mine) for part in command)
                and orphaned(process)
            ):
                found.append(process.pid)
    yield holds(
        "left_workers",
        not found,
        severity="warning",
        observed=len(found),
        evidence=f"workers without a Dagster process: pid {', '.join(map(str, found))}" if found else "none",
        fix=f"unless you started them by hand: kill {' '.join(map(str, found))} (they write a checkpoint first)",
    )


def orphaned(process: psutil.Process) -> bool:
    """True if no ancestor of the process is one of Dagster's."""
    return not any("dagster" in part for parent in process.parents() for part in command_of(parent))


def _end_tracked(settings: Settings, run_id: str) -> None:
    """End the run in MLflow too: it is shown as running as well."""
    if not (settings.var / "mlflow" / "mlflow.db").is_file() and not os.environ.get("MLFLOW_TRACKING_URI"):
        return
    from trainworthy.resources.mlflow import Tracking

    client = Tracking().client
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    for tracked in client.search_runs(experiments, f"tags.`dagster/run_id` = '{run_id}'"):
        client.set_terminated(tracked.info.run_id, status="KILLED")


def repair_runs(settings: Settings) -> Iterator[str]:
    """Mark stuck runs as failed and free every leaked slot; what was done."""
    with instance_of(settings) as instance:
        if instance is None:
            return
        for found in stuck_runs(instance):
            end_stuck_run(instance, found)
            _end_tracked(settings, found.run.run_id)
            yield f"run {found.run.run_id[:8]} ({found.run.job_name}) is marked as failed"
        for pool, run_id in leaked_slots(instance):
            instance.event_log_storage.free_concurrency_slots_for_run(run_id)
            yield f"a slot of the pool {pool} that run {run_id[:8]} held is free"
