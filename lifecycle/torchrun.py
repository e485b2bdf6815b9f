"""Starts the ranks of a training on this machine by torchrun's agent, and ends as the guilty one did.

`python -m trainworthy.lifecycle.torchrun --job job.json` is to a training by several processes what the worker is to
one by one: the same job file, answer, error.json and exit codes. torchrun starts each rank as a worker and ends the
others when one ends; it is not asked to restart any, since who may go on, and how often, is decided outside
(failure.py). Nor is its summary trusted: each rank leaves how it ended and where it was (storage/rank_files.py), and
rank_ends.py reads them. Ranks meet by a file and talk over the loopback device: no port is opened to others.

With `--nodes N --node-rank K --endpoint HOST:PORT` it is one of N machines that see the same folder. The first holds
the folder's lock, decides and tells the end; each other one is its hands (nodes/), and leaves what it alone can know of
its ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.answer import has_answer
from trainworthy.lifecycle.error_causes import lost_rank
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_HANG, EXIT_PREEMPTED, EXIT_RANK_LOST
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.identity import canonical_json, job_sha256, other_packages
from trainworthy.lifecycle.nodes.agreement import LATE_SECONDS, agreed, is_same
from trainworthy.lifecycle.nodes.meeting import POLL_SECONDS, FirstIsGoneError, Meeting, Message
from trainworthy.lifecycle.nodes.node import Node, add_arguments, interface_of, node_of
from trainworthy.lifecycle.nodes.watch import Watch
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob
from trainworthy.lifecycle.protocol.ranks import NodeReport, RankEnd
from trainworthy.lifecycle.rank_ends import end_of_ranks
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.spec.use_case import COLLECTIVE_TIMEOUT_SECONDS
from trainworthy.lifecycle.storage.rank_files import (
    RANKS,
    begin_ranks,
    last_lines,
    read_ends,
    read_lines,
    read_node,
    read_places,
    write_node,
)
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.worker import command_line, open_pipes, read_job, refuses_packages, report
from trainworthy.lifecycle.worker_end import ended

# From SIGTERM to SIGKILL for ranks that are asked to end; the first writes its checkpoint meanwhile.
SHUTDOWN_SECONDS = 30
# In ranks/: which attempt they are of, by which a node sees whether its storage is the first one's.
RUN = "run"
# Not 0, which torch takes for no limit.
BARRIER_SECONDS = 0.1
# A node that shows no life for so long after the first one's ranks have ended is gone: it does so every second.
GONE_SECONDS = 15.0
ErrorReport = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run one training to the end of all its ranks; returns the exit code, 128 and its number for a signal."""
    parser = command_line("trainworthy.lifecycle.torchrun", "Runs one training by ranks.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        node = node_of(options)
    except SettingsError as error:
        parser.error(str(error))
    if node.nodes > 1:
        # Else torch writes its own stack when the store of a first node that has ended is looked at.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    job = read_job(options.job)
    code = _first(options, node, job) if node.first else _other(options, node, job)
    return 128 - code if code < 0 else code


def _first(options: argparse.Namespace, node: Node, job: AnyJob | None) -> int:
    """The agent of the only node, or of the one that decides; the exit code."""
    if job is None:
        return EXIT_BAD_INPUT
    if not isinstance(job, TrainJob):
        say(f"{options.job} is no training: {job.kind}")
        return EXIT_BAD_INPUT
    if refuses_packages(job, options):
        return EXIT_BAD_INPUT
    out = Path(job.out)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, say) if options.lock is None else contextlib.nullcontext():
        if has_answer(job, out):
            with open_pipes() as pipes:
                report(job, pipes)
            return 0
        code, error_report = _trained(options, node, job)
        if error_report is not None:
            # One error for all ranks.
            write_atomic(out / "error.json", canonical_json(error_report))
            if error_report.get("rank") and (lines := last_lines(out, error_report["rank"])):
                # The terminal has shown the first rank alone.
                say(f"rank {error_report['rank']} wrote at last:\n{lines}")
        return code


def _trained(options: argparse.Namespace, node: Node, job: TrainJob) -> tuple[int, ErrorReport | None]:
    """Let all ranks train; the exit code of the whole, and what is told of a bad end."""
    out, use_case = Path(job.out), Path(job.use_case_folder)
    code, error_report = ended(lambda: _look(node, job), use_case)
    run = uuid.uuid4().hex
    if node.nodes == 1:
        if error_report is not None:
            return code, error_report
        begin_ranks(out)
        ends = _run(options, node, job, run, None)
        return end_of_ranks(ends, read_places(out), job.processes, read_lines(out, use_case))
    try:
        meeting = Meeting(node, job.collective_timeout_seconds)
    except SettingsError as error:
        return EXIT_BAD_INPUT, {"problem": error.problem, "value": error.value, "fix": error.fix}
    write_atomic(begin_ranks(out) / RUN, run.encode())
    about = {"job_sha256": job_sha256(job), "run": run}
    answers = meeting.gather(about, job.collective_timeout_seconds)
    each = {0: error_report} | {number: answer["told"] for number, answer in answers.items()}
    code, error_report = agreed(each, node, job.collective_timeout_seconds)
    meeting.decide({"code": code, "told": error_report, "run": run}, answers)
    if error_report is not None:
        return code, error_report
    with Watch(meeting, out, node.ranks(job.processes), job.collective_timeout_seconds) as watch:
        _leave(node, job, _run(options, node, job, run, watch), watch)
    hosts = [socket.gethostname(), *(answers[number]["host"] for number in node.others)]
    return _end(_gather_reports(meeting, out), hosts, job.processes)


