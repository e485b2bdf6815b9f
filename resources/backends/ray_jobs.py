"""What a worker is as a job of Ray, and what Ray's words about its end mean. Pure: nothing here imports Ray."""

from __future__ import annotations

import hashlib
import math
import shlex
import signal
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.failure import EXIT_DISK_FULL, EXIT_PREEMPTED, EXIT_STORAGE, MemorySeen
from trainworthy.lifecycle.identity import canonical_json, told_packages
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob, processes_of
from trainworthy.lifecycle.spec.use_case import COLLECTIVE_TIMEOUT_SECONDS
from trainworthy.resources.backends.backend import ENVIRONMENT, Ended, Start
from trainworthy.resources.backends.local import python_path
from trainworthy.resources.backends.on_node import ABANDONED_SECONDS, STDERR, STDOUT, WANTED
from trainworthy.resources.backends.travel.places import ARRIVAL, LAST_SECONDS, start_prefix
from trainworthy.resources.backends.travel.road import Road
from trainworthy.resources.settings import RAY_FOLDER

ON_NODE = "trainworthy.resources.backends.on_node"
ENTRY = "trainworthy.resources.backends.ray_entry"
# Below the job's folder: a folder for each start, with what the node writes.
STARTS = "ray"
# In the folder of a start by several nodes: Ray holds them all.
HELD = "held"
# So long a job may wait for its node, by this variable of Ray's head; our entry there waits as long for several.
START_TIMEOUT, START_SECONDS = "RAY_JOB_START_TIMEOUT_SECONDS", 900.0
# By which the entry ends where that was in vain, and where nodes do not meet; the command where it sees no folder.
NO_NODES, NO_MEETING, NO_FOLDER = 69, 68, 72
# So late may a file server show a new folder.
SEEN_SECONDS = 60
# From what our own process on the node needs to Ray's SIGKILL, seconds.
STOP_MARGIN = 5
# The entry of several waits for theirs, and a while for Ray's word of a node that is gone.
SEVERAL_MARGINS = 4
PENDING, STOPPED, SUCCEEDED, FAILED = "PENDING", "STOPPED", "SUCCEEDED", "FAILED"
ENDED = (STOPPED, SUCCEEDED, FAILED)
# Ray 2.60's words for kills of its memory monitor, for a node that was asked to end, and for one that was not.
MEMORY_WORDS = "due to the node running low on memory"
_NODE_ENDED = ("terminated expectedly", "preempted")
_NODE_DIED = "node has died"
# By these our own process on the node says what is wrong there, or that another entry of the job does the work.
_OF_NODE = (EXIT_DISK_FULL, EXIT_STORAGE, EXIT_PREEMPTED)


@dataclass(frozen=True)
class Node:
    """What a job asks of each node: cores, GPUs, and how many of each further resource that Ray counts there."""

    cpus: int
    gpus: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)

    def gpus_of(self, job: AnyJob) -> int:
        """Those of a job, which may be meant for the CPU."""
        return 0 if job.device == "cpu" else self.gpus

    def bundle_of(self, job: AnyJob) -> dict[str, float]:
        """What it asks for, by Ray's names."""
        gpus = self.gpus_of(job)
        return {"CPU": self.cpus, **({"GPU": gpus} if gpus else {}), **self.resources}

    def words(self, job: AnyJob) -> str:
        """What it asks for, in words."""
        gpus = self.gpus_of(job)
        amounts = [f"{self.cpus} CPU"] + ([f"{gpus} GPU"] if gpus else [])
        return ", ".join(amounts + [f"{count:g} of {name!r}" for name, count in self.resources.items()])


@dataclass(frozen=True)
class Several:
    """So many nodes that train together, each as `node`."""

    nodes: int
    node: Node


@dataclass(frozen=True)
class JobSnapshot:
    """What Ray says of a job; `exit_code` is that of its command, negative for a signal, None where Ray has none."""

    id: str
    status: str
    exit_code: int | None = None
    error: str = ""
    message: str = ""

    @property
    def over(self) -> bool:
        """It runs no more, and will not."""
        return self.status in ENDED

    @property
    def leaves_its_end(self) -> bool:
        """Its command ended by itself or was asked to, and so has written how, or never could."""
        code = self.exit_code
        return self.status == STOPPED or (
            code is not None and code >= 0 and code not in (NO_NODES, NO_MEETING, NO_FOLDER)
        )


