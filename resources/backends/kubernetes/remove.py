"""Ends a worker's Job and pods, and waits until they are gone: never two trainers at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends.kubernetes.api import Api, ConflictError
from trainworthy.resources.backends.kubernetes.manifest import selector
from trainworthy.resources.backends.kubernetes.patience import Time, patiently
from trainworthy.resources.backends.kubernetes.pods import owner_of

# How long a pod that was asked to end may take beyond its grace: a node that does not answer is given up by the cluster
# after five minutes.
GONE_SECONDS = 600.0
# How often it is asked whether they are gone, and after how long the wait is told.
GOING_SECONDS, TOLD_SECONDS = 0.5, 5.0


def remove(
    api: Api, name: str, uid: str | None, grace_seconds: int, clock: Time, tell: Callable[[str], None]
) -> None:  # fmt: skip
    """End the Job of the name and its pods: those of `uid`, None for all, also pods that a Job has left.

    Raises BackendError if they do not end, or the API stays away.
    """
    began, deleted_uids, announced = clock.now(), set[str](), False
    while left := patiently(lambda: list(_left(api, name, uid, deleted_uids, grace_seconds)), name, clock):
        waited = clock.now() - began
        if waited > grace_seconds + GONE_SECONDS:
            fix = (
                "see that its node is off, or its process gone; then kubectl delete --force each of them, and run "
                "again: two trainers at once would write each other's files"
            )
            raise BackendError("a worker's pod does not end", value=left, fix=fix)
        if waited > TOLD_SECONDS and not announced:
            tell(f"waits for the end of {', '.join(left)}")
            announced = True
        clock.sleep(GOING_SECONDS)


def _left(api: Api, name: str, uid: str | None, deleted_uids: set[str], grace_seconds: int) -> Iterator[str]:
    """What is still there; each is asked to end once, whose uid is then in `deleted_uids`."""
    job = api.job(name)
    if job is not None and uid in (None, job["metadata"]["uid"]):
        yield f"job {name}"
        if job["metadata"]["uid"] not in deleted_uids:
            with contextlib.suppress(ConflictError):
                api.delete_job(name, job["metadata"]["uid"])
            deleted_uids.add(job["metadata"]["uid"])
    for pod in api.pods(selector(name))[0]:
        metadata = pod["metadata"]
        if uid not in (None, owner_of(pod)):
            continue
        yield f"pod {metadata['name']}"
        # Of a Job that was deleted without its pods nobody else ends them.
        if metadata["uid"] not in deleted_uids and "deletionTimestamp" not in metadata:
            api.delete_pod(metadata["name"], grace_seconds)
            deleted_uids.add(metadata["uid"])
