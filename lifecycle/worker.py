"""The only process that runs user code and torch: `python -m trainworthy.lifecycle.worker --job job.json`.

It runs alone as well as under Dagster, since the job comes in by file. Under Dagster it reports
progress over Pipes, and at the end the sha256 of its answer, in small messages only.

Exit codes: 0 done, or stopped with its answer written (a NaN stop too); 65 bad data, code or
checkpoint, told in error.json; 66 the folder's lease lost; 70 internal error; 71 out of memory; 73
disk full; 74 storage; 75 preempted, with a checkpoint written; 76 a hang, if declared. failure.py says what
follows.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError

from trainworthy.lifecycle.answer import MODULES, has_answer
from trainworthy.lifecycle.failure import (
    EXIT_BAD_INPUT,
    EXIT_HANG,
)
from trainworthy.lifecycle.folder_lock import Lease, locked
from trainworthy.lifecycle.identity import canonical_json, job_sha256, other_packages
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import (
    AnyJob,
    DiagnoseJob,
    FunctionsJob,
    JobFile,
    PackJob,
    PredictJob,
    PreflightJob,
    QuickJob,
    ReplayJob,
    ServingJob,
    TrainJob,
    VerifyJob,
)
from trainworthy.lifecycle.protocol.results import AnyResult, ResultFile
from trainworthy.lifecycle.storage.durable.lease import durable_lease
from trainworthy.lifecycle.storage.rank_files import (
    OUTPUT,
    dump_stacks_when_asked,
    end_others,
    process_states,
    rank_folder,
    write_end,
)
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.worker_end import HELD, ended

# Names a file that appears when a spot machine is about to be taken away.
NOTICE = "TRAINWORTHY_SPOT_NOTICE"
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str] | None = None) -> int:
    """Run one job; returns the exit code."""
    parser = command_line("trainworthy.lifecycle.worker", "Runs one job of Trainworthy.")
    parser.add_argument("--rendezvous", help="URL by which the ranks meet whose number torchrun has given")
    parser.add_argument("--agent", type=int, help="process that has started this rank, which ends with it")
    parsed = parser.parse_args(arguments)
    if parsed.agent is not None:
        ends_with(parsed.agent)
    job = read_job(parsed.job)
    if job is None:
        return EXIT_BAD_INPUT
    if refuses_packages(job, parsed):
        return EXIT_BAD_INPUT
    job, queued = after_its_queue(job, parsed)
    if parsed.rendezvous is not None:
        assert isinstance(job, TrainJob)
        return _rank(job, parsed.rendezvous, queued)
    out = Path(job.out)
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    # A lock that was handed over is held as long as this process has it open.
    with open_pipes() as pipes, locked(out, say) if parsed.lock is None else contextlib.nullcontext():
        code, error = _run(job, out, pipes, waited=time.monotonic() - started, queued=queued)
        if error is not None:
            write_atomic(out / "error.json", canonical_json(error))
        return code


def command_line(name: str, description: str) -> argparse.ArgumentParser:
    """The arguments of every entry that does a job."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--job", type=Path, required=True, help="path of job.json")
    parser.add_argument("--lock", type=int, help="descriptor of the folder's lock, which whoever starts this holds")
    parser.add_argument("--queued", type=float, default=0.0, help="seconds that whoever starts this waited for it")
    parser.add_argument("--submitted", type=float, help="Unix time since when this waited for a machine to run on")
    parser.add_argument(
        "--packages", type=json.loads, help="versions, as JSON, that whoever starts this counts on here"
    )
    return parser


def refuses_packages(job: AnyJob, parsed: argparse.Namespace) -> bool:
    """True if this machine has other packages than the records of its answer will name; error.json says which."""
    differing = other_packages(parsed.packages or {})
    if differing:
        problem = f"this machine has other packages than its launcher: {'; '.join(differing)}"
        fix = "install the same versions on both (constraints.txt), or make the image of the worker anew"
        Path(job.out).mkdir(parents=True, exist_ok=True)
        write_atomic(Path(job.out) / "error.json", canonical_json({"problem": problem, "value": None, "fix": fix}))
    return bool(differing)