def _look(node: Node, job: TrainJob) -> None:
    """Raises SettingsError if this machine lacks what its ranks need."""
    if job.processes % node.nodes:
        value, fix = f"{job.processes} on {node.nodes} nodes", "let compute.nodes divide compute.processes"
        raise SettingsError("each node has as many processes", value=value, fix=fix)
    choose_device(job.device, job.processes // node.nodes)
    if node.nodes > 1:
        interface_of(node)


def _other(options: argparse.Namespace, node: Node, job: AnyJob | None) -> int:
    """The agent of another node than the first: its ranks train as long as those of the first do; the exit code."""
    train = job if isinstance(job, TrainJob) else None
    if train is not None and has_answer(train, Path(train.out)):
        return 0
    try:
        meeting = Meeting(node, COLLECTIVE_TIMEOUT_SECONDS if train is None else train.collective_timeout_seconds)
        decided = meeting.answer(
            lambda about: {"host": socket.gethostname(), "told": _refused(options, node, job, about)}
        )
        if decided["told"] is not None:
            say(f"{decided['told']['problem']}\n    fix: {decided['told']['fix']}")
            return decided["code"]
        assert train is not None
        mine, seconds = node.ranks(train.processes), train.collective_timeout_seconds
        with Watch(meeting, Path(train.out), mine, seconds) as watch:
            return _leave(node, train, _run(options, node, train, decided["run"], watch), watch)
    except SettingsError as error:
        say(str(error))
        return EXIT_BAD_INPUT
    except FirstIsGoneError as error:
        say(f"the agent of node 0 has ended, or is out of reach: {error}")
        return EXIT_RANK_LOST


def _refused(options: argparse.Namespace, node: Node, job: AnyJob | None, about: Message) -> ErrorReport | None:
    """Why this node cannot train what the first one does, as it is told; None if it can."""
    fix = "let all nodes have the storage of the first one, under the same path"
    if not isinstance(job, TrainJob):
        return {"problem": "its file holds no training, or is not there", "value": str(options.job), "fix": fix}
    if job_sha256(job) != about["job_sha256"]:
        problem = "its file has another job than that of the first node"
        return {"problem": problem, "value": str(options.job), "fix": fix}
    if mismatches := other_packages(options.packages or {}):
        problem = f"it has other packages than its launcher: {'; '.join(mismatches)}"
        return {"problem": problem, "value": None, "fix": "install the same versions on all nodes (constraints.txt)"}
    if not is_same(Path(job.out) / RANKS / RUN, about["run"]):
        return {"problem": "its folder is not that of the first node", "value": job.out, "fix": fix}
    return ended(lambda: _look(node, job), Path(job.use_case_folder))[1]


def _run(
    options: argparse.Namespace, node: Node, job: TrainJob, run: str, watch: Watch | None
) -> dict[int, RankEnd]:  # fmt: skip
    """Start the ranks of this node and wait for them all; how each ended, as far as it is known."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher import api

    # What torchrun says of a failed rank rank_ends.py says better, and nothing else is logged here.
    logging.disable(logging.CRITICAL)
    out, mine, seconds = Path(job.out), node.ranks(job.processes), job.collective_timeout_seconds
    os.environ.update(_environment(node, len(mine)))
    # By torch's own two ways: a file, for which no port is opened, or the store in the process of the first node.
    rendezvous = out / RANKS / f"rendezvous-{run}"
    file, store = {"store_type": "file", "timeout": seconds}, {"rank": node.number, "timeout": max(1, int(seconds))}
    if watch is not None:
        # Else an agent whose ranks have ended well waits for all others for minutes, in a call that no signal ends.
        # The first one, which has the store, waits for their word (_gather_reports).
        brief = functools.partial(LocalElasticAgent, exit_barrier_timeout=BARRIER_SECONDS)
        api.LocalElasticAgent = brief  # pyright: ignore[reportPrivateImportUsage]
    config = api.LaunchConfig(
        min_nodes=node.nodes, max_nodes=node.nodes, nproc_per_node=len(mine), run_id=run,
        rdzv_backend="c10d" if watch is None else "static",
        rdzv_endpoint=f"{rendezvous}.agent" if watch is None else node.endpoint,
        rdzv_configs=file if watch is None else store,
        max_restarts=0, shutdown_timeout=SHUTDOWN_SECONDS,
    )  # fmt: skip
    url = Path(f"{rendezvous}.ranks").as_uri() if watch is None else "env://"
    given = ["--rendezvous", url, "--agent", str(os.getpid())]
    given += ["--job", str(options.job), "--queued", str(options.queued)]
    given += [] if options.submitted is None else ["--submitted", str(options.submitted)]
    failed: dict[int, Any] = {}
    try:
        try:
            api.elastic_launch(config, sys.executable)("-m", "trainworthy.lifecycle.worker", *given)
        finally:
            # Within, since what ends the ranks of another node may ask for the end of these at this moment.
            if watch is not None:
                watch.leave_ranks()
    except ChildFailedError as error:
        failed = dict(error.failures)
    except SignalException:
        # Whoever sent it asked for the end, which the ranks have told by themselves if there was time.
        failed = {}
    except Exception as error:
        # Without the first node's agent there is no store.
        if watch is None or lost_rank(error) is None:
            raise
    if watch is None:
        return _ends(out, mine, failed, {}, others_ended=False)
    return _ends(out, mine, failed, watch.states, others_ended=watch.ended)


def _ends(
    out: Path, mine: range, failed: Mapping[int, Any], states: dict[int, str], *, others_ended: bool
) -> dict[int, RankEnd]:  # fmt: skip
    """How the ranks of this node ended: what they told, else what torchrun saw, or the watch did with them."""
    reported_ends, host = read_ends(out, mine), socket.gethostname()
    observed_ends = {
        rank: RankEnd(pid=failure.pid, host=host, exit_code=failure.exitcode) for rank, failure in failed.items()
    }
    if states:
        # These were killed since they hung, or waited for those that did.
        observed_ends = {
            rank: RankEnd(pid=place.pid, host=host, exit_code=-signal.SIGKILL, states=states)
            for rank, place in read_places(out, mine).items()
        }
    ends = {**observed_ends, **reported_ends}
    return ends or ({} if others_ended else {mine[0]: RankEnd(pid=os.getpid(), host=host, exit_code=EXIT_PREEMPTED)})


def _leave(node: Node, job: TrainJob, ends: dict[int, RankEnd], watch: Watch) -> int:
    """Write down what this node knows of its ranks, and tell the others that these have ended; its exit code."""
    out, mine = Path(job.out), node.ranks(job.processes)
    lines = read_lines(out, Path(job.use_case_folder), mine)
    node_report = NodeReport(host=socket.gethostname(), ends=ends, places=read_places(out, mine), lines=lines)
    write_node(out, node.number, node_report)
    codes = [end.exit_code for end in ends.values()]
    well = len(codes) == len(mine) and not any(codes)
    watch.over("well" if well else "hang" if EXIT_HANG in codes else "badly")
    return 0 if well else next((code for code in codes if code), EXIT_RANK_LOST)


def _gather_reports(meeting: Meeting, out: Path) -> dict[int, NodeReport]:
    """What each node has left of its ranks, as far as it does while it lives, and in time."""
    until, waiting, finished = time.monotonic() + SHUTDOWN_SECONDS + GONE_SECONDS, set(meeting.node.others), {0}
    while waiting and time.monotonic() < until:
        over = {number for number in waiting if meeting.how(number)}
        gone = {number for number in waiting - over if meeting.silent_seconds(number) > GONE_SECONDS}
        finished, waiting = finished | over, waiting - over - gone
        time.sleep(POLL_SECONDS)
    until, reports = time.monotonic() + LATE_SECONDS, dict[int, NodeReport]()
    while len(reports) < len(finished) and time.monotonic() < until:
        reports = {
            number: node_report for number in sorted(finished) if (node_report := read_node(out, number)) is not None
        }
        time.sleep(POLL_SECONDS)
    return reports


def _end(reports: Mapping[int, NodeReport], hosts: list[str], processes: int) -> tuple[int, ErrorReport | None]:
    """The end of all ranks, by what their nodes have told."""
    ends = {rank: end for node_report in reports.values() for rank, end in node_report.ends.items()}
    places = {rank: place for node_report in reports.values() for rank, place in node_report.places.items()}
    lines = {rank: line for node_report in reports.values() for rank, line in node_report.lines.items()}
    lost = [number for number in range(len(hosts)) if number not in reports]
    return end_of_ranks(ends, places, processes, lines, hosts, lost)


def _environment(node: Node, here: int) -> dict[str, str]:
    """Of the ranks, so many `here`: each its part of the cores, and no word to machines that do not train with them."""
    from torch import get_num_threads

    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, get_num_threads() // here))
    alone = node.nodes == 1
    interface = loopback() if alone else interface_of(node)
    return {
        "OMP_NUM_THREADS": threads,
        "GLOO_SOCKET_IFNAME": interface,
        # NCCL takes a name for the beginning of one, unless it is told otherwise.
        "NCCL_SOCKET_IFNAME": interface if alone else f"={interface}",
        # Else torchrun's agent opens a store to all machines, whatever its own rendezvous is (torch 2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def loopback() -> str:
    """The name of the loopback device."""
    return "lo" if sys.platform.startswith("linux") else "lo0"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
