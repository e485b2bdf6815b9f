"""A training by several ranks as forks of this process: what torchrun starts, without the seconds that imports take."""

import multiprocessing
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toy_jobs import write_job

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.lifecycle.protocol.ranks import RankEnd
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.rank_ends import end_of_ranks
from trainworthy.lifecycle.storage.rank_files import begin_ranks, read_ends, read_lines, read_places
from trainworthy.lifecycle.worker import main

SECONDS = 25


def train_by_ranks(job: TrainJob, variables: Mapping[str, str] | None = None) -> TrainResult:
    """The answer of `job.processes` ranks; `variables` are added to their environment."""
    ends = run_ranks(job, variables)
    assert [(end.exit_code, end.told) for end in ends.values()] == [(0, None)] * job.processes
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult)
    return result


def told_by_ranks(
    job: TrainJob, variables: Mapping[str, str] | None = None, others: TrainJob | None = None
) -> tuple[int, dict[str, Any]]:
    """Exit code of a bad end, and what is told of it; `others` is the job of all ranks but the first."""
    ends, out = run_ranks(job, variables, others), Path(job.out)
    lines = read_lines(out, Path(job.use_case_folder))
    code, told = end_of_ranks(ends, read_places(out), job.processes, lines)
    assert told is not None
    return code, told


def run_ranks(
    job: TrainJob, variables: Mapping[str, str] | None = None, others: TrainJob | None = None
) -> dict[int, RankEnd]:
    """How each of the ranks ended, of a killed one as torchrun sees it."""
    out = Path(job.out)
    paths = [write_job(job)] * job.processes
    if others is not None:
        paths[1:] = [out / "others.json"] * (job.processes - 1)
        paths[1].write_bytes(canonical_json(JobFile(job=others).model_dump(mode="json")))
    forks = multiprocessing.get_context("fork")
    with locked(out, print):
        rendezvous = begin_ranks(out) / "meeting"
        ranks = [
            forks.Process(target=_rank, args=(rank, job.processes, rendezvous, path, variables or {}))
            for rank, path in enumerate(paths)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(SECONDS)
            if rank.is_alive() and rank.pid is not None:
                # A hang of a test is told with what it hangs at.
                os.kill(rank.pid, signal.SIGUSR2)
                rank.join(2)
                print(*(path.read_text() for path in out.glob("ranks/*.stacks.txt")), sep="\n")
            rank.kill()
            rank.join()
    killed = {
        number: RankEnd(pid=rank.pid or 0, host="here", exit_code=code)
        for number, rank in enumerate(ranks)
        if (code := rank.exitcode or 0) < 0
    }
    return {**killed, **read_ends(out)}


def _rank(rank: int, size: int, rendezvous: Path, job: Path, variables: Mapping[str, str]) -> None:
    import torch

    torch.set_num_threads(1)
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update(**variables, **{name: str(number) for name, number in numbers.items()}, GLOO_SOCKET_IFNAME="lo")
    os._exit(main(["--job", str(job), "--rendezvous", rendezvous.as_uri()]))
