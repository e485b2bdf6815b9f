"""Workers as jobs on a Ray cluster: one job for each worker, asked for by the address of Ray's dashboard.

Ray finds a node and holds its cores and GPUs; what runs there is on_node.py, which runs the worker as on this machine
and leaves how it ended on the storage that both see. So Ray's head is needed to begin. While it is away a worker trains
on, its end is known, and it can be ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.errors import PriceError
from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.folder_lock import is_free
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends.backend import LAUNCH_LOCK, Ended, Start, Watcher
from trainworthy.resources.backends.on_node import ALIVE, WANTED, NodeEnd, last_line, read_end
from trainworthy.resources.backends.ray_client import RayAwayError, RayClient, ray_address
from trainworthy.resources.backends.ray_jobs import (
    PENDING,
    STARTS,
    STDERR,
    STDOUT,
    JobSnapshot,
    Node,
    end_without_word,
    id_prefix,
    new_id,
    request,
)
from trainworthy.resources.backends.signs import Given, ObservedSign
from trainworthy.resources.settings import read_settings, resolved_variables

# Between two looks at a job.
LOOK_SECONDS = 1.0
# So long Ray's head and the worker may both be silent: a head that restarts is back by then.
PATIENCE_SECONDS = 300.0
# From the kill of a worker to a free lock of its folder.
GONE_SECONDS = 30.0
# From a worker's end to Ray's word of it.
SETTLE_SECONDS = 10.0
# A file of another machine may be seen so much later than Ray's word that its writer has ended.
LATE_SECONDS = 60.0
# Of the variables of this process these are handed on as they are, besides the project's folders.
HANDED_ON = ("TRAINWORTHY_SPOT_NOTICE",)


@dataclass(frozen=True)
class RayBackend:
    """Starts workers on the cluster at `address`, each on a node that has what `node` says.

    `memory_bytes` is what such a node is said to have, by its SKU; Ray does not bound what a worker uses of it.
    """

    address: str
    node: Node
    memory_bytes: int

    name = "ray"
    # The worker takes its own on its node: an earlier one that still runs keeps the next from training beside it.
    lock = LAUNCH_LOCK

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        """As Backend.run. Raises BackendError if Ray does not answer, or its node cannot begin."""
        ray, id = RayClient(self.address), new_id(start.job)
        out = Path(start.job.out)
        _end_earlier(ray, start, tell)
        folder = out / STARTS / id
        folder.mkdir(parents=True)
        wanted_sign = Given(folder / WANTED)
        wanted_sign.give()
        handed_on = resolved_variables(read_settings())
        handed_on |= {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        try:
            ray.submit(request(start, self.node, id, folder, handed_on, time.time()))
            return self._follow(ray, id, start, wanted_sign, watcher, tell)
        finally:
            wanted_sign.withdraw()
            if read_end(folder) is None and not _stop(ray, [id], out, start.grace_seconds):
                tell(f"the worker {id} may still be on its node of Ray; the next start ends it, or it ends by itself")
            _settle(ray, id, out)

    def _follow(
        self, ray: RayClient, id: str, start: Start, wanted_sign: Given, watcher: Watcher, tell: Callable[[str], None]
    ) -> Ended:  # fmt: skip
        """Wait for the worker's end, by what its node or else Ray says."""
        folder, submitted = Path(start.job.out) / STARTS / id, time.monotonic()
        following = _Following(ray, id, folder)
        announced: set[str] = set()

        def once(what: str, line: str) -> None:
            if what not in announced:
                announced.add(what)
                tell(line)

        with _copied(folder / STDOUT, start.output[0]) as copy_out, _copied(folder / STDERR, start.output[1]) as copy:
            while True:
                watcher.look()
                wanted_sign.give()
                ended = following.look()
                copy_out()
                copy()
                if "began" not in announced:
                    watcher.waited(time.monotonic() - submitted)
                    announced |= {"began"} if following.began else set()
                if ended is not None:
                    return ended
                if following.pending:
                    once("pending", f"waits for a node of Ray at {self.address} with {self.node.words(start.job)}")
                if following.away:
                    once("away", f"Ray at {self.address} does not answer ({following.away}); the worker may go on")
                time.sleep(LOOK_SECONDS)