def id_prefix(job: AnyJob, road: Road | None = None) -> str:
    """How the ids of all starts of a job begin: by its use case, kind and folder.

    A folder that nodes share is one; on a road each launcher has its own.
    """
    of_launcher = f"{road.launcher} " if road is not None else ""
    folder = hashlib.sha256(f"{of_launcher}{job.out}".encode()).hexdigest()[:12]
    return f"trainworthy-{Path(job.use_case_folder).name}-{job.kind}-{folder}-"


def new_id(prefix: str) -> str:
    """The id of one more start."""
    return prefix + uuid.uuid4().hex[:8]


def worker_name(job: AnyJob, road: Road) -> str:
    """By which name all starts of a job travel."""
    return id_prefix(job, road).rstrip("-")


def command(
    start: Start, folder: Path, submitted: float, road: Road | None = None, several: Several | None = None
) -> str:  # fmt: skip
    """The command line of the job: nothing, if it is no longer wanted once Ray has a node for it.

    With `several` it runs on the head, which holds the nodes.

    Ray cannot take a job back that waits for a node. A node that does not see `folder` says so, after a
    while in which it could come. What the worker writes goes to files of `folder`, of which nothing is lost with the
    node; `exec` lets Ray see the exit code itself. On a road the node has a Python of its own, and no folder before its
    files have come.
    """
    given = [
        "--folder", str(folder), "--job", str(start.path), "--queued", str(start.queued), "--submitted", str(submitted),
        "--grace", str(start.grace_seconds),
    ]  # fmt: skip
    if road is not None:
        return f"exec {shlex.join(_on_road(road, worker_name(start.job, road), folder, given))}"
    python = ["env", f"PYTHONPATH={python_path()}", sys.executable, "-m"]
    sign = shlex.quote(str(folder / WANTED))
    files = f">{shlex.quote(str(folder / STDOUT))} 2>{shlex.quote(str(folder / STDERR))}"
    run, where = [*python, ON_NODE, *given], f"the node {'`hostname`'}"
    if several is not None:
        run = [*python, *_entry(several, start, folder), "--", *run, "--nodes-of-job", str(several.nodes)]
        where = "the head of Ray"
    # Without the folder nobody can tell whether it is wanted.
    waits = f"for look in `seq {SEEN_SECONDS}`; do test -d {shlex.quote(str(folder))} && break; sleep 1; done"
    unseen = f'echo "{where} does not see "{shlex.quote(str(folder))}; exit {NO_FOLDER}'
    absent = f"{{ test -d {shlex.quote(str(folder))} && exit {EXIT_PREEMPTED}; {unseen}; }}"
    told = shlex.quote(f"writes to {folder}")
    return f"{waits}; test -e {sign} || {absent}; echo {told}; exec {shlex.join(run)} {files}"


def _entry(several: Several, start: Start, folder: Path) -> list[str]:
    """What runs on Ray's head, and holds the nodes."""
    meet = start.job.collective_timeout_seconds if isinstance(start.job, TrainJob) else COLLECTIVE_TIMEOUT_SECONDS
    return [
        ENTRY, "--folder", str(folder), "--nodes", str(several.nodes),
        "--bundle", canonical_json(several.node.bundle_of(start.job)).decode(), "--grace", str(start.grace_seconds),
        "--abandoned", str(ABANDONED_SECONDS), "--meet", str(meet),
    ]  # fmt: skip


def _on_road(road: Road, worker: str, folder: Path, given: list[str]) -> list[str]:
    """What is run on a node without the project: with the node's own Python, whose packages are compared there."""
    abandoned = ["--abandoned", str(ABANDONED_SECONDS)]
    return [
        "python", "-m", ARRIVAL, "--bucket", road.bucket, "--start", start_prefix(worker, folder),
        "--root", str(road.root), *abandoned, "--output",
        "--", *given, *abandoned, "--packages", canonical_json(told_packages()).decode(),
    ]  # fmt: skip


