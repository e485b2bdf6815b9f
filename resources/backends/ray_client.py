"""The door to Ray's dashboard: few calls with a limit of time, whose failures are told as ours.

Ray's own client waits for an answer for ever, and takes the address of RAY_API_SERVER_ADDRESS or RAY_ADDRESS in the
place of the one that it is given. The door adds a limit, and refuses to ask another cluster than the named one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from trainworthy.lifecycle.errors import BackendError, SettingsError
from trainworthy.resources.backends.ray_jobs import JobSnapshot
from trainworthy.resources.backends.ray_table import RayNode
from trainworthy.resources.settings import RAY_ADDRESS

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient  # pyright: ignore[reportMissingImports]

# Of one call; a head that is just starting takes seconds.
CALL_SECONDS = 15.0
# More nodes than these no answer of Ray's dashboard has; it tells 100 if it is not asked for more.
MOST_NODES = 10_000
Given = TypeVar("Given")


class RayAwayError(Exception):
    """Ray's head does not answer, or no longer knows the job."""


def ray_address() -> str:
    """The address of Ray's dashboard. Raises SettingsError if none is named, it is no http address, or has a user."""
    named = os.environ.get(RAY_ADDRESS, "").rstrip("/")
    fix = f"name the dashboard of Ray's head, with http:// and its port: {RAY_ADDRESS}=http://10.0.0.5:8265"
    if not named:
        raise SettingsError(f"compute.launcher: ray needs the address of a Ray cluster in {RAY_ADDRESS}", fix=fix)
    parts = urlsplit(named)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path:
        # A password may stand before the @.
        raise SettingsError("this is no address of Ray's dashboard", value=named.rpartition("@")[2], fix=fix)
    if "@" in parts.netloc:
        fix = f"{fix}; Ray's client takes a token from RAY_AUTH_TOKEN"
        raise SettingsError(f"{RAY_ADDRESS} names a user", value=named.rpartition("@")[2], fix=fix)
    return named


class RayClient:
    """The jobs and nodes of one cluster, each call of which has `seconds`.

    Making it raises SettingsError for what is set wrong, BackendError for no answer.
    """

    def __init__(self, address: str, seconds: float = CALL_SECONDS) -> None:
        try:
            from ray.job_submission import JobSubmissionClient  # pyright: ignore[reportMissingImports]
        except ImportError:
            fix = "pip install 'trainworthy[ray]', in the version of the cluster"
            raise SettingsError("compute.launcher: ray needs Ray, which is not installed", fix=fix) from None
        overriding = [name for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS") if os.environ.get(name)]
        if overriding:
            fix = f"unset {' and '.join(overriding)}, or start Dagster without"
            raise SettingsError(f"Ray would be asked by {overriding[0]}, not by {RAY_ADDRESS}", value=address, fix=fix)
        self._address, self._seconds = address, seconds
        try:
            self._client: JobSubmissionClient = self._within(lambda: JobSubmissionClient(address))
        except RayAwayError as error:
            fix = f"look whether Ray's head runs with its dashboard, and correct {RAY_ADDRESS}"
            raise BackendError(f"Ray does not answer: {error}", value=address, fix=fix) from None

    def version(self) -> str:
        """The cluster's version of Ray. Raises BackendError if Ray does not answer."""
        return self._answered(lambda: str(self._told("/api/version")["ray_version"]))

    def nodes(self) -> list[RayNode]:
        """The nodes that Ray knows, also those that are gone. Raises BackendError if Ray does not answer."""

        def ask() -> list[RayNode]:
            rows = self._told(f"/api/v0/nodes?limit={MOST_NODES}")["data"]["result"]["result"]
            return [RayNode(alive=row["state"] == "ALIVE", resources=row["resources_total"] or {}) for row in rows]

        return self._answered(ask)

    def submit(self, request: Mapping[str, Any]) -> None:
        """Add a job. Raises BackendError if Ray refuses it or does not answer."""
        try:
            self._within(lambda: self._client.submit_job(**request))
        except RayAwayError as error:
            fix = "look at Ray's head; run again"
            raise BackendError(f"Ray took no job: {error}", value=self._address, fix=fix) from None

    def job(self, id: str) -> JobSnapshot:
        """What Ray says of a job now. Raises RayAwayError."""
        return _snapshot_of(self._within(lambda: self._client.get_job_info(id)))

    def jobs(self, prefix: str) -> list[JobSnapshot]:
        """Those whose id begins so. Raises BackendError if Ray does not answer."""
        all_jobs = self._answered(self._client.list_jobs)
        return [_snapshot_of(job) for job in all_jobs if (job.submission_id or "").startswith(prefix)]

    def stop(self, id: str) -> None:
        """Ask for a job's end. Raises RayAwayError."""
        self._within(lambda: self._client.stop_job(id))

    def _told(self, path: str) -> dict[str, Any]:
        """What the dashboard says where Ray's client has no call of its own."""
        # By the client's way of asking, which sends the token as well.
        answer = self._client._do_request("GET", path)
        answer.raise_for_status()
        return answer.json()

    def _answered(self, call: Callable[[], Given]) -> Given:
        """What a call gives without which nothing can begin. Raises BackendError if it fails or takes too long."""
        try:
            return self._within(call)
        except RayAwayError as error:
            fix = "look at Ray's head; run again"
            raise BackendError(f"Ray does not answer: {error}", value=self._address, fix=fix) from None

    def _within(self, call: Callable[[], Given]) -> Given:
        return _within(call, self._seconds)


def _snapshot_of(job: JobDetails) -> JobSnapshot:
    error = job.error_type
    return JobSnapshot(
        id=job.submission_id or "",
        status=str(job.status.value),
        exit_code=job.driver_exit_code,
        error="" if error is None else str(getattr(error, "value", error)),
        message=job.message or "",
    )


def _within(call: Callable[[], Given], seconds: float) -> Given:
    """What a call of Ray's client gives. Raises RayAwayError if it fails, or has not answered in so many seconds."""
    given: list[Given] = []
    failed: list[Exception] = []

    def ask() -> None:
        try:
            given.append(call())
        # ConnectionError, an error of requests, or RuntimeError for any status but 200.
        except Exception as error:
            failed.append(error)

    # A daemon, which keeps no process from ending.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    if given:
        return given[0]
    if failed:
        said = str(failed[0]).partition("\n")[0][:200]
        raise RayAwayError(f"{type(failed[0]).__name__}: {said}".removesuffix(": "))
    raise RayAwayError(f"no answer in {seconds:.0f} s")
