"""Workers as jobs on a Ray cluster: one job for each worker, asked for by the address of Ray's dashboard.

Ray finds a node and holds its cores and GPUs; what runs there is on_node.py, which runs the worker as on this machine
and leaves how it ended on the storage that both see. So Ray's head is needed to begin. While it is away a worker trains
on, its end is known, and it can be ended.

Where both see no storage, a bucket keeps the job's folder alike at both places (travel/).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.errors import PriceError, SettingsError
from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.protocol.jobs import AnyJob, TrainJob, processes_of
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends.backend import LAUNCH_LOCK, Ended, Size, Start, Watcher
from trainworthy.resources.backends.meeting import folders, prepare
from trainworthy.resources.backends.on_node import ALIVE, STDERR, STDOUT, WANTED, NodeEnd, last_line, read_end
from trainworthy.resources.backends.ray_client import RayAwayError, RayClient, ray_address
from trainworthy.resources.backends.ray_ends import all_free, end_earlier, end_earlier_on_road, over, settle, stop
from trainworthy.resources.backends.ray_jobs import (
    HELD,
    PENDING,
    STARTS,
    SUCCEEDED,
    JobSnapshot,
    Node,
    end_without_word,
    id_prefix,
    new_id,
    request,
    stop_seconds,
    worker_name,
)
from trainworthy.resources.backends.ray_table import Elasticity, holding
from trainworthy.resources.backends.signs import Given, ObservedSign, Sign, kept_up
from trainworthy.resources.backends.travel.disk import MARK
from trainworthy.resources.backends.travel.journey import Journey
from trainworthy.resources.backends.travel.named import all_of, refuse_not_below
from trainworthy.resources.backends.travel.road import Road, road_of
from trainworthy.resources.settings import RAY_FOLDER, VAR, Settings, read_settings, resolved_variables

# Between two looks at a job.
LOOK_SECONDS = 1.0
# So long Ray's head and the worker may both be silent: a head that restarts is back by then.
PATIENCE_SECONDS = 300.0
# A file of another machine may be seen so much later than Ray's word that its writer has ended.
LATE_SECONDS = 60.0
HOW_TO = "docs/how-to/ray.md#without-a-common-storage"
# Of what a worker has written, bytes that are copied at a time.
CHUNK = 65_536
# Of the variables of this process these are handed on as they are, besides the project's folders.
HANDED_ON = ("TRAINWORTHY_SPOT_NOTICE",)


@dataclass(frozen=True)
class RayBackend:
    """Starts workers on the cluster at `address`, each on a node that has what `node` says.

    A training by several processes has them on so many `nodes`. `memory_bytes` is what each is said to have, by its
    SKU; Ray does not bound what a worker uses of it. With a `road` nodes share no storage with this machine: files come
    and go by a bucket. With `elasticity` a training has as many of them as there are.
    """

    address: str
    node: Node
    memory_bytes: int
    road: Road | None = None
    nodes: int = 1
    elasticity: Elasticity | None = None

    name = "ray"
    # The worker takes its own on its node: an earlier one that still runs keeps the next from training beside it.
    lock = LAUNCH_LOCK

    def run(self, start: Start, watcher: Watcher, tell: Callable[[str], None]) -> Ended:
        """As Backend.run. Raises BackendError if Ray does not answer, or its node cannot begin."""
        ray, out, prefix = RayClient(self.address), Path(start.job.out), id_prefix(start.job, self.road)
        folder = out / STARTS / new_id(prefix)
        if self.road is None:
            end_earlier(ray, prefix, start, tell)
            places = {folder, *folders(folder, self.nodes_of(start.job))}
            return self._run(ray, folder, start, [Given(place / WANTED) for place in places], watcher, tell)
        named = all_of(start.job)
        fix = f"move them below it, or name a folder above them in {RAY_FOLDER} ({HOW_TO})"
        refuse_not_below(self.road.root, named, f"not below {self.road.root}, which alone nodes are sent", fix)
        journey = Journey(self.road, worker_name(start.job, self.road), start, folder, tell)
        journey.end_earlier()
        end_earlier_on_road(ray, prefix, start, tell)
        with journey.under_way(named):
            return self._run(ray, folder, start, [journey.sign], watcher, tell, journey)

    def nodes_of(self, job: AnyJob) -> int:
        """How many nodes a job has."""
        if self.elasticity is not None and isinstance(job, TrainJob):
            return self.elasticity.nodes_of(job.processes)
        return self.nodes if processes_of(job) > 1 else 1

    def size_of(self, job: TrainJob, tell: Callable[[str], None]) -> Size:
        """As Elastic.size_of, by Ray's table of nodes. Raises BackendError if Ray does not answer.

        An equal rerun has as many as what it is held against.
        """
        if self.elasticity is None or job.stop_after_steps is not None:
            return Size(self.nodes_of(job), self.nodes, job.processes)
        table, bundle = RayClient(self.address).nodes(), self.node.bundle_of(job)
        size = self.elasticity.size(table, bundle)
        if size.machines < size.of:
            there = f"Ray has {holding(table, bundle)} alive with {self.node.words(job)}"
            by = f"by {size.processes} process{'es' * (size.processes > 1)}"
            tell(f"{job.stage}: trains on {size.machines} of {size.of} nodes {by}: {there}")
        return size

    def _run(
        self, ray: RayClient, folder: Path, start: Start, wanted_signs: Sequence[Sign], watcher: Watcher,
        tell: Callable[[str], None], journey: Journey | None = None,
    ) -> Ended:  # fmt: skip
        """Submit it, follow it to its end, and leave nothing."""
        id, out, nodes = folder.name, Path(start.job.out), self.nodes_of(start.job)
        prepare(folder, nodes)
        for place in {folder, *folders(folder, nodes)}:
            for name in (STDOUT, STDERR):
                # Streams that a journey adds to.
                (place / name).touch()
        handed_on = resolved_variables(read_settings())
        handed_on |= {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        gone = (lambda: all_free(out)) if journey is None else (lambda: read_end(folder) is not None or over(ray, [id]))
        try:
            with kept_up(*wanted_signs):
                ray.submit(request(start, self.node, id, folder, handed_on, time.time(), self.road, nodes))
                return self._follow(ray, id, start, watcher, tell, journey)
        finally:
            if read_end(folder) is None and not stop(ray, [id], gone, stop_seconds(start, self.road)):
                tell(f"the worker {id} may still be on its node of Ray; the next start ends it, or it ends by itself")
            settle(ray, id, gone)

    def _follow(
        self, ray: RayClient, id: str, start: Start, watcher: Watcher, tell: Callable[[str], None],
        journey: Journey | None,
    ) -> Ended:  # fmt: skip
        """Wait for the worker's end, by what its node or else Ray says."""
        folder, submitted, nodes = Path(start.job.out) / STARTS / id, time.monotonic(), self.nodes_of(start.job)
        following = _Following(ray, id, folder, journey, several=nodes > 1)
        announced: set[str] = set()

        def once(what: str, line: str) -> None:
            if what not in announced:
                announced.add(what)
                tell(line)

        with contextlib.ExitStack() as opened:
            copies = [
                opened.enter_context(_copied(place / name, descriptor, f"node {number}: " if number else ""))
                for number, place in enumerate(folders(folder, nodes))
                for name, descriptor in zip((STDOUT, STDERR), start.output, strict=True)
            ]
            while True:
                watcher.look()
                ended = following.look()
                for copy in copies:
                    copy()
                if "began" not in announced:
                    watcher.waited(time.monotonic() - submitted)
                    announced |= {"began"} if following.began else set()
                if ended is not None:
                    return ended
                if following.pending:
                    a_node, each = (f"{nodes} nodes", "each with") if nodes > 1 else ("a node", "with")
                    words = self.node.words(start.job)
                    once("pending", f"waits for {a_node} of Ray at {self.address} {each} {words}")
                if following.away:
                    once("away", f"Ray at {self.address} does not answer ({following.away}); the worker may go on")
                time.sleep(LOOK_SECONDS)


