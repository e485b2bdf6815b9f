"""Has a job of Ray gone, and knows when it is: by the lock of its folder, or on a road by Ray's word."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.folder_lock import is_free
from trainworthy.resources.backends.backend import Start
from trainworthy.resources.backends.on_node import OTHER_LOCKS, WANTED, read_end
from trainworthy.resources.backends.ray_client import RayAwayError, RayClient
from trainworthy.resources.backends.ray_jobs import PENDING, STARTS, JobSnapshot
from trainworthy.resources.backends.travel.places import LAST_SECONDS

# Between two looks whether it is gone.
LOOK_SECONDS = 0.2
# From the kill of a worker to a free lock of its folder, or to Ray's word of it.
GONE_SECONDS = 30.0
# From a worker's end to Ray's word of it.
SETTLE_SECONDS = 10.0


def all_free(out: Path) -> bool:
    """True if nothing of a worker is there, on none of its nodes."""
    return is_free(out) and all(is_free(out, path.name) for path in out.glob(OTHER_LOCKS))


def end_earlier(ray: RayClient, prefix: str, start: Start, tell: Callable[[str], None]) -> None:
    """End what an earlier start of this job, whose starter is gone, has left on the cluster."""
    out = Path(start.job.out)
    for sign in (out / STARTS).rglob(WANTED):
        sign.unlink(missing_ok=True)
    running = [job.id for job in ray.jobs(prefix) if not job.over and read_end(out / STARTS / job.id) is None]
    _tell_earlier(running, tell)
    if stop(ray, running, lambda: all_free(out), start.grace_seconds):
        shutil.rmtree(out / STARTS, ignore_errors=True)


def end_earlier_on_road(ray: RayClient, prefix: str, start: Start, tell: Callable[[str], None]) -> None:
    """The same of nodes whose locks nobody sees here: what ends them is Ray's word. Raises BackendError without it."""
    running = [job.id for job in ray.jobs(prefix) if not _is_over(job)]
    _tell_earlier(running, tell)
    if running and not stop(ray, running, lambda: over(ray, running), start.grace_seconds + LAST_SECONDS):
        fix = "see that its node is off, or its process gone (ray job list), then run again"
        raise BackendError("an earlier start of this job does not end on its node of Ray", value=running, fix=fix)
    shutil.rmtree(Path(start.job.out) / STARTS, ignore_errors=True)


def _tell_earlier(running: list[str], tell: Callable[[str], None]) -> None:
    for id in running:
        tell(f"an earlier start of this job is still on the cluster ({id}): it is ended first")


def over(ray: RayClient, ids: list[str]) -> bool:
    """True if Ray says that no job runs. One that still waits for a node finds there that nobody wants it."""
    try:
        return all(_is_over(ray.job(id)) for id in ids)
    except RayAwayError:
        return False


def _is_over(job: JobSnapshot) -> bool:
    return job.over or job.status == PENDING


def stop(ray: RayClient, ids: list[str], gone: Callable[[], bool], seconds: float) -> bool:
    """Ask for the end of jobs, and wait until they are gone; False if that takes longer than they have, and some more.

    They are no longer wanted, so what has begun ends by itself also where Ray is away, and what waits will not begin.
    """
    for id in ids:
        with contextlib.suppress(RayAwayError):
            ray.stop(id)
    until = time.monotonic() + seconds + GONE_SECONDS
    # Whoever takes a folder's lock from here on sees first that it is not wanted.
    while not gone():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def settle(ray: RayClient, id: str, gone: Callable[[], bool]) -> None:
    """Wait until what ran on the node is gone, and Ray knows of it: the node is free for the next worker only then."""
    until = time.monotonic() + SETTLE_SECONDS
    while not gone() and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    with contextlib.suppress(RayAwayError):
        while not _is_over(ray.job(id)) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