def request(
    start: Start, node: Node, id: str, folder: Path, handed_on: Mapping[str, str], submitted: float,
    road: Road | None = None, nodes: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of JobSubmissionClient.submit_job. `handed_on` are variables of the project, none of them secret.

    A job by several `nodes` asks for none itself: its entry does (ray_entry.py).
    """
    stop = math.ceil(stop_seconds(start, road)) + STOP_MARGIN * (1 if nodes == 1 else SEVERAL_MARGINS)
    # Each of several processes has its part of the cores; Ray itself would give all of them to each.
    threads = max(1, node.cpus * nodes // processes_of(start.job))
    variables = {
        **ENVIRONMENT, "OMP_NUM_THREADS": str(threads), **handed_on, **start.environment,
        "RAY_JOB_STOP_WAIT_TIME_S": str(stop),
    }  # fmt: skip
    arguments: dict[str, Any] = {"submission_id": id, "runtime_env": {"env_vars": variables}}
    if nodes > 1:
        return arguments | {"entrypoint": command(start, folder, submitted, several=Several(nodes, node))}
    return arguments | {
        "entrypoint": command(start, folder, submitted, road),
        "entrypoint_num_cpus": node.cpus,
        "entrypoint_num_gpus": node.gpus_of(start.job),
        "entrypoint_resources": dict(node.resources),
    }


def stop_seconds(start: Start, road: Road | None) -> float:
    """From being asked to end to its end: the worker's grace, and what its files then take to a bucket."""
    return start.grace_seconds + (LAST_SECONDS if road is not None else 0.0)


def end_without_word(job: JobSnapshot, began: bool, last_line: str) -> Ended:
    """What Ray says of a worker whose node has left no end.json; `began`: it had given a sign of life.

    Raises BackendError if it never began: the node, and no training, is at fault.
    """
    said = " ".join(job.message.split())[:500]
    # Of a command that ended by itself the message is its log.
    of_node = job.message if job.exit_code is None else ""
    if MEMORY_WORDS in of_node:
        # Ray's own words say who killed it.
        memory = MemorySeen(kernel_kills=1)
        return Ended(-signal.SIGKILL, memory, seen=f"Ray said: {said}")
    if job.error == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT" or job.exit_code == NO_NODES:
        fix = f"start a node that has them, or let jobs wait longer: {START_TIMEOUT} on Ray's head"
        value = last_line if job.exit_code == NO_NODES else said
        raise BackendError("Ray had no node for the job in the time that its head allows", value=value, fix=fix)
    if job.exit_code == NO_MEETING:
        fix = "see what keeps it from writing there, then run again; or a larger compute.collective_timeout_seconds"
        raise BackendError("the nodes of Ray did not find each other", value=last_line, fix=fix)
    if any(words in of_node for words in _NODE_ENDED):
        return Ended(-signal.SIGTERM, MemorySeen(), seen=f"its node was taken away; Ray said: {_node_words(said)}")
    if _NODE_DIED in of_node:
        return Ended(-signal.SIGKILL, MemorySeen(), seen=f"its node died; Ray said: {_node_words(said)}")
    if not began and job.status == FAILED and job.exit_code not in _OF_NODE:
        fix = (
            "look whether the node sees the project, its Python and the state folder under the paths of this machine; "
            f"with {RAY_FOLDER}, whether `python` on the PATH of Ray's process there has this Trainworthy"
        )
        raise BackendError("the worker could not begin on the node of Ray", value=last_line or said, fix=fix)
    if job.status == STOPPED:
        return Ended(-signal.SIGTERM, MemorySeen(), seen="its job of Ray was stopped by somebody else")
    code = -signal.SIGKILL if job.exit_code is None else job.exit_code
    return Ended(code, MemorySeen(), seen=f"what started it on the node ended first; Ray said: {said}")


def _node_words(said: str) -> str:
    """Of what Ray says of an actor whose node is gone, that about the node."""
    _, separator, words = said.partition("The actor died because ")
    return words.partition(" The actor ")[0] if separator else said