class _Following:
    """What is known of one start: from its node's files, which a journey fetches if there is one, and from Ray."""

    def __init__(
        self, ray: RayClient, id: str, folder: Path, journey: Journey | None = None, *, several: bool = False
    ) -> None:  # fmt: skip
        self._ray, self._id, self._folder, self._journey, self._several = ray, id, folder, journey, several
        self._alive = ObservedSign(folder / ALIVE) if journey is None else journey.alive()
        self._answered = time.monotonic()
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
        # The entry of several nodes runs while it waits for them.
        self.pending = job.status == PENDING or (self._several and not (self._folder / HELD).exists())
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
        late = LATE_SECONDS if job.leaves_its_end else 0.0
        if self._journey is not None:
            # What it has left is in the bucket before it ends.
            self._journey.arrived(succeeded=job.status == SUCCEEDED)
            late = 0.0
        until = time.monotonic() + late
        while (end := read_end(self._folder)) is None and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        if end is not None:
            return _as_ended(end)
        self.began = self.began or self._alive.there()
        return end_without_word(job, self.began, last_line(self._folder / STDERR))


def _as_ended(end: NodeEnd) -> Ended:
    return Ended(end.exit_code, end.memory, end.seen, end.cpu_seconds)


@contextlib.contextmanager
def _copied(path: Path, descriptor: int, prefix: str = "") -> Iterator[Callable[[], None]]:
    """A function that writes to the descriptor what has come to the file since the last time; a prefix to each line."""
    at, within_line = 0, False

    def copy(*, last: bool = False) -> None:
        nonlocal at, within_line
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(at)
            while chunk := file.read(CHUNK):
                if prefix and not last:
                    # By whole lines: else the end of one would follow the beginning of another node's. A line longer
                    # than this is told in parts.
                    ends = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
                    chunk = chunk[: ends or (len(chunk) if len(chunk) == CHUNK else 0)]
                    if not chunk:
                        return
                lines = chunk.splitlines(keepends=True) if prefix else [chunk]
                begun = [b"" if within_line and not place else prefix.encode() for place in range(len(lines))]
                os.write(descriptor, b"".join(start + line for start, line in zip(begun, lines, strict=True)))
                at, within_line = at + len(chunk), not chunk.endswith((b"\n", b"\r"))
                file.seek(at)

    try:
        yield copy
    finally:
        copy(last=True)


