"""Two ranks whose processes are killed, stopped and asked to end, at random: is the end the same, and the cause told?

One training by `compute.launcher: torchrun` is hit by a fault some seconds after the first new update since the last,
goes on from its newest checkpoint, and is hit again; then it is let to its end. Its weights have to be those of a quiet
run bit for bit. Faults, drawn by seed: SIGKILL, SIGSTOP and SIGTERM of either rank, SIGKILL and SIGTERM of torchrun's
agent. Checkpoints are copied to a bucket, whose server answers nobody for some seconds around every second fault.
Looked at after each: which cause and rank are told, and whether a process of the attempt lives on; at the end, whether
the bucket has the newest checkpoint. Goodput is the share of all seconds that went into updates which the end holds.

    make bench NAME=chaos         60 faults, about 40 minutes; ARGS="--faults 200" for more
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.rank_jobs import rank_job
from benchmarks.result import arguments, begin, finish, hardware
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.protocol.training_figures import Cause
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.durable.place import stores_of
from trainworthy.lifecycle.storage.rank_files import read_places
from trainworthy.resources.worker_process import run_worker

TARGETS = {
    "lost_faults": 0.0, "differing_ends": 0.0, "orphans": 0.0, "double_trainers": 0.0, "wrong_cause_share": 0.05,
    "bucket_behind": 0.0,
}  # fmt: skip
RANKS = 2
BUCKET = "copies"
# The bucket's server is away from so long before a fault to so long after it: also while the next attempt begins.
AWAY_BEFORE_SECONDS, AWAY_AFTER_SECONDS = 1.0, 8.0
# A rank that hangs is found after so long.
TIMEOUT_SECONDS = 20.0


class Fault(NamedTuple):
    """What is done to which process, the cause that has to be told, and whether the rank has to be named."""

    name: str
    process: Callable[[Path], int]
    number: signal.Signals
    cause: Cause
    rank: int | None


def _rank(rank: int) -> Callable[[Path], int]:
    return lambda out: read_places(out)[rank].pid


def _agent(out: Path) -> int:
    return psutil.Process(read_places(out)[0].pid).ppid()


OF_A_RANK: tuple[tuple[signal.Signals, Cause, bool], ...] = (
    (signal.SIGKILL, "killed", True), (signal.SIGSTOP, "hang", True), (signal.SIGTERM, "preempted", False)
)  # fmt: skip
FAULTS = [
    *(
        Fault(f"{number.name} of rank {rank}", _rank(rank), number, cause, rank if named else None)
        for rank in range(RANKS)
        for number, cause, named in OF_A_RANK
    ),
    Fault("SIGKILL of the agent", _agent, signal.SIGKILL, "killed", None),
    Fault("SIGTERM of the agent", _agent, signal.SIGTERM, "preempted", None),
]  # fmt: skip


class Hit(NamedTuple):
    """A fault and what followed: the cause that was told, its words, and seconds until the next new update."""

    fault: Fault
    cause: str
    told: str
    left: int

    @property
    def right(self) -> bool:
        """True if the cause is the true one, and the rank's name with it where it is known."""
        return self.cause == self.fault.cause and (self.fault.rank is None or f"rank {self.fault.rank}" in self.told)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begin(asked.short)
    count, delays = (1, (0.2, 0.5)) if asked.short else (asked.faults, (5.0, 15.0))
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    with tempfile.TemporaryDirectory() as name, bucket_server() as server:
        _chaos(Path(name), server, count, delays, random.Random(asked.seed), asked.short)