def after_its_queue(job: AnyJob, parsed: argparse.Namespace) -> tuple[AnyJob, float]:
    """The job, whose budget pays for no wait for a machine, and all seconds that were waited before this began."""
    waited = max(0.0, time.time() - parsed.submitted) if parsed.submitted is not None else 0.0
    if waited and isinstance(job, TrainJob) and job.ends_at is not None:
        job = job.model_copy(update={"ends_at": job.ends_at + waited})
    return job, parsed.queued + waited


def read_job(path: Path) -> AnyJob | None:
    """The job in the file; None, and said, if it holds none: without a job there is no folder for error.json."""
    try:
        return JobFile.model_validate_json(path.read_bytes()).job
    except (OSError, ValidationError) as error:
        say(f"{path} is no job: {error}")
        return None


def _loaded_modules() -> list[str]:
    return sorted(name for name in list(sys.modules) if name == "trainworthy" or name.startswith("trainworthy."))


def _run(job: AnyJob, out: Path, pipes: Any, waited: float, queued: float) -> tuple[int, dict[str, Any] | None]:
    """Run the job and write its answer; returns the exit code and, if it is not 0, what to tell."""
    # Only a training has a step boundary to end at; the others end at once.
    stop_requested = _stop_on_signal() if isinstance(job, TrainJob) else lambda: False

    def answer() -> None:
        if not has_answer(job, out):
            _answer(
                job,
                out,
                stop_requested,
                lambda stop, watched: _do(job, stop, _forward(pipes), waited + watched, queued),
            )
        report(job, pipes)

    return ended(answer, Path(job.use_case_folder))


def _rank(job: TrainJob, rendezvous: str, queued: float) -> int:
    """One of the processes of a training that torchrun.py has started, which reads how each of them ended."""
    from trainworthy.lifecycle.engine.train import follow_stage, run_stage
    from trainworthy.lifecycle.engine.training.ranks.group import open_group

    out, rank, size = Path(job.out), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = rank_folder(out, rank)
    folder.mkdir(parents=True, exist_ok=True)
    if rank:
        # One terminal shows one rank, and one error is told: rank_ends.py's.
        _write_to(folder / OUTPUT)
    dump_stacks_when_asked(out, rank)
    stop_requested = _stop_on_signal()
    with open_pipes() if rank == 0 else contextlib.nullcontext() as pipes:

        def train() -> None:
            with open_group(out, rank, size, rendezvous, job, stop_requested) as ranks:
                if rank:
                    follow_stage(job.model_copy(update={"out": str(folder)}), ranks)
                    return

                def do(stop: Callable[[], bool], watched: float) -> AnyResult:
                    return run_stage(job, stop, _forward(pipes), _spent(watched, queued), ranks)

                _answer(job, out, stop_requested, do)
            report(job, pipes)

        code, error = ended(train, Path(job.use_case_folder), by_ranks=True)
        # torchrun gives the ranks of a machine numbers in a row.
        first, here = rank - int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        mine = range(first, first + here)
        write_end(out, rank, code, error, process_states(out, mine) if code == EXIT_HANG else {})
        if code == EXIT_HANG:
            # Those that this one has waited for in vain would be waited for once more, by torchrun.
            end_others(out, mine)
    if HELD:
        # An interpreter that ends in order would run its destructor (worker_end.py).
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _answer(
    job: AnyJob, out: Path, stop_requested: Callable[[], bool], do: Callable[[Callable[[], bool], float], AnyResult]
) -> None:  # fmt: skip
    """Do the job while the folder's leases hold, and write its answer; `do` gets when to stop, and seconds waited."""
    lease = Lease(out)
    (out / "error.json").unlink(missing_ok=True)
    with durable_lease(job, out, stop_requested) as (check_durable, watched):

        def should_stop() -> bool:
            lease.check_now_and_then()
            check_durable()
            return stop_requested()

        result = do(should_stop, watched)
        # Before the answer, which counts only with them.
        write_atomic(out / MODULES, canonical_json(_loaded_modules()))
        check_durable()
    answer = ResultFile(job_sha256=job_sha256(job), result=result)
    lease.check()
    write_atomic(out / "result.json", canonical_json(answer.model_dump(mode="json")))


