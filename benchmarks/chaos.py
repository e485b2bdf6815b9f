"""Two ranks whose processes and pods are killed, stopped and removed at random: is the end the same, the cause told?

A training by `compute.launcher: torchrun`, and one by two pods of a scripted cluster, are hit by a fault some seconds
after the first new update since the last, go on from their newest checkpoint, and are hit again; then they are let to
their end. Their weights have to be those of a quiet run bit for bit. Which faults there are chaos_faults.py says; they
are drawn by seed. Checkpoints are copied to a bucket, whose server answers nobody for some seconds around every second
fault. Looked at after each: which cause is told and whose, and whether a process of the attempt lives on; all the
time, whether more ranks are alive than one attempt has; at the end, whether the bucket has the newest checkpoint.
Goodput is the share of all seconds that went into updates which the ends hold.

    make bench NAME=chaos         60 faults, about 30 minutes; ARGS="--faults 200" for more
"""

from __future__ import annotations

import contextlib
import functools
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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.chaos_cluster import Kube, pods_of_ranks, scripted_cluster
from benchmarks.chaos_faults import FAULTS, RANKS, Fault, Target
from benchmarks.rank_jobs import rank_job
from benchmarks.result import arguments, begin, finish, hardware
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.durable.place import stores_of
from trainworthy.lifecycle.storage.rank_files import read_places
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.settings import PRODUCT
from trainworthy.resources.worker_process import run_worker

TARGETS = {
    "lost_faults": 0.0, "differing_ends": 0.0, "orphans": 0.0, "double_trainers": 0.0, "wrong_cause_share": 0.05,
    "bucket_behind": 0.0,
}  # fmt: skip
BUCKET = "copies"
# The bucket's server is away from so long before a fault to so long after it: also while the next attempt begins.
AWAY_BEFORE_SECONDS, AWAY_AFTER_SECONDS = 1.0, 8.0
# A rank that hangs is found after so long.
TIMEOUT_SECONDS = 20.0
# The first new update of an attempt is waited for so long.
UPDATE_SECONDS = 300.0
# Of each update of a training that is hit, so that some time passes between two faults. The quiet run has none.
PAUSE_SECONDS = 0.1
# A fault comes within 160 updates of the last, after 100 in the mean.
UPDATES_A_FAULT, UPDATES_MORE = 120, 160


class Hit(NamedTuple):
    """A fault and what followed: the cause that was told, its words, and how many processes lived on."""

    fault: Fault
    cause: str
    told: str
    left: int

    @property
    def right(self) -> bool:
        """True if the cause is the true one, and whose it is told where that is known."""
        return self.cause == self.fault.cause and self.fault.told in self.told


class Outcome(NamedTuple):
    """What a training came to: its hits, how long the next new update took after each, and what is in doubt of it."""

    hits: list[Hit]
    recoveries: list[float]
    doubles: int
    left: int
    differs: bool
    bucket_behind: bool
    seconds: float
    update_seconds: float

    @property
    def told(self) -> str:
        """All but the hits, in a line."""
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items() if name != "hits")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--only", default="", help="faults with this in their name or launcher, as kubernetes")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begin(asked.short)
    delays, updates = ((0.2, 0.5), (16, 32)) if asked.short else ((5.0, 15.0), (UPDATES_A_FAULT, UPDATES_MORE))
    every = [(launcher, fault) for launcher, faults in FAULTS.items() for fault in faults]
    every = [(launcher, fault) for launcher, fault in every if asked.only in f"{launcher}: {fault.name}"]
    generator = random.Random(asked.seed)
    if asked.short:
        drawn = [(launcher, faults[-1]) for launcher, faults in FAULTS.items()]
    else:
        drawn = list(itertools.islice(itertools.cycle(every), asked.faults))
        generator.shuffle(drawn)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PRODUCT)}
    with tempfile.TemporaryDirectory() as name, bucket_server() as server, scripted_cluster(Path(name)) as kube:
        folder = Path(name)
        chaos, outcomes = Chaos(kube, server, delays, updates, generator), list[Outcome]()
        for launcher in dict.fromkeys(launcher for launcher, _ in drawn):
            outcome = _chaos(folder, launcher, [fault for other, fault in drawn if other == launcher], chaos)
            print(f"{launcher}: {outcome.told}", flush=True)
            outcomes.append(outcome)
        _report(outcomes, len(drawn), asked.short)


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


class Chaos(NamedTuple):
    """What trainings are hit with: the cluster, the bucket's server, and when faults come, in seconds, by draws.

    `updates` are those of a training for each fault, and beside that.
    """

    kube: Kube
    server: subprocess.Popen[bytes]
    delays: tuple[float, float]
    updates: tuple[int, int]
    generator: random.Random