def ray_backend(compute: ComputeSpec) -> RayBackend:
    """Workers of a use case on the cluster of TRAINWORTHY_RAY_ADDRESS.

    A job takes a machine of its SKU: so many cores as prices.yaml says, else one for each process and loader, and one
    of the resource that is called as the SKU, so that what it costs is the price of where it ran. Raises SettingsError
    if no address is named, and PriceError.
    """
    settings = read_settings()
    sku = load_prices(settings.prices).sku(compute.sku)
    cpus = sku.cpus or compute.processes_each + (compute.loaders or 0)
    if sku.memory_gb is None:
        fix = f"enter memory_gb of {compute.sku} in prices.yaml: preflight holds a training against it"
        raise PriceError("compute.launcher: ray needs the memory of its nodes", value=compute.sku, fix=fix)
    node = Node(cpus=cpus, gpus=compute.gpus, resources={compute.sku: 1.0})
    least, road = compute.least_nodes, _road(compute, settings)
    elasticity = None if least is None else Elasticity(least, compute.nodes, compute.processes_each)
    return RayBackend(ray_address(), node, int(sku.memory_gb * 2**30), road, compute.nodes, elasticity)


def _road(compute: ComputeSpec, settings: Settings) -> Road | None:
    """By which nodes without a common storage get their files, None if they have one. Raises SettingsError."""
    named = os.environ.get(RAY_FOLDER)
    if not named:
        return None
    root = Path(named).resolve()
    if not Path(named).is_absolute() or not root.is_dir() or len(root.parts) == 1:
        fix = f"name the folder with the project by its whole path ({HOW_TO}), or unset it where nodes share that"
        raise SettingsError(f"{RAY_FOLDER} names no folder below /", value=named, fix=fix)
    if (mark := root / MARK).exists():
        fix = f"remove that file, or name another folder in {RAY_FOLDER}"
        raise SettingsError("a worker that comes to this machine would empty its project", value=str(mark), fix=fix)
    fix = f"name a folder above both in {RAY_FOLDER}, or move the state folder by {VAR}"
    own = {"the project": str(settings.project), "its state folder": str(settings.var)}
    refuse_not_below(root, own, f"not below {RAY_FOLDER}, which alone nodes are sent", fix)
    or_else = f"unset {RAY_FOLDER} where all nodes see that folder ({HOW_TO})"
    return road_of(compute, settings, root, f"{RAY_FOLDER} names a folder that nodes do not share", or_else)