def report(job: AnyJob, pipes: Any) -> None:
    """Tell Dagster that the answer is there."""
    if pipes is not None:
        pipes.report_custom_message({"job_sha256": job_sha256(job)})


def _forward(pipes: Any) -> Callable[[str], None] | None:
    """As debug lines: the terminal shows the worker's own bar or lines already."""
    return None if pipes is None else pipes.log.debug


def _do(
    job: AnyJob,
    should_stop: Callable[[], bool],
    forward: Callable[[str], None] | None,
    waited: float,
    queued: float,
) -> AnyResult:
    """The job's answer; `waited` seconds of this process went to leases of others, and `queued` before it began."""
    match job:
        case TrainJob():
            from trainworthy.lifecycle.engine.train import run_stage

            return run_stage(job, should_stop, forward, _spent(waited, queued))
        case PreflightJob():
            import psutil

            from trainworthy.lifecycle.engine.preflight.run import run_preflight

            return run_preflight(job, began=psutil.Process().create_time())
        case PredictJob():
            from trainworthy.lifecycle.predict import run_predict

            return run_predict(job)
        case ServingJob():
            from trainworthy.lifecycle.serving.turns import run_serving

            return run_serving(job)
        case FunctionsJob():
            from trainworthy.lifecycle.engine.preflight.functions import try_functions

            return try_functions(job)
        case QuickJob():
            from trainworthy.lifecycle.engine.preflight.quick import run_quick

            return run_quick(job)
        case VerifyJob():
            from trainworthy.lifecycle.predict import run_verify

            return run_verify(job)
        case ReplayJob():
            from trainworthy.lifecycle.engine.incidents.replay import run_replay

            return run_replay(job)
        case DiagnoseJob():
            from trainworthy.lifecycle.engine.substitution.diagnose import run_diagnosis

            return run_diagnosis(job)
        case PackJob():
            from trainworthy.lifecycle.engine.incidents.portable import pack

            return pack(job)


def _spent(waited: float, queued: float) -> dict[int, float]:
    """Seconds of a training before it began, by part of its clock."""
    import psutil

    from trainworthy.lifecycle.engine.training.watching.clock import QUEUE, START

    lived = time.time() - psutil.Process().create_time()
    return {START: max(0.0, lived - waited), QUEUE: waited + queued}


def _stop_on_signal() -> Callable[[], bool]:
    """SIGTERM, SIGINT and the notice of a spot machine ask for an end at the next step boundary, where all is whole."""
    signals, notice = [], os.environ.get(NOTICE)
    if notice is not None and os.path.exists(notice):
        # Obeyed, it would end every life of the training after one step.
        say(f"{notice} was there before the training began: an old notice, which is left out of account")
        notice = None

    def remember(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, remember)
    return lambda: bool(signals) or (notice is not None and os.path.exists(notice))


def ends_with(parent: int) -> None:
    """Let the kernel end this process with the one that started it (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It was gone before.
        os.kill(os.getpid(), signal.SIGKILL)


def _write_to(path: Path) -> None:
    """Let this process write to a file what it would write on a terminal."""
    with path.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


@contextlib.contextmanager
def open_pipes() -> Iterator[Any]:
    """The Pipes context under Dagster, else None."""
    if "DAGSTER_PIPES_CONTEXT" not in os.environ:
        yield None
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        yield pipes


if __name__ == "__main__":
    sys.exit(main())
