"""One worker from its submission to its end: followed through its pod, its log copied, and gone afterwards.

Its Job and pods are waited for until they are gone: never two trainers at once.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from pathlib import Path

from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.resources.backends.backend import Ended, Start, Watcher
from trainworthy.resources.backends.kubernetes.api import Api, AwayError, ConflictError
from trainworthy.resources.backends.kubernetes.cluster import Cluster
from trainworthy.resources.backends.kubernetes.ends import (
    IMAGE_FIX,
    LONGER_RUN,
    Refused,
    Runs,
    State,
    Waits,
    WorkerSnapshot,
    asked_to_end,
    first_asked,
    has_run,
    have_run,
    is_ending,
    is_over,
    ran_seconds,
    state_of,
    state_of_all,
)
from trainworthy.resources.backends.kubernetes.logs import LogCopy
from trainworthy.resources.backends.kubernetes.manifest import Json, selector
from trainworthy.resources.backends.kubernetes.patience import Time, patiently, pause
from trainworthy.resources.backends.kubernetes.pods import Pods, owner_of
from trainworthy.resources.backends.meeting import absent, folders, prepare
from trainworthy.resources.backends.node_ends import cpu_seconds_of, judged, node_of
from trainworthy.resources.backends.on_node import WANTED, read_end
from trainworthy.resources.backends.signs import Given, Sign, kept_up
from trainworthy.resources.backends.travel.journey import Journey

# How often a worker is looked at, whole seconds: as long as a watch is left open.
LOOK_SECONDS = 1
# How long a worker that is there goes on while nobody can ask for it.
AWAY_SECONDS = 3600.0
# How long trouble that may pass (a registry that is away) is given.
TROUBLE_SECONDS = 300.0
# From a pod's grace to giving up its node, which may be gone: what it last said stays as it was.
LOST_SECONDS = 300.0
# How often Jobs of one name that others make are removed for one's own.
CONFLICTS = 3
# How long a pod that was asked to end may take beyond its grace: a node that does not answer is given up by the cluster
# after five minutes.
GONE_SECONDS = 600.0
# How often it is asked whether they are gone, and after how long the wait is told.
GOING_SECONDS, TOLD_SECONDS = 0.5, 5.0


class Submitted:
    """One worker from its submission to its end; `folder` is that of its signs, beside those of earlier starts.

    With a `journey` its pod shares no volume with this machine.
    """

    def __init__(
        self, api: Api, manifest: Json, folder: Path, cluster: Cluster, start: Start, watcher: Watcher,
        tell: Callable[[str], None], clock: Time, journey: Journey | None = None,
    ) -> None:  # fmt: skip
        self._api, self._manifest, self._cluster, self._start = api, manifest, cluster, start
        self._folder, self._pods = folder, int(manifest["spec"]["completions"])
        self._watcher, self._tell, self._time, self._journey = watcher, tell, clock, journey
        self._grace = int(manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
        self._name = manifest["metadata"]["name"]
        self._submitted, self._began, self._began_at = clock.now(), False, math.inf
        # Whether the pods of one training have found each other.
        self._met = self._pods == 1
        # Unanswered requests in a row, and since when.
        self._failures, self._away_since = 0, 0.0
        # By the pod's name.
        self._logs: dict[str, LogCopy] = {}
        # Who asked for the end, from when that was known.
        self._end_cause = ""
        # What was told last of a wait, and of the log.
        self._last_lines = {"waits": "", "log": ""}

    def run(self) -> Ended:
        """Submit it, follow it to its end, and leave nothing."""
        self._end_earlier()
        uid = None
        prepare(self._folder, self._pods)
        signs: list[Sign] = [Given(folder / WANTED) for folder in folders(self._folder, self._pods)]
        signs = [self._journey.sign] if self._journey is not None else signs
        try:
            # By the storage, which the API's absence does not touch; and by a thread, since a request may wait for it.
            with kept_up(*signs):
                uid = self._submit()
                return self._follow(uid)
        finally:
            self._leave_nothing(uid)
            # Of a worker that was ended just now these are its last words.
            self._end_logs()

    def _end_earlier(self) -> None:
        """End what an earlier start has left, and have it gone."""
        for sign in self._folder.parent.rglob(WANTED):
            sign.unlink(missing_ok=True)
        self._remove(None)
        shutil.rmtree(self._folder.parent, ignore_errors=True)

    def _submit(self) -> str:
        """The uid of the Job. Those of its name that others make meanwhile are removed: never two trainers at once."""
        for _ in range(CONFLICTS):
            try:
                made = patiently(lambda: self._api.create_job(self._manifest), self._name, self._time)
            except ConflictError:
                # Of another launcher, or of a request whose answer was lost.
                self._remove(None)
            else:
                return made["metadata"]["uid"]
        fix = f"look who makes Jobs of the name {self._name}, and stop it"
        raise BackendError("another Job of this worker's name comes again and again", value=self._name, fix=fix)

    def _follow(self, uid: str) -> Ended:
        pods, trouble_since, ends_since = Pods(self._api, selector(self._name), uid), math.inf, math.inf
        while True:
            snapshots = self._look(pods, uid)
            if snapshots is None:
                if self._is_overtime() and not self._has_said_its_end():
                    raise self._overtime()
                continue
            states, waited = [state_of(snapshot) for snapshot in snapshots], self._time.now() - self._submitted
            if not self._began and have_run(snapshots):
                self._began, self._began_at = True, self._time.now()
                self._watcher.waited(
                    max(0.0, waited - min(ran_seconds(snapshot.pod) for snapshot in snapshots if snapshot.pod))
                )
            self._end_cause = (self._end_cause if self._began else "") or first_asked(snapshots)
            self._copy_logs(snapshots)
            match state_of_all(snapshots, states, began=self._began):
                case Ended():
                    return self._ended(snapshots, states)
                case Refused() as state:
                    raise BackendError(f"{self._name}: {state.problem}", value=self._where(snapshots), fix=state.fix)
                case Waits() as state:
                    trouble_since = min(trouble_since, self._time.now()) if state.trouble else math.inf
                    self._wait(state, waited, self._time.now() - trouble_since)
                case Runs():
                    # After the API was away its nodes may not have told it yet.
                    ends = is_ending(snapshots, states) or (self._is_overtime() and self._has_said_its_end())
                    ends_since = min(ends_since, self._time.now()) if ends else math.inf
                    if self._began and all(isinstance(state, Runs) for state in states) and not ends:
                        self._expect_to_meet(snapshots)
                    if self._is_overtime() and not ends:
                        raise self._overtime()
                    if self._time.now() - ends_since > self._grace + LOST_SECONDS:
                        # A node that is gone says of its containers no more than it last did.
                        return self._ended(snapshots, states)
            self._watcher.look()

    def _ended(self, snapshots: list[WorkerSnapshot], states: list[State]) -> Ended:
        """How it ended; what has not is given up."""
        if self._journey is not None:
            self._journey.arrived(succeeded=all(isinstance(state, Ended) and state.exit_code == 0 for state in states))
        # Before the pods are removed, and their logs with them.
        self._end_logs(
            {snapshot.pod["metadata"]["name"] for snapshot in snapshots if snapshot.pod and is_over(snapshot.pod)}
        )
        ends = [
            state if isinstance(state, Ended) else asked_to_end(snapshot)
            for snapshot, state in zip(snapshots, states, strict=True)
        ]
        words = [read_end(folder) for folder in folders(self._folder, self._pods)]
        return replace(judged(ends, words, self._end_cause), cpu_seconds=cpu_seconds_of(words))

    def _look(self, pods: Pods, uid: str) -> list[WorkerSnapshot] | None:
        """What the cluster says now of each pod, after LOOK_SECONDS if nothing happens; None if it does not answer."""
        try:
            pods.look(LOOK_SECONDS)
            job = self._api.job(self._name)
            snapshots = [WorkerSnapshot(uid, job, *pods.newest(index)) for index in range(self._pods)]
            if self._cluster.queue is not None and not all(
                isinstance(state_of(snapshot), Runs) for snapshot in snapshots
            ):
                workloads = self._api.workloads(uid)
                snapshots = [replace(snapshot, workloads=workloads) for snapshot in snapshots]
        except (AwayError, BackendError) as error:
            if isinstance(error, BackendError) and not self._began:
                raise
            self._bear_with(error)
            return None
        if self._failures > 1:
            self._tell(f"the cluster answers again about {self._name}")
        self._failures = 0
        return snapshots

    def _bear_with(self, error: AwayError | BackendError) -> None:
        """Wait for a cluster that does not answer. Raises BackendError when it did not for too long."""
        self._away_since = self._away_since if self._failures else self._time.now()
        self._failures += 1
        away = self._time.now() - self._away_since
        if self._failures == 2:
            # One alone is a connection that was closed, and is made again.
            self._tell(f"the cluster does not answer about {self._name}, which goes on: {error}")
        if away > AWAY_SECONDS:
            fix = "once it answers, run again: what is left of this worker is ended first, and a training resumes"
            problem = f"the cluster did not answer about {self._name} for {away / 60:.0f} min: {error}"
            raise BackendError(problem, value=self._name, fix=fix)
        pause(error, self._time)
        self._watcher.look()

    def _wait(self, state: Waits, waited: float, trouble: float) -> None:
        self._watcher.waited(waited)
        self._say("waits", f"{self._name} waits: {state.what}")
        if trouble > TROUBLE_SECONDS:
            raise BackendError(f"{self._name}: {state.what}", value=f"for {trouble:.0f} s", fix=IMAGE_FIX)
        if waited > self._cluster.queue_timeout_seconds:
            fix = "free what it waits for, or a larger queue_timeout_seconds in kubernetes.yaml"
            problem = f"{self._name} has not begun within queue_timeout_seconds: {state.what}"
            raise BackendError(problem, value=self._cluster.queue_timeout_seconds, fix=fix)

    def _is_overtime(self) -> bool:
        """True once all pods have run for longer than they may: a wait of one for another is none."""
        return self._time.now() - self._began_at > self._cluster.run_timeout_seconds

    def _has_said_its_end(self) -> bool:
        """True if the first pod, whose word is that of all, has left how it ended, whatever the API knows of it."""
        return read_end(folders(self._folder, self._pods)[0]) is not None

    def _overtime(self) -> BackendError:
        problem, seconds = "the worker had no answer within run_timeout_seconds", self._cluster.run_timeout_seconds
        return BackendError(f"{self._name}: {problem}", value=seconds, fix=LONGER_RUN)

    def _expect_to_meet(self, snapshots: list[WorkerSnapshot]) -> None:
        """Raises BackendError if all pods run, and have not found each other for as long as a rank waits for another.

        Their agents, which would end by themselves, begin after that.
        """
        job = self._start.job
        if self._met or not isinstance(job, TrainJob):
            return
        missing, seconds = absent(self._folder, self._pods), job.collective_timeout_seconds
        self._met = not missing
        if missing and self._time.now() - self._began_at > seconds:
            fix = (
                f"see by kubectl logs and describe what keeps them from writing below {self._folder}, then run again; "
                "or a larger compute.collective_timeout_seconds"
            )
            waits_for = ", ".join(node_of(number, snapshots) for number in missing)
            problem = f"{self._where(snapshots)}: its pods run, and wait for an address of {waits_for}"
            raise BackendError(problem, value=f"for {seconds:g} s", fix=fix)

    def _copy_logs(self, snapshots: list[WorkerSnapshot]) -> None:
        """Follow the log of each pod that runs or has run; those of nodes after the first by their number."""
        for number, pod in enumerate(snapshot.pod for snapshot in snapshots):
            if pod is None or not has_run(pod):
                continue
            name = pod["metadata"]["name"]
            if name not in self._logs:
                self._logs[name] = LogCopy(self._api, name, self._start.output[0], f"node {number}: " * (number > 0))
            elif self._logs[name].trouble:
                line = f"the log of {name} cannot be read, and the worker goes on: {self._logs[name].trouble}"
                self._say("log", line)

    def _end_logs(self, of: Container[str] | None = None) -> None:
        """Read to the end what pods have written, all or some by their names."""
        for name, log in self._logs.items():
            if of is None or name in of:
                log.end()

    def _leave_nothing(self, uid: str | None) -> None:
        """Remove it, whatever it ended by; what cannot be removed is told, and ended before the next start."""
        try:
            self._remove(uid)
        except BackendError as error:
            self._tell(f"what is left of {self._name} could not be removed; {error}")

    def _remove(self, uid: str | None) -> None:
        remove(self._api, self._name, uid, self._grace, self._time, self._tell)

    def _say(self, about: str, line: str) -> None:
        """Once, and again when it changes."""
        if line != self._last_lines[about]:
            self._last_lines[about] = line
            self._tell(line)

    def _where(self, snapshots: list[WorkerSnapshot]) -> str:
        pods = [snapshot.pod["metadata"]["name"] for snapshot in snapshots if snapshot.pod is not None]
        return f"{self._cluster.namespace}/{self._name} ({', '.join(pods) or 'no pod'})"


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
