"""What is done to a training by two ranks, as data: to a process, to the pod that it is in, to the pod's Job."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.chaos_cluster import Kube
from trainworthy.lifecycle.protocol.training_figures import Cause
from trainworthy.lifecycle.storage.rank_files import read_places

RANKS = 2
# A rank that is at one place of an update for so long waits there for the other, which was stopped.
IN_EXCHANGE_SECONDS = 0.5
# How long the other rank stays stopped after the signal: below what counts as a hang.
STOPPED_SECONDS = 2.0
# After its object a pod's processes are gone as late as this.
NODE_SECONDS = 1.0


class Target(NamedTuple):
    """The training's folder, and the cluster that has its pods."""

    out: Path
    kube: Kube


class Fault(NamedTuple):
    """What is done, the cause that has to be told, and words that the error has to have."""

    name: str
    do: Callable[[Target], None]
    cause: Cause
    told: str = ""


def _signal_rank(number: signal.Signals, rank: int, target: Target) -> None:
    os.kill(read_places(target.out)[rank].pid, number)


def _signal_agent(number: signal.Signals, target: Target) -> None:
    os.kill(psutil.Process(read_places(target.out)[0].pid).ppid(), number)


def _term_in_exchange(rank: int, target: Target) -> None:
    """SIGTERM while the rank waits for the other in a collective, in native code that runs no handler of Python."""
    other = read_places(target.out)[1 - rank].pid
    os.kill(other, signal.SIGSTOP)
    try:
        until = time.monotonic() + 10
        while (place := read_places(target.out)[rank]).seconds < IN_EXCHANGE_SECONDS:
            assert time.monotonic() < until, place
            time.sleep(0.05)
        os.kill(place.pid, signal.SIGTERM)
        time.sleep(STOPPED_SECONDS)
    finally:
        os.kill(other, signal.SIGCONT)


def _delete_pod(node: int, target: Target) -> None:
    """As `kubectl delete pod`: its processes get SIGTERM and their grace, then it is gone."""
    target.kube.delete_pod(_pods(target)[node], grace=20)


def _drop_pod(node: int, target: Target) -> None:
    """As `kubectl delete pod --force`: it is gone at once, and its node ends its processes after that."""
    pod = _pods(target)[node]
    threading.Timer(NODE_SECONDS, target.kube.processes[pod].kill).start()
    target.kube.drop_pod(pod)


def _make_job_anew(target: Target) -> None:
    """Delete the Job without its pods, and make it again: another object, whose counters are at zero and pods new."""
    with target.kube.changed:
        (name,) = target.kube.jobs
        target.kube.drop_job(name)
        target.kube.make_job(target.kube.manifests[-1])


def _pods(target: Target) -> list[str]:
    (name,) = target.kube.jobs
    return target.kube.pods_of(name)


def _of_ranks(number: signal.Signals, cause: Cause, *, named: bool) -> list[Fault]:
    return [
        Fault(
            f"{number.name} of rank {rank}",
            functools.partial(_signal_rank, number, rank),
            cause,
            f"rank {rank} of" * named,
        )
        for rank in range(RANKS)
    ]


KILL = _of_ranks(signal.SIGKILL, "killed", named=True)
STOP = _of_ranks(signal.SIGSTOP, "hang", named=True)
TERM = _of_ranks(signal.SIGTERM, "preempted", named=False)
# By compute.launcher.
FAULTS: dict[str, list[Fault]] = {
    "torchrun": [
        *KILL,
        *STOP,
        *TERM,
        *(
            Fault(f"SIGTERM of rank {rank} in a collective", functools.partial(_term_in_exchange, rank), "preempted")
            for rank in range(RANKS)
        ),
        Fault("SIGKILL of the agent", functools.partial(_signal_agent, signal.SIGKILL), "killed"),
        Fault("SIGTERM of the agent", functools.partial(_signal_agent, signal.SIGTERM), "preempted"),
    ],
    "kubernetes": [
        KILL[1],
        *(
            Fault(
                f"pod of node {node} {how}",
                functools.partial(remove, node),
                "preempted",
                f"node {node} of 2: its pod was deleted",
            )
            for how, remove in (("deleted", _delete_pod), ("gone at once", _drop_pod))
            for node in range(RANKS)
        ),
        Fault("Job made anew", _make_job_anew, "preempted", "its Job was deleted, and another of its name made"),
    ],
}
