"""Dagster runs that are marked as running and whose process is gone.

Killed with everything (kill -9, a power cut), a run stays STARTED for ever, and a pool slot that it held stays
taken: the next step of that pool would wait for it without end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg
import psutil

RUNNING = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
# A run names its process right after it starts; until then it may just be starting.
STARTING_SECONDS = 120


@dataclass(frozen=True)
class StuckRun:
    """A run without a process. `pid` is None if it never named one."""

    run: dg.DagsterRun
    pid: int | None


def stuck_runs(instance: dg.DagsterInstance) -> list[StuckRun]:
    """Runs marked as running whose process is gone from this machine, newest first."""
    records = instance.get_run_records(dg.RunsFilter(statuses=RUNNING))
    found = []
    for record in records:
        pid, started = run_process(instance, record.dagster_run.run_id)
        # Not since it was created: it may have waited in the queue.
        begun = started or record.update_timestamp.timestamp()
        if pid is None and time.time() - begun < STARTING_SECONDS:
            continue
        if pid is None or not lives(pid, begun):
            found.append(StuckRun(record.dagster_run, pid))
    return found


def run_process(instance: dg.DagsterInstance, run_id: str) -> tuple[int | None, float | None]:
    """Pid of the process that executes the run and the time at which it said so."""
    pid = started = None
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        said = entry.get_dagster_event().engine_event_data.metadata.get("pid")
        if said is not None and str(said.value).isdigit():
            pid, started = int(str(said.value)), entry.timestamp
    return pid, started


def lives(pid: int, since: float) -> bool:
    """True if the process that had this number at `since` still runs; a later one has only its number."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= since + 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def leaked_slots(instance: dg.DagsterInstance) -> Iterator[tuple[str, str]]:
    """Pool and run id of each slot that is held by a run that ended, was deleted, or has no process any more."""
    stuck = {found.run.run_id for found in stuck_runs(instance)}
    for pool in sorted(instance.event_log_storage.get_concurrency_keys()):
        for slot in instance.event_log_storage.get_concurrency_info(pool).claimed_slots:
            run = instance.get_run_by_id(slot.run_id)
            if run is None or run.is_finished or slot.run_id in stuck:
                yield pool, slot.run_id


def end_stuck_run(instance: dg.DagsterInstance, found: StuckRun) -> None:
    """Mark the run as failed and give its pool slots back."""
    gone = f"its process (pid {found.pid}) is gone" if found.pid else "it never named a process"
    told = f"{gone}; marked as failed by trainworthy doctor --fix"
    instance.report_run_failed(found.run, told)
    instance.event_log_storage.free_concurrency_slots_for_run(found.run.run_id)
