"""The worker as a process of its own, without Dagster: how to start it, and what its end means."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lifecycle.errors import WorkerError
from lifecycle.identity import canonical_json
from lifecycle.jobs import AnyJob, AnyResult, JobFile
from lifecycle.storage.state import write_atomic
from lifecycle.worker import EXIT_PREEMPTED, read_result
from resources.process_group import run_group
from resources.settings import PROJECT

# Threads that wait actively starve each other on a busy machine: the full stage of flights took 13 s on an idle one
# and 130 s under load. Below level 6 torch's profiler writes a line on stderr for each start and stop.
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "KINETO_LOG_LEVEL": "6"}


def run_worker(job: AnyJob, *, more: Mapping[str, str] | None = None, grace_seconds: float = 10.0) -> AnyResult:
    """Run the job to its answer; `more` is added to the environment. Raises WorkerError if there is no answer."""
    out = Path(job.out)
    path = out / "job.json"
    # What an earlier attempt told is no cause of this one's end.
    (out / "error.json").unlink(missing_ok=True)
    write_atomic(path, canonical_json(JobFile(job=job).model_dump(mode="json")))
    environment = {**QUIET, **os.environ, **(more or {}), "PYTHONPATH": _python_path()}
    code = run_group([sys.executable, "-m", "lifecycle.worker", "--job", str(path)], environment, grace_seconds)
    if code != 0:
        raise worker_error(out, code)
    answer = read_result(out, job)
    if answer is None:
        raise no_answer(job)
    return answer


def no_answer(job: AnyJob) -> WorkerError:
    """A child that ends well and says nothing must never pass for one that did the work."""
    fix = "look at the lines above; lifecycle/worker.py must end by writing result.json"
    path = str(Path(job.out) / "job.json")
    return WorkerError("the worker exited 0 without an answer to its job", fix=fix, exit_code=0, value=path)


def _python_path() -> str:
    return os.pathsep.join(part for part in (str(PROJECT), os.environ.get("PYTHONPATH", "")) if part)


def worker_error(out: Path, code: int) -> WorkerError:
    """What the worker told in error.json, or what its exit code alone says."""
    try:
        told: dict[str, Any] = json.loads((out / "error.json").read_text())
    except (OSError, ValueError):
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        fix = "if the kernel killed it, it ran out of memory: use a smaller batch; then run again: it resumes"
        return WorkerError(f"the worker {how} and left no word", fix=fix, exit_code=code)
    problem = told["problem"] if code == EXIT_PREEMPTED else f"the worker stopped: {told['problem']}"
    return WorkerError(problem, value=told.get("value"), fix=told["fix"], exit_code=code)