@contextlib.contextmanager
def bucket_server() -> Iterator[subprocess.Popen[bytes]]:
    """A server of S3 with an empty bucket, which the environment names."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    named = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any", "REGION": "us-east-1"}
    os.environ |= {f"AWS_{name}": value for name, value in named.items()}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "the bucket's server did not start"
                assert time.monotonic() < until, "the bucket's server does not answer"
                time.sleep(0.1)
        boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield process
    finally:
        process.kill()
        process.wait()


def _chaos(
    folder: Path, server: subprocess.Popen[bytes], count: int, delays: tuple[float, float], generator: random.Random,
    short: bool,
) -> None:  # fmt: skip
    # Long enough for every fault: between two of them lie about ten seconds of updates, most of which are lost.
    updates = 64 if short else 160 * count
    make = {"processes": RANKS, "updates": updates, "width": 16, "layers": 1, "pause": 0.1, "every_steps": 16}
    quiet, job = (rank_job(folder, name, timeout_seconds=TIMEOUT_SECONDS, **make) for name in ("quiet", "hit"))
    expected = run_worker(quiet)
    assert isinstance(expected, TrainResult)
    copied = job.interruptions.model_copy(update={"durable": f"s3://{BUCKET}/trainings"})
    job = job.model_copy(update={"interruptions": copied})
    hits: list[Hit] = []
    recoveries: list[float] = []
    began, double = time.monotonic(), 0
    drawn = _drawn(count, generator)
    ended_at = 0.0
    for number, fault in enumerate(drawn):
        away = server if number % 2 == 0 else None
        hitter = _Hitter(job, fault, generator.uniform(*delays), away)
        try:
            run_worker(job)
            break
        except WorkerError as error:
            hits.append(Hit(fault, error.cause, error.problem, len(_processes(job))))
        finally:
            hitter.join()
        if ended_at:
            recoveries.append(hitter.began - ended_at)
        ended_at, double = time.monotonic(), double + hitter.double
        print(f"{len(hits):3d} {fault.name:24} {'bucket away' if away else '':12}{hits[-1].cause:10} "
              f"{'' if hits[-1].right else 'WRONG: '}{hits[-1].told[:90]}", flush=True)  # fmt: skip
    result = run_worker(job)
    assert isinstance(result, TrainResult)
    seconds = time.monotonic() - began
    update = (expected.seconds.compute + expected.seconds.data) / expected.steps
    wrong = [hit for hit in hits if not hit.right]
    own, copies = stores_of(job)
    figures = {
        "faults": len(hits),
        "lost_faults": count - len(hits),
        "differing_ends": float(result.parameters_sha256 != expected.parameters_sha256),
        "orphans": sum(hit.left for hit in hits),
        "double_trainers": double,
        "wrong_cause_share": len(wrong) / max(1, len(hits)),
        "bucket_behind": float(own.names()[:1] != copies.names()[:1]),
        "recovery_seconds": statistics.median(recoveries) if recoveries else seconds,
        "goodput": update * result.steps / seconds,
    }
    for what, value in figures.items():
        print(f"{what:24}{value:10.3f}")
    print(hardware())
    finish("chaos", figures, TARGETS, short=short, zero_allowed=tuple(TARGETS))


def _drawn(count: int, generator: random.Random) -> list[Fault]:
    """Each fault as often as the others, in a drawn order."""
    every = list(itertools.islice(itertools.cycle(FAULTS), count))
    generator.shuffle(every)
    return every


class _Hitter(threading.Thread):
    """Does a fault so many seconds after the first new update; `double` if two attempts were alive at once.

    Around it `away`, the bucket's server, is stopped.
    """

    def __init__(self, job: TrainJob, fault: Fault, delay: float, away: subprocess.Popen[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._out, self._fault, self._delay, self._away = Path(job.out), fault, delay, away
        self._start_step = reached_step(self._out)
        # What the attempt before has left lies there until the next one begins.
        self._before = {place.pid for place in read_places(self._out).values()}
        self.began, self.double = 0.0, 0
        self._job = job
        self.start()

    def run(self) -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until:
            places = read_places(self._out)
            new = [place.step > self._start_step and place.pid not in self._before for place in places.values()]
            if len(new) == RANKS and all(new):
                break
            time.sleep(0.05)
        self.began = time.monotonic()
        time.sleep(self._delay)
        if self._away is not None:
            self._away.send_signal(signal.SIGSTOP)
            threading.Timer(AWAY_BEFORE_SECONDS + AWAY_AFTER_SECONDS, self._away.send_signal, [signal.SIGCONT]).start()
            time.sleep(AWAY_BEFORE_SECONDS)
        self.double = int(len(_agents(self._job)) > 1)
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            os.kill(self._fault.process(self._out), self._fault.number)


def _agents(job: TrainJob) -> list[int]:
    return [pid for pid, command in _processes(job).items() if "trainworthy.lifecycle.torchrun" in command]


def _processes(job: TrainJob) -> dict[int, str]:
    """Processes of the training that are alive, by pid: their command."""
    found = {}
    for process in psutil.process_iter(["cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or [])
        if f"{job.out}/" in command and process.info["status"] != psutil.STATUS_ZOMBIE:
            found[process.pid] = command
    return found


if __name__ == "__main__":
    main()
