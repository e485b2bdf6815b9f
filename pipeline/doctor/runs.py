"""Runs: those that are stuck, the pool slots they hold, workers that nobody waits for, and attempts without an end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.pipeline.doctor.ports import command_of
from trainworthy.pipeline.doctor.stores import dagster_folder
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.attempts import kept_ends, lost_attempts, settle
from trainworthy.resources.dagster_settings import dagster_home, declared, refuse_unset, storage_kind
from trainworthy.resources.settings import Settings
from trainworthy.resources.stuck_runs import elsewhere, end_stuck_run, leaked_slots, running, stuck_runs

FIX = "trainworthy doctor --fix"


@contextlib.contextmanager
def instance_of(settings: Settings) -> Iterator[dg.DagsterInstance | None]:
    """Dagster's instance, as its commands open it; None if nothing ever ran there, so that looking writes nothing.

    Raises SettingsError if its storage does not answer.
    """
    home = dagster_home(settings)
    refuse_unset(home)
    if not _has_a_server(home) and not (dagster_folder(settings) / "history" / "runs.db").is_file():
        yield None
        return
    try:
        instance = dg.DagsterInstance.from_config(str(home))
    except Exception as error:
        # Of whichever database it is; the address that it was asked by may hold a password.
        raise SettingsError(
            f"Dagster's storage does not answer: {type(error).__name__}",
            value=f"storage of {home / 'dagster.yaml'}",
            fix="start the database, or correct its address; `dagster instance info` shows what it says",
        ) from None
    with instance:
        yield instance


def _has_a_server(home: Path) -> bool:
    """True if dagster.yaml names a storage that is no folder of this machine."""
    return storage_kind(home) != "state_folder" and "sqlite" not in (declared(home).get("storage") or {})


def stuck(settings: Settings) -> Iterator[CheckResult]:
    """No run of this machine is marked as running whose process is gone; those of others are named."""
    with instance_of(settings) as instance:
        dead_runs = stuck_runs(instance) if instance else []
        remote_hosts = [elsewhere(instance, record.dagster_run) for record in running(instance)] if instance else []
    hosts = sorted({host or "a machine that they do not name" for host in remote_hosts if host is not None})
    away = f"; on {', '.join(hosts)}, not looked at: {sum(host is not None for host in remote_hosts)}" if hosts else ""
    named = ", ".join(
        f"{item.run.job_name} {item.run.run_id[:8]} ({f'pid {item.pid}' if item.pid else 'it named none'})"
        for item in dead_runs[:5]
    )
    yield holds(
        "stuck_runs",
        not dead_runs,
        severity="warning",
        observed=len(dead_runs),
        evidence=(f"marked as running, and the process is gone: {named}" if dead_runs else "none") + away,
        fix=f"{FIX} marks them as failed; then run again: training resumes",
    )


def pools(settings: Settings) -> Iterator[CheckResult]:
    """No slot of a pool is held by a run that has ended or has no process."""
    with instance_of(settings) as instance:
        leaks = list(leaked_slots(instance)) if instance else []
    named = ", ".join(f"{pool} by run {run_id[:8]}" for pool, run_id in leaks)
    # An error: the next step of that pool waits without end.
    yield holds(
        "pool_slots",
        not leaks,
        observed=len(leaks),
        evidence=f"held without a run: {named}; the next step of that pool would wait for ever" if leaks else "none",
        fix=f"{FIX} frees them",
    )


def workers(settings: Settings) -> Iterator[CheckResult]:
    """No worker of this state folder lives on without the Dagster process that started it."""
    mine = f"{settings.var}/"
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if (
                "trainworthy.lifecycle.worker" in command
                and any(part.startswith(mine) for part in command)
                and orphaned(process)
            ):
                pids.append(process.pid)
    yield holds(
        "left_workers",
        not pids,
        severity="warning",
        observed=len(pids),
        evidence=f"workers without a Dagster process: pid {', '.join(map(str, pids))}" if pids else "none",
        fix=f"unless you started them by hand: kill {' '.join(map(str, pids))} (they write a checkpoint first)",
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
        if instance is not None:
            yield from repaired(settings, instance)


def repaired(settings: Settings, instance: dg.DagsterInstance) -> Iterator[str]:
    """The same on an instance that is open."""
    for stuck_run in stuck_runs(instance):
        end_stuck_run(instance, stuck_run)
        _end_tracked(settings, stuck_run.run.run_id)
        yield f"run {stuck_run.run.run_id[:8]} ({stuck_run.run.job_name}) is marked as failed"
    for pool, run_id in leaked_slots(instance):
        instance.event_log_storage.free_concurrency_slots_for_run(run_id)
        yield f"a slot of the pool {pool} that run {run_id[:8]} held is free"


def attempts(settings: Settings) -> Iterator[CheckResult]:
    """The table can be read and written, has every end that was kept beside it, and no attempt is lost."""
    table = attempt_table(settings)
    table.try_write()
    yield CheckResult(name="attempts", status="pass", evidence=f"every start of a worker is entered in {table.shown}")
    unentered, lost = kept_ends(settings), lost_attempts(settings)
    named = "; ".join(
        f"{row.started.charged_to.use_case} {row.started.charged_to.step}: {why}" for row, why in lost[:5]
    )
    yield holds(
        "open_attempts",
        not unentered and not lost,
        severity="warning",
        observed=len(unentered) + len(lost),
        evidence=(f"{len(unentered)} ends are kept in {unentered[0].parent} and not entered; " if unentered else "")
        + (f"{len(lost)} were left open: {named}" if lost else "none was left open"),
        fix=f"{FIX} enters and ends them, and so does the next start of a worker",
    )


def repair_attempts(settings: Settings) -> Iterator[str]:
    """Enter the ends that were kept, and end what is lost."""
    yield from settle(settings)
