"""Starts the worker over Dagster Pipes and reads its answer; process_group.py ends it on any way out."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import dagster as dg
from pydantic import Field

from trainworthy.lifecycle.answer import read_modules
from trainworthy.lifecycle.code_identity import KEPT, CodeOnDisk, refuse_unhashed
from trainworthy.lifecycle.cost.meter import Meter, count_spared
from trainworthy.lifecycle.earlier_ends import EarlierEnds
from trainworthy.lifecycle.identity import job_sha256
from trainworthy.lifecycle.protocol.attempts import ChargedTo
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob, processes_of
from trainworthy.lifecycle.protocol.results import AnyResult
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.attempts import OpenAttempt, ends_before, recorded
from trainworthy.resources.backends.backend import Backend, Elastic, Size
from trainworthy.resources.backends.choose import backend_of
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.settings import read_settings
from trainworthy.resources.supervisor import supervise
from trainworthy.resources.worker_output import kept_output
from trainworthy.resources.worker_process import no_answer, run_worker

# What Dagster puts on a run that it starts because the one before failed (run_retries).
RETRY_TAG = "dagster/retry_number"
Context = dg.AssetExecutionContext | dg.OpExecutionContext


class Launcher(dg.ConfigurableResource):
    """Runs the worker where the use case's compute.launcher says."""

    device: Literal["as_declared", "cpu", "cuda"] = Field(
        default="as_declared", description="Overrides the device that use cases declare."
    )
    grace_seconds: float = Field(default=10.0, description="Seconds between SIGTERM and SIGKILL when a run is ended.")

    def uses_cuda(self, compute: ComputeSpec) -> bool:
        """True if the job is meant for a GPU, whether there is one here or not."""
        device = compute.device if self.device == "as_declared" else self.device
        return device == "cuda" or (device == "auto" and compute.gpus > 0)

    def run(
        self, context: Context, job: AnyJob, charged_to: ChargedTo, seconds_left: float = math.inf, *,
        fresh: bool = False, compute: ComputeSpec | None = None,
    ) -> AnyResult:  # fmt: skip
        """Run the job to its answer; a training goes on from its checkpoint while its ends and `seconds_left` allow it.

        Ends of the same training in earlier runs count, until it gets past them (supervisor.py).

        `fresh`: in a process that shares nothing with those before it, not even the order of sets. Without `compute`
        it runs on this machine.

        Raises WorkerError if there is no answer, whatever the exit code was, and AttemptError if a training cannot be
        entered in the table of attempts.
        """
        if self.device != "as_declared":
            job = job.model_copy(update={"device": self.device})
        backend = backend_of(compute)
        if not isinstance(job, TrainJob):
            return self._attempt(context, job, charged_to, fresh, backend)
        meter = Meter()

        def once() -> AnyResult:
            size = Size(1, 1, job.processes)
            if isinstance(backend, Elastic):
                size = backend.size_of(job, context.log.warning)
            # What earlier attempts have waited for, or had no machine for, takes nothing of what the budget allows.
            free = meter.queue_seconds + meter.spared_seconds
            ends_at = size.ends_at(None if job.ends_at is None else job.ends_at + free, time.time())
            attempt = job.model_copy(update={"ends_at": ends_at, "processes": size.processes})
            price = charged_to.model_copy(update={"usd_per_hour": charged_to.usd_per_hour * size.share})
            with _rented(size):
                return self._attempt(context, attempt, price, fresh, backend)

        earlier = ends_before(job, charged_to, context.log)
        return supervise(
            job, once, context.log.warning, seconds_left, earlier=earlier,
            again_by_itself=_again_by_itself(context, earlier),
        )  # fmt: skip

    def _attempt(
        self, context: Context, job: AnyJob, charged_to: ChargedTo, fresh: bool, backend: Backend
    ) -> AnyResult:  # fmt: skip
        processes = processes_of(job)
        launcher = "torchrun" if backend.name == LOCAL.name and processes > 1 else backend.name
        with recorded(job, charged_to, context.log, launcher=launcher, world_size=processes) as attempt:
            return self._worker(context, job, attempt, fresh, backend)

    def _worker(
        self, context: Context, job: AnyJob, attempt: OpenAttempt, fresh: bool, backend: Backend
    ) -> AnyResult:  # fmt: skip
        # Before it begins, since whoever works on the code may change it meanwhile.
        covered = CodeOnDisk(read_settings().var.joinpath(*KEPT)).modules_of(job)
        out = Path(job.out)
        out.mkdir(parents=True, exist_ok=True)
        # The job's folder is all that a worker on another machine has in common with this one.
        place = None if backend is LOCAL else out
        with tempfile.TemporaryDirectory(prefix="pipes-", dir=place) as pipes, warnings.catch_warnings():
            # Dagster calls previews of its own when a session starts and ends, and warns whoever waits for a model.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            with dg.open_pipes_session(
                context=context.op_execution_context if isinstance(context, dg.AssetExecutionContext) else context,
                context_injector=dg.PipesFileContextInjector(f"{pipes}/context"),
                message_reader=dg.PipesFileMessageReader(f"{pipes}/messages"),
            ) as session:
                more, grace = session.get_bootstrap_env_vars(), self.grace_seconds
                with kept_output(context.instance.compute_log_manager, _title(context, job)) as output:
                    answer = run_worker(
                        job, backend=backend, more=more, grace_seconds=grace, tell=context.log.info, fresh=fresh,
                        output=output, watcher=attempt,
                    )  # fmt: skip
                # An open file of a file server may look for seconds as it was; opening it anew asks how long it is.
                Path(f"{pipes}/messages").open().close()
        reported = [message.get("job_sha256") for message in session.get_custom_messages()]
        if job_sha256(job) not in reported:
            raise no_answer(job)
        refuse_unhashed(job, read_modules(out), covered)
        return answer


@contextlib.contextmanager
def _rented(size: Size) -> Iterator[None]:
    """Around an attempt: the machines that it does without cost nothing."""
    meter = Meter()
    try:
        yield
    finally:
        count_spared(meter.wall_seconds * (1 - size.share))


def _again_by_itself(context: Context, earlier: EarlierEnds) -> bool:
    """True of a run that is there only because it failed: Dagster tries it again (run_retries), or goes on with it."""
    return RETRY_TAG in context.run.tags or context.run.run_id in earlier.run_ids


def _title(context: Context, job: AnyJob) -> str:
    """Which of the run's workers it is: the step, and what it was asked for."""
    op = context.op_execution_context if isinstance(context, dg.AssetExecutionContext) else context
    return f"{op.op.name.replace('__', '/')}: worker for {job.kind}"