def _chaos(folder: Path, launcher: str, faults: list[Fault], chaos: Chaos) -> Outcome:
    updates = chaos.updates[0] * len(faults) + chaos.updates[1]
    make = {"processes": RANKS, "updates": updates, "width": 16, "layers": 1, "every_steps": 16}
    quiet = rank_job(folder / "quiet", launcher, timeout_seconds=TIMEOUT_SECONDS, **make)
    job = rank_job(folder / "hit", launcher, timeout_seconds=TIMEOUT_SECONDS, pause=PAUSE_SECONDS, **make)
    expected = run_worker(quiet)
    assert isinstance(expected, TrainResult)
    copied = job.interruptions.model_copy(update={"durable": f"s3://{BUCKET}/{launcher}"})
    job = job.model_copy(update={"interruptions": copied})
    run = functools.partial(run_worker, job, backend=LOCAL if launcher == "torchrun" else pods_of_ranks(folder, RANKS))
    hits, recoveries, ended_at, began = list[Hit](), list[float](), 0.0, time.monotonic()
    with Census(job) as census:
        for number, fault in enumerate(faults):
            away = chaos.server if number % 2 == 0 else None
            target = Target(Path(job.out), chaos.kube)
            hitter = _Hitter(job, target, fault, chaos.generator.uniform(*chaos.delays), away)
            try:
                run()
                break
            except WorkerError as caught:
                error, alive = caught, set(_processes(job))
            finally:
                hitter.end()
            since, ended_at = ended_at, time.monotonic()
            if not hitter.hit:
                print(f"    {fault.name:32} NOT HIT, the attempt ended by itself: {error}", flush=True)
                continue
            if since:
                recoveries.append(hitter.began - since)
            left = hitter.pids & alive
            hits.append(Hit(fault, error.cause, error.problem, len(left)))
            print(f"{len(hits):3d} {fault.name:32} {'bucket away' if away else '':12}{hits[-1].cause:10} "
                  f"{'' if hits[-1].right else 'WRONG: '}{hits[-1].told[:110]}"
                  f"{f' LEFT: {left}' if left else ''}", flush=True)  # fmt: skip
        result = run()
        assert isinstance(result, TrainResult)
    own, copies = stores_of(job)
    return Outcome(
        hits, recoveries, census.doubles, len(_processes(job)), result.parameters_sha256 != expected.parameters_sha256,
        own.names()[:1] != copies.names()[:1], time.monotonic() - began,
        result.steps * (PAUSE_SECONDS + (expected.seconds.compute + expected.seconds.data) / expected.steps),
    )  # fmt: skip


def _report(outcomes: list[Outcome], count: int, short: bool) -> None:
    hits = [hit for outcome in outcomes for hit in outcome.hits]
    recoveries = [seconds for outcome in outcomes for seconds in outcome.recoveries]
    seconds = sum(outcome.seconds for outcome in outcomes)
    figures = {
        "faults": len(hits),
        "lost_faults": count - len(hits),
        "differing_ends": sum(outcome.differs for outcome in outcomes),
        "orphans": sum(hit.left for hit in hits) + sum(outcome.left for outcome in outcomes),
        "double_trainers": sum(outcome.doubles for outcome in outcomes),
        "wrong_cause_share": sum(not hit.right for hit in hits) / max(1, len(hits)),
        "bucket_behind": sum(outcome.bucket_behind for outcome in outcomes),
        "recovery_seconds": statistics.median(recoveries) if recoveries else seconds,
        "goodput": sum(outcome.update_seconds for outcome in outcomes) / seconds,
    }
    for what, value in figures.items():
        print(f"{what:24}{value:10.3f}")
    print(hardware())
    finish("chaos", figures, TARGETS, short=short, zero_allowed=tuple(TARGETS))


class _Hitter(threading.Thread):
    """Does a fault so many seconds after the first new update; `pids` are the attempt's processes just before.

    Around it `away`, the bucket's server, is stopped. `hit` is False where no attempt of live ranks came to be hit.
    """

    def __init__(
        self, job: TrainJob, target: Target, fault: Fault, delay: float, away: subprocess.Popen[bytes] | None
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._job, self._target, self._fault, self._delay, self._away = job, target, fault, delay, away
        self._start_step = reached_step(target.out)
        # What the attempt before has left lies there until the next one begins.
        self._before = self._ranks()
        self._over = threading.Event()
        self._error: Exception | None = None
        self.began, self.pids, self.hit = 0.0, set[int](), False
        self.start()

    def end(self) -> None:
        """The attempt is over: wait for what is being done, and raise what went wrong with it."""
        self._over.set()
        self.join()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        try:
            self._hit_when_it_trains()
        except Exception as error:
            self._error = error

    def _hit_when_it_trains(self) -> None:
        while True:
            ranks = self._wait_for_updates()
            self.began = time.monotonic()
            if ranks is None or self._over.wait(self._delay):
                return
            # Pods of a Job that was made anew may train until the next start removes them.
            if ranks == self._ranks() and ranks <= set(_processes(self._job)):
                break
        if self._away is not None:
            self._away.send_signal(signal.SIGSTOP)
            threading.Timer(AWAY_BEFORE_SECONDS + AWAY_AFTER_SECONDS, self._away.send_signal, [signal.SIGCONT]).start()
            time.sleep(AWAY_BEFORE_SECONDS)
        self.pids = set(_processes(self._job))
        # A pid of a rank that is gone may be another process's.
        if ranks <= self.pids:
            self.hit = True
            self._fault.do(self._target)

    def _wait_for_updates(self) -> set[int] | None:
        """The ranks once each has made a new update; None if they do not, or the attempt is over before."""
        until = time.monotonic() + UPDATE_SECONDS
        while time.monotonic() < until and not self._over.wait(0.05):
            places = read_places(self._target.out).values()
            new = [place.step > self._start_step and place.pid not in self._before for place in places]
            if len(new) == RANKS and all(new):
                return {place.pid for place in places}
        return None

    def _ranks(self) -> set[int]:
        return {place.pid for place in read_places(self._target.out).values()}


class Census(threading.Thread):
    """Counts all the time the ranks that are alive; `doubles` is how often there were more than one attempt has."""

    def __init__(self, job: TrainJob) -> None:
        super().__init__(daemon=True)
        self._job, self._over, self.doubles, self.looks = job, threading.Event(), 0, 0

    def __enter__(self) -> Census:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.5):
            ranks = [pid for pid, command in _processes(self._job).items() if "trainworthy.lifecycle.worker" in command]
            if len(ranks) > RANKS:
                self.doubles += 1
                print(f"    {len(ranks)} ranks at once: {ranks}", flush=True)
            self.looks += 1


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