class _Following:
    """What is known of one start: from its node's files, and from Ray."""

    def __init__(self, ray: RayClient, id: str, folder: Path) -> None:
        self._ray, self._id, self._folder = ray, id, folder
        self._alive, self._answered = ObservedSign(folder / ALIVE), time.monotonic()
        self.began, self.pending, self.away = False, False, ""

    def look(self) -> Ended | None:
        """How it ended; None while it waits, runs, or nobody can say."""
        job = self._job()
        silent = self._alive.silent_seconds()
        self.began = self.began or self._alive.there()
        if (end := read_end(self._folder)) is not None:
            return _as_ended(end)
        if job is None:
            silent = min(silent, time.monotonic() - self._answered)
            silence = f"neither Ray's head nor the worker gave a sign of life for {silent:.0f} s: {self.away}"
            return Ended(-signal.SIGKILL, MemorySeen(), seen=silence) if silent > PATIENCE_SECONDS else None
        self.pending = job.status == PENDING
        return self._without_word(job) if job.over else None

    def _job(self) -> JobSnapshot | None:
        try:
            job = self._ray.job(self._id)
        except RayAwayError as error:
            self.away = str(error)
            return None
        self._answered = time.monotonic()
        return job

    def _without_word(self, job: JobSnapshot) -> Ended:
        """The end of a job whose node has said nothing yet; where its command ended by itself, it will have."""
        until = time.monotonic() + (LATE_SECONDS if job.leaves_its_end else 0.0)
        while (end := read_end(self._folder)) is None and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        if end is not None:
            return _as_ended(end)
        self.began = self.began or self._alive.there()
        return end_without_word(job, self.began, last_line(self._folder / STDERR))


def _as_ended(end: NodeEnd) -> Ended:
    return Ended(end.exit_code, end.memory, end.seen)


def _end_earlier(ray: RayClient, start: Start, tell: Callable[[str], None]) -> None:
    """End what an earlier start of this job, whose starter is gone, has left on the cluster."""
    out = Path(start.job.out)
    for sign in (out / STARTS).glob(f"*/{WANTED}"):
        sign.unlink(missing_ok=True)
    running = [
        job.id for job in ray.jobs(id_prefix(start.job)) if not job.over and read_end(out / STARTS / job.id) is None
    ]
    for id in running:
        tell(f"an earlier start of this job is still on the cluster ({id}): it is ended first")
    if _stop(ray, running, out, start.grace_seconds):
        shutil.rmtree(out / STARTS, ignore_errors=True)


def _stop(ray: RayClient, ids: list[str], out: Path, grace_seconds: float) -> bool:
    """Ask for the end of jobs, and wait until nobody has the lock of their folder; False if that takes too long.

    They are no longer wanted, so what has begun ends by itself also where Ray is away, and what waits will not begin.
    """
    for id in ids:
        with contextlib.suppress(RayAwayError):
            ray.stop(id)
    until = time.monotonic() + grace_seconds + GONE_SECONDS
    # Whoever takes it from here on sees first that it is not wanted.
    while not is_free(out):
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_SECONDS / 5)
    return True


def _settle(ray: RayClient, id: str, out: Path) -> None:
    """Wait until what ran on the node is gone, and Ray knows of it: the node is free for the next worker only then."""
    until = time.monotonic() + SETTLE_SECONDS
    while not is_free(out) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS / 5)
    with contextlib.suppress(RayAwayError):
        while not (job := ray.job(id)).over and job.status != PENDING and time.monotonic() < until:
            time.sleep(LOOK_SECONDS / 5)


@contextlib.contextmanager
def _copied(path: Path, descriptor: int) -> Iterator[Callable[[], None]]:
    """A function that writes to the descriptor what has come to the file since the last time."""
    at = 0

    def copy() -> None:
        nonlocal at
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(at)
            while chunk := file.read(65_536):
                os.write(descriptor, chunk)
                at += len(chunk)

    try:
        yield copy
    finally:
        copy()


def ray_backend(compute: ComputeSpec) -> RayBackend:
    """Workers of a use case on the cluster of TRAINWORTHY_RAY_ADDRESS.

    A job takes a machine of its SKU: so many cores as prices.yaml says, else one for each process and loader, and one
    of the resource that is called as the SKU, so that what it costs is the price of where it ran. Raises SettingsError
    if no address is named, and PriceError.
    """
    sku = load_prices(read_settings().prices).sku(compute.sku)
    cpus = sku.cpus or compute.processes + (compute.loaders or 0)
    if sku.memory_gb is None:
        fix = f"enter memory_gb of {compute.sku} in prices.yaml: preflight holds a training against it"
        raise PriceError("compute.launcher: ray needs the memory of its nodes", value=compute.sku, fix=fix)
    node = Node(cpus=cpus, gpus=compute.gpus, resources={compute.sku: 1.0})
    return RayBackend(ray_address(), node, int(sku.memory_gb * 2**30))
