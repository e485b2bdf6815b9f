"""Starts the worker over Dagster Pipes and reads its answer; process_group.py ends it on any way out."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from lifecycle.errors import WorkerError
from lifecycle.identity import canonical_json
from lifecycle.jobs import AnyJob, AnyResult, JobFile
from lifecycle.storage.state import write_atomic
from lifecycle.worker import EXIT_PREEMPTED, job_sha256, read_result
from resources.process_group import run_group
from resources.settings import PROJECT

# Threads that wait actively starve each other on a busy machine: the full stage of flights took 13 s on an idle one
# and 130 s under load.
QUIET_WAIT = {"OMP_WAIT_POLICY": "PASSIVE"}


class Launcher(dg.ConfigurableResource):
    """Runs the worker in a child process."""

    device: Literal["as_declared", "cpu", "cuda"] = Field(
        default="as_declared", description="Overrides the device that use cases declare."
    )
    grace_seconds: float = Field(default=10.0, description="Seconds between SIGTERM and SIGKILL when a run is ended.")

    def run(self, context: dg.AssetExecutionContext | dg.OpExecutionContext, job: AnyJob) -> AnyResult:
        """Run the job to its answer. Raises WorkerError if there is none, whatever the exit code was."""
        if self.device != "as_declared":
            job = job.model_copy(update={"device": self.device})
        out = Path(job.out)
        path = out / "job.json"
        # What an earlier attempt told is no cause of this one's end.
        (out / "error.json").unlink(missing_ok=True)
        write_atomic(path, canonical_json(JobFile(job=job).model_dump(mode="json")))
        with dg.open_pipes_session(
            context=context.op_execution_context if isinstance(context, dg.AssetExecutionContext) else context,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
        ) as session:
            environment = {**QUIET_WAIT, **os.environ, **session.get_bootstrap_env_vars(), "PYTHONPATH": _python_path()}
            command = [sys.executable, "-m", "lifecycle.worker", "--job", str(path)]
            code = run_group(command, environment, self.grace_seconds)
        if code != 0:
            raise _worker_error(out, code)
        answer = read_result(out, job)
        reported = [message.get("job_sha256") for message in session.get_custom_messages()]
        if answer is None or job_sha256(job) not in reported:
            # A child that ends well and says nothing must never pass for one that did the work.
            fix = "look at the lines above; lifecycle/worker.py must end by writing result.json"
            raise WorkerError("the worker exited 0 without an answer to its job", fix=fix, exit_code=0, value=str(path))
        return answer


def _python_path() -> str:
    return os.pathsep.join(part for part in (str(PROJECT), os.environ.get("PYTHONPATH", "")) if part)


def _worker_error(out: Path, code: int) -> WorkerError:
    """What the worker told in error.json, or what its exit code alone says."""
    try:
        told: dict[str, Any] = json.loads((out / "error.json").read_text())
    except (OSError, ValueError):
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        fix = "if the kernel killed it, it ran out of memory: use a smaller batch; then run again: it resumes"
        return WorkerError(f"the worker {how} and left no word", fix=fix, exit_code=code)
    problem = told["problem"] if code == EXIT_PREEMPTED else f"the worker stopped: {told['problem']}"
    return WorkerError(problem, value=told.get("value"), fix=told["fix"], exit_code=code)
