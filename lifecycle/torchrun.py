"""Starts the ranks of a training on this machine by torchrun's agent, and ends as the guilty one did.

`python -m trainworthy.lifecycle.torchrun --job job.json` is to a training by several processes what the worker is to
one by one: the same job file, answer, error.json and exit codes. torchrun starts each rank as a worker and ends the
others when one ends; it is not asked to restart any, since who may go on, and how often, is decided outside
(failure.py). Nor is its summary trusted: each rank leaves how it ended and where it was (storage/rank_files.py), and
rank_ends.py reads them. Ranks meet by a file and talk over the loopback device: no port is opened to others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import uuid
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_PREEMPTED
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.ranks import RankEnd
from trainworthy.lifecycle.rank_ends import end_of_ranks
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.storage.rank_files import RANKS, begin_ranks, last_lines, read_ends, read_lines, read_places
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.worker import command_line, ended, has_answer, open_pipes, read_job, refuses_packages, report

# From SIGTERM to SIGKILL for ranks that are asked to end; the first writes its checkpoint meanwhile.
SHUTDOWN_SECONDS = 30


def main(arguments: list[str] | None = None) -> int:
    """Run one training to the end of all its ranks; returns the exit code, 128 and its number for a signal."""
    asked = command_line("trainworthy.lifecycle.torchrun", "Runs one training by ranks.").parse_args(arguments)
    job = read_job(asked.job)
    if job is None:
        return EXIT_BAD_INPUT
    if not isinstance(job, TrainJob):
        say(f"{asked.job} is no training: {job.kind}")
        return EXIT_BAD_INPUT
    if refuses_packages(job, asked):
        return EXIT_BAD_INPUT
    out = Path(job.out)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, say) if asked.lock is None else contextlib.nullcontext():
        if has_answer(job, out):
            with open_pipes() as pipes:
                report(job, pipes)
            return 0
        code, told = ended(lambda: choose_device(job.device, job.processes), Path(job.use_case_folder))
        if told is not None:
            # One error for all ranks.
            write_atomic(out / "error.json", canonical_json(told))
            return code
        begin_ranks(out)
        submitted = [] if asked.submitted is None else ["--submitted", str(asked.submitted)]
        ends = _run(job, out, ["--job", str(asked.job), "--queued", str(asked.queued), *submitted])
        code, told = end_of_ranks(ends, read_places(out), job.processes, read_lines(out, Path(job.use_case_folder)))
        if told is not None:
            write_atomic(out / "error.json", canonical_json(told))
            if told.get("rank") and (lines := last_lines(out, told["rank"])):
                # The terminal has shown the first rank alone.
                say(f"rank {told['rank']} wrote at last:\n{lines}")
    return 128 - code if code < 0 else code


def _run(job: TrainJob, out: Path, arguments: list[str]) -> dict[int, RankEnd]:
    """Start the ranks and wait for them all; how each ended, as far as it is known."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # What torchrun says of a failed rank rank_ends.py says better, and nothing else is logged here.
    logging.disable(logging.CRITICAL)
    os.environ.update(_environment(job.processes))
    rendezvous = out / RANKS / f"rendezvous-{uuid.uuid4().hex}"
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=job.processes, run_id=uuid.uuid4().hex,
        rdzv_backend="c10d", rdzv_endpoint=f"{rendezvous}.agent",
        rdzv_configs={"store_type": "file", "timeout": job.collective_timeout_seconds},
        max_restarts=0, shutdown_timeout=SHUTDOWN_SECONDS,
    )  # fmt: skip
    ranks = ["--rendezvous", f"{rendezvous}.ranks", "--agent", str(os.getpid())]
    worker = ["-m", "trainworthy.lifecycle.worker", *ranks, *arguments]
    failed: dict[int, Any] = {}
    try:
        elastic_launch(config, sys.executable)(*worker)
    except ChildFailedError as error:
        failed = dict(error.failures)
    except SignalException:
        # Whoever sent it asked for the end, which the ranks have told by themselves if there was time.
        failed = {}
    told, host = read_ends(out), socket.gethostname()
    seen = {
        rank: RankEnd(pid=failure.pid, host=host, exit_code=failure.exitcode)
        for rank, failure in failed.items()
        if rank not in told
    }
    ends = {**told, **seen}
    return ends or {0: RankEnd(pid=os.getpid(), host=host, exit_code=EXIT_PREEMPTED)}


def _environment(processes: int) -> dict[str, str]:
    """Of the ranks: each its part of the cores, and no word to other machines."""
    from torch import get_num_threads

    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, get_num_threads() // processes))
    return {
        "OMP_NUM_THREADS": threads,
        "GLOO_SOCKET_IFNAME": loopback(),
        "NCCL_SOCKET_IFNAME": loopback(),
        # Else torchrun's agent opens a store to all machines, whatever its own rendezvous is (torch 2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def loopback() -> str:
    """The name of the loopback device."""
    return "lo" if sys.platform.startswith("linux") else "lo0"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
