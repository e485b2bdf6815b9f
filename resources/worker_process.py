"""The worker as a process of its own, without Dagster: how to start it, and what its end means."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.failure import End, MemorySeen, error_of
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import AnyJob, JobFile, TrainJob, processes_of
from trainworthy.lifecycle.protocol.results import AnyResult, TrainResult
from trainworthy.lifecycle.storage.rank_files import read_places
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.worker import read_result
from trainworthy.resources.fork_server import WORKER, start_worker
from trainworthy.resources.memory_seen import MemoryWatch
from trainworthy.resources.process_group import run_group
from trainworthy.resources.settings import IMPORTED_FROM

# Threads that wait actively starve each other on a busy machine: the full stage of flights took 13 s on an idle one
# and 130 s under load. Below level 6 torch's profiler writes a line on stderr for each start and stop. A crash of
# native code leaves its stack on stderr.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "KINETO_LOG_LEVEL": "6", "PYTHONFAULTHANDLER": "1"}

TORCHRUN = "trainworthy.lifecycle.torchrun"
# What a shell adds to a signal's number to make an exit code of it.
SIGNALLED = 128


def run_worker(
    job: AnyJob,
    *,
    more: Mapping[str, str] | None = None,
    grace_seconds: float = 10.0,
    tell: Callable[[str], None] = say,
    fresh: bool = False,
    output: tuple[int, int] = (1, 2),
    begin: Callable[[], None] = lambda: None,
    look: Callable[[int], None] = lambda pid: None,
) -> AnyResult:
    """Run the job to its answer; `more` is added to the environment. Raises WorkerError if there is no answer.

    `fresh` and `output` are as in fork_server.py: a process that shares nothing with this run's other workers, and
    where it writes. `begin` is called when the worker is about to start, after any wait for another run; what it raises
    keeps it from starting. `look` is called with its pid about every second while it lives.

    Waits as long as another run does the same; `tell` says so. An answer that was there already cost no GPU seconds.
    """
    out, memory = Path(job.out), MemoryWatch()
    path = out / "job.json"
    out.mkdir(parents=True, exist_ok=True)
    meter = Meter()
    with locked(out, tell) as lock:
        if isinstance(job, TrainJob) and job.ends_at is not None:
            # Waiting for another run costs nothing, and so takes nothing of what the budget allows.
            job = job.model_copy(update={"ends_at": job.ends_at + meter.queue_seconds})
        # What an earlier attempt told is no cause of this one's end.
        (out / "error.json").unlink(missing_ok=True)
        write_atomic(path, canonical_json(JobFile(job=job).model_dump(mode="json")))
        environment = {**ENVIRONMENT, **os.environ, **(more or {}), "PYTHONPATH": _python_path()}
        # The worker holds the lock too: if this process is killed, nobody gets the folder before the worker is gone.
        given, earlier = ["--queued", str(meter.queue_seconds), "--job", str(path)], _written(out)
        entry = TORCHRUN if processes_of(job) > 1 else WORKER
        start = functools.partial(start_worker, given, environment, lock, fresh=fresh, output=output, entry=entry)

        def look_at_memory(leader: int) -> None:
            memory.look(*([place.pid for place in read_places(out).values()] if entry == TORCHRUN else [leader]))

        begin()
        code = run_group(start, grace_seconds, look=_each(look_at_memory, look))
        if entry == TORCHRUN and code > SIGNALLED:
            # It lives on to say by which signal a rank was killed.
            code = SIGNALLED - code
        if code != 0:
            batch = (job.training.batch_size, job.training.accumulate) if isinstance(job, TrainJob) else None
            raise worker_error(out, code, memory.seen(), batch)
        answer = read_result(out, job)
        if isinstance(answer, TrainResult) and _written(out) == earlier:
            answer = answer.model_copy(update={"gpu_seconds": 0.0})
    if answer is None:
        raise no_answer(job)
    return answer


def _each(*looks: Callable[[int], None]) -> Callable[[int], None]:
    def look(pid: int) -> None:
        for one in looks:
            one(pid)

    return look


def no_answer(job: AnyJob) -> WorkerError:
    """A child that ends well and says nothing must never pass for one that did the work."""
    fix = "look at the lines above; lifecycle/worker.py must end by writing result.json"
    path = str(Path(job.out) / "job.json")
    return WorkerError("the worker exited 0 without an answer to its job", fix=fix, exit_code=0, value=path)


def _written(out: Path) -> tuple[int, int] | None:
    """Which answer lies in the folder: another one is another file."""
    try:
        found = (out / "result.json").stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _python_path() -> str:
    """Of the worker: it shall import the Trainworthy that started it. An installed one is found by any process."""
    own = "" if IMPORTED_FROM.name in ("site-packages", "dist-packages") else str(IMPORTED_FROM)
    return os.pathsep.join(part for part in (own, os.environ.get("PYTHONPATH", "")) if part)


def worker_error(
    out: Path, code: int, memory: MemorySeen | None = None, batch: tuple[int, int] | None = None
) -> WorkerError:
    """What the worker told in error.json, or what its exit code and memory alone say."""
    try:
        told: dict[str, Any] | None = json.loads((out / "error.json").read_text())
    except (OSError, ValueError):
        told = None
    return error_of(End(exit_code=code, told=told, memory=memory or MemorySeen(), batch=batch))
