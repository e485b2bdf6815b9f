"""Dagster runs that are marked as running and whose process is gone.

Killed with everything (kill -9, a power cut), a run stays STARTED for ever, and a pool slot that it held stays
taken: the next step of that pool would wait for it without end. Several machines may share one database: a process
is looked for on its own machine alone, which the run is tagged with.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

RUNNING = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
# A run names its process right after it starts; until then it may just be starting.
STARTING_SECONDS = 120
# Where the run is: this_machine, from its first step on.
MACHINE_TAG = "trainworthy/machine"
_UNKNOWN = "-"


@dataclass(frozen=True)
class StuckRun:
    """A run without a process. `pid` is None if it never named one."""

    run: dg.DagsterRun
    pid: int | None


def stuck_runs(instance: dg.DagsterInstance) -> list[StuckRun]:
    """Runs of this machine that are marked as running and whose process is gone, newest first."""
    stuck = []
    for record in running(instance):
        if elsewhere(instance, record.dagster_run) is not None:
            continue
        pid, started = run_process(instance, record.dagster_run.run_id)
        # Not since it was created: it may have waited in the queue.
        begun = started or record.update_timestamp.timestamp()
        if pid is None and time.time() - begun < STARTING_SECONDS:
            continue
        if pid is None or not lives(pid, begun):
            stuck.append(StuckRun(record.dagster_run, pid))
    return stuck


def running(instance: dg.DagsterInstance) -> Sequence[dg.RunRecord]:
    """Runs that are marked as running, newest first."""
    return instance.get_run_records(dg.RunsFilter(statuses=RUNNING))


def elsewhere(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """The machine or container that the run is on, if that is not this one; "" if it names none and might be on any.

    In SQLite, a file of this machine, all runs are its own until they say otherwise. Of a run from before this machine
    was restarted the process is gone.
    """
    own = "sqlite" in type(instance.run_storage).__name__.lower()
    named, here = run.tags.get(MACHINE_TAG), this_machine()
    if named is None:
        return None if own else ""
    host, machine, boot, pids = (named.split(" ") + [""] * 4)[:4]
    my_host, my_machine, my_boot, my_pids = here.split(" ")
    if host != my_host or not (own or machine == my_machine != _UNKNOWN):
        return host
    return None if boot != my_boot or pids == my_pids else host


def this_machine() -> str:
    """Its name, what it is known by beside it, its newest start, and the container in which process numbers are one's
    own; a word each."""
    try:
        machine = Path("/etc/machine-id").read_text().strip() or _UNKNOWN
    except OSError:
        machine = _UNKNOWN
    boot, _, pids = pid_space().partition(" ")
    return " ".join((socket.gethostname().replace(" ", "-"), machine, boot or _UNKNOWN, pids or _UNKNOWN))


def pid_space() -> str:
    """Where process numbers are one's own: this start of this kernel, and this container. "" where nobody tells."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


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
    import psutil

    try:
        process = psutil.Process(pid)
        return process.create_time() <= since + 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def leaked_slots(instance: dg.DagsterInstance) -> Iterator[tuple[str, str]]:
    """Pool and run id of each slot that is held by a run that ended, was deleted, or has no process any more."""
    stuck = {stuck_run.run.run_id for stuck_run in stuck_runs(instance)}
    for pool in sorted(instance.event_log_storage.get_concurrency_keys()):
        for slot in instance.event_log_storage.get_concurrency_info(pool).claimed_slots:
            run = instance.get_run_by_id(slot.run_id)
            if run is None or run.is_finished or slot.run_id in stuck:
                yield pool, slot.run_id


def end_stuck_run(instance: dg.DagsterInstance, stuck_run: StuckRun) -> None:
    """Mark the run as failed and give its pool slots back."""
    gone = f"its process (pid {stuck_run.pid}) is gone" if stuck_run.pid else "it never named a process"
    message = f"{gone}; marked as failed by Trainworthy"
    instance.report_run_failed(stuck_run.run, message)
    instance.event_log_storage.free_concurrency_slots_for_run(stuck_run.run.run_id)
