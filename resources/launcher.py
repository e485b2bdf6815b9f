"""Starts the worker over Dagster Pipes and ends its whole process group on any way out.

Dagster's own subprocess client signals only the direct child and never kills; here the child leads
a process group of its own: SIGTERM to the group, a grace period for the checkpoint, then SIGKILL.
If this process is killed itself, the kernel ends the child (PR_SET_PDEATHSIG, Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg

from lifecycle.errors import WorkerError
from lifecycle.identity import canonical_json
from lifecycle.jobs import AnyJob, AnyResult, JobFile
from lifecycle.storage.state import write_atomic
from lifecycle.worker import EXIT_PREEMPTED, job_sha256, read_result
from resources.settings import PROJECT

PR_SET_PDEATHSIG = 1


class Launcher(dg.ConfigurableResource):
    """Runs jobs in a child process. `grace_seconds` is the time between SIGTERM and SIGKILL."""

    grace_seconds: float = 10.0

    def run(self, context: dg.AssetExecutionContext, job: AnyJob) -> AnyResult:
        """Run the job to its answer. Raises WorkerError if there is none, whatever the exit code was."""
        out = Path(job.out)
        path = out / "job.json"
        write_atomic(path, canonical_json(JobFile(job=job).model_dump(mode="json")))
        with dg.open_pipes_session(
            context=context.op_execution_context,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
        ) as session:
            environment = {**os.environ, **session.get_bootstrap_env_vars(), "PYTHONPATH": _python_path()}
            command = [sys.executable, "-m", "lifecycle.worker", "--job", str(path)]
            code = self._wait(command, environment)
        if code != 0:
            raise _worker_error(out, code)
        answer = read_result(out, job)
        reported = [message.get("job_sha256") for message in session.get_custom_messages()]
        if answer is None or job_sha256(job) not in reported:
            # A child that ends well and says nothing must never pass for one that did the work.
            fix = "look at the lines above; lifecycle/worker.py must end by writing result.json"
            raise WorkerError("the worker exited 0 without an answer to its job", fix=fix, exit_code=0, value=str(path))
        return answer

    def _wait(self, command: list[str], environment: dict[str, str]) -> int:
        """Exit code of the child; on any exception (cancel, SIGTERM, Ctrl-C) its group is ended first."""
        process = subprocess.Popen(
            command, env=environment, start_new_session=True, preexec_fn=_end_with_parent(), stdin=subprocess.DEVNULL
        )
        try:
            return process.wait()
        finally:
            self._end_group(process)

    def _end_group(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM to the group, wait for the leader, SIGKILL to what is left."""
        if process.poll() is None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.grace_seconds)
        # Helpers that the child left behind still belong to its group.
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _end_with_parent() -> Any:
    """A function for the child to run before exec: the kernel kills it when this thread's process dies."""
    if sys.platform != "linux":
        return None
    # The signal follows the thread that starts the child: steps run in the main thread of their process.
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def run_in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # The parent died between fork and prctl.

    return run_in_child


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
