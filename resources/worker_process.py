"""A job's way to its answer, without Dagster: written down, done by a worker somewhere, read; what its end means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.cost.meter import Meter, count_queued, count_worker
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.failure import End, error_of
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.progress import say, waits
from trainworthy.lifecycle.protocol.jobs import AnyJob, JobFile, TrainJob
from trainworthy.lifecycle.protocol.results import AnyResult, TrainResult
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.resources.backends.backend import Backend, Ended, Start, Watcher
from trainworthy.resources.backends.local import LOCAL


class Nobody:
    """Follows no worker."""

    def begin(self) -> None: ...
    def look(self) -> None: ...
    def waited(self, seconds: float) -> None: ...


class _Queueing:
    """A watcher whose waits for a machine are queue seconds of this process's meters, too."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._counted = watcher, 0.0

    def begin(self) -> None:
        self._watcher.begin()

    def look(self) -> None:
        self._watcher.look()

    def waited(self, seconds: float) -> None:
        count_queued(max(0.0, seconds - self._counted))
        self._counted = max(self._counted, seconds)
        waits()
        self._watcher.waited(seconds)


def run_worker(
    job: AnyJob,
    *,
    backend: Backend = LOCAL,
    more: Mapping[str, str] | None = None,
    grace_seconds: float = 10.0,
    tell: Callable[[str], None] = say,
    fresh: bool = False,
    output: tuple[int, int] = (1, 2),
    watcher: Watcher | None = None,
) -> AnyResult:
    """Run the job to its answer by a worker of `backend`. Raises WorkerError if there is no answer.

    `more` is added to the worker's environment; `fresh` and `output` are as in backend.py. `watcher.begin` is called
    when the worker is about to start, after any wait for another run.

    Waits as long as another run does the same; `tell` says so. An answer that was there already cost no GPU seconds.
    """
    out, watcher = Path(job.out), _Queueing(watcher or Nobody())
    path = out / "job.json"
    out.mkdir(parents=True, exist_ok=True)
    meter = Meter()
    with locked(out, tell, backend.lock) as lock:
        if isinstance(job, TrainJob) and job.ends_at is not None:
            # Waiting for another run costs nothing, and so takes nothing of what the budget allows.
            job = job.model_copy(update={"ends_at": job.ends_at + meter.queue_seconds})
        # What an earlier attempt told is no cause of this one's end.
        (out / "error.json").unlink(missing_ok=True)
        write_atomic(path, canonical_json(JobFile(job=job).model_dump(mode="json")))
        earlier = _written(out)
        start = Start(job, path, meter.queue_seconds, more or {}, output, grace_seconds, fresh, lock)
        watcher.begin()
        ended = backend.run(start, watcher, tell)
        count_worker(ended.cpu_seconds)
        if ended.exit_code != 0:
            raise worker_error(out, ended, job)
        answer = read_result(out, job)
        if isinstance(answer, TrainResult) and _written(out) == earlier:
            answer = answer.model_copy(update={"gpu_seconds": 0.0})
    if answer is None:
        raise no_answer(job)
    return answer


def no_answer(job: AnyJob) -> WorkerError:
    """A child that ends well and says nothing must never pass for one that did the work."""
    fix = "look at the lines above; lifecycle/worker.py must end by writing result.json"
    path = str(Path(job.out) / "job.json")
    return WorkerError("the worker exited 0 without an answer to its job", fix=fix, exit_code=0, value=path)


def _written(out: Path) -> tuple[int, int] | None:
    """Which answer lies in the folder: another one is another file."""
    try:
        status = (out / "result.json").stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def worker_error(out: Path, ended: Ended, job: AnyJob | None = None) -> WorkerError:
    """What the worker told in error.json, or what its exit code, its memory and its machine's owner say."""
    try:
        error_report: dict[str, Any] | None = json.loads((out / "error.json").read_text())
    except (OSError, ValueError):
        error_report = None
    end = End(exit_code=ended.exit_code, told=error_report, memory=ended.memory, seen=ended.seen)
    if isinstance(job, TrainJob):
        training = job.training
        on_disk = training.tensors == "per_batch"
        end = end.model_copy(update={"batch": (training.batch_size, training.accumulate), "rows_on_disk": on_disk})
    return error_of(end)
