"""What a cluster's words about a worker mean: it waits, it runs, it ended, or it cannot go on. Pure.

A Job, its newest pod and Kueue's Workload come in as the API tells them. The pod's container has the last word, since
it alone knows an exit code; where a pod is gone without one, it was asked to end, as a preempted machine is.

Pods of one training are its nodes (../meeting.py). The agent of the first one judges the end of all (rank_ends.py), and
its exit code is the training's, if it is given the time. What was done to the pods, the first one too, the cluster
tells.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.resources.backends.backend import SIGNALLED, Ended
from trainworthy.resources.backends.kubernetes.manifest import CONTAINER
from trainworthy.resources.backends.node_ends import node_of

Json = dict[str, Any]
# Reasons of a container that waits: which no time mends, and which a registry or a node that is busy causes as well.
NEVER = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
PULLS = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable")
MAKES = ("CreateContainerError", "RunContainerError")
# Of a container that ended and had not begun.
NOT_BEGUN = ("StartError", "ContainerCannotRun")
# What a worker without a pod waits for.
POD_IS_MADE = "the cluster makes its pod"
# What the kubelet tells with a signal that it sends; the code alone would not say who sent it.
_SENT = (SIGNALLED + signal.SIGTERM, SIGNALLED + signal.SIGKILL)


@dataclass(frozen=True)
class WorkerSnapshot:
    """What the cluster says of the worker of the Job `uid`.

    `job` is None if there is none of its name, `pod` the newest of its own, as it was last seen, None before there is
    one; `deleted` says that it is there no more. `workloads` are Kueue's of the Job.
    """

    uid: str
    job: Json | None
    pod: Json | None
    deleted: bool = False
    workloads: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Waits:
    """It has not begun: `what` it waits for. `trouble`: what will not pass by itself, if it lasts."""

    what: str
    trouble: bool = False


@dataclass(frozen=True)
class Runs:
    """Its container runs."""


@dataclass(frozen=True)
class Refused:
    """It cannot begin or go on: `problem` says what of, in the cluster's words."""

    problem: str
    fix: str


State = Waits | Runs | Refused | Ended


def state_of(snapshot: WorkerSnapshot) -> State:
    """In which state the worker is."""
    if snapshot.pod is not None:
        state = _state_of_pod(snapshot.pod, snapshot)
        if state is not None:
            return state
    if not owns(snapshot):
        return asked_to_end(snapshot)
    assert snapshot.job is not None
    if snapshot.pod is not None and not snapshot.deleted:
        return _begins(snapshot.pod)
    if snapshot.pod is not None and has_run(snapshot.pod):
        return Ended(0, MemorySeen()) if _condition(snapshot.job, "Complete") else asked_to_end(snapshot)
    failed = _failed(snapshot.job)
    if failed is not None:
        return _deadline(failed) if failed.get("reason") == "DeadlineExceeded" else asked_to_end(snapshot)
    if is_suspended(snapshot):
        return queued(snapshot)
    return Waits(POD_IS_MADE)


def asked_to_end(snapshot: WorkerSnapshot) -> Ended:
    """An end that somebody asked for, and how that is known."""
    return Ended(-signal.SIGTERM, MemorySeen(), who_asked(snapshot) or "its pod is gone, and nothing says why")


def owns(snapshot: WorkerSnapshot) -> bool:
    """True while the Job is there that the worker was started by; one of its name may be another's."""
    return snapshot.job is not None and snapshot.job["metadata"]["uid"] == snapshot.uid


def is_final(snapshot: WorkerSnapshot) -> bool:
    """True once its Job has failed or is complete: no pod of it is made again, also if it is suspended."""
    return owns(snapshot) and (_failed(snapshot.job) or _condition(snapshot.job, "Complete")) is not None


def is_suspended(snapshot: WorkerSnapshot) -> bool:
    """True while Kueue has not admitted its Job, or no longer."""
    return owns(snapshot) and bool((snapshot.job or {}).get("spec", {}).get("suspend"))


def queued(snapshot: WorkerSnapshot) -> Waits:
    """It waits to be admitted, in Kueue's words."""
    return Waits(f"queued by Kueue{_colon(_queued(snapshot.workloads))}")


def is_leaving(snapshot: WorkerSnapshot) -> bool:
    """True once somebody has asked for the end of its pod, which its node has to carry out."""
    return bool((snapshot.pod or {}).get("metadata", {}).get("deletionTimestamp"))


def has_run(pod: Json) -> bool:
    """True once its container has begun."""
    state = _container(pod).get("state", {})
    ended = state.get("terminated")
    return "running" in state or (ended is not None and ended.get("reason") not in NOT_BEGUN)


def is_over(pod: Json) -> bool:
    """True once its container has ended."""
    return "terminated" in _container(pod).get("state", {})


def ran_seconds(pod: Json) -> float:
    """How long its ended container had run, by the node's clock; 0 for one that runs or has told no times."""
    ended = _container(pod).get("state", {}).get("terminated") or {}
    try:
        began, end = (_time(ended[name]) for name in ("startedAt", "finishedAt"))
    except (KeyError, ValueError, TypeError):
        return 0.0
    return max(0.0, (end - began).total_seconds())


def who_asked(snapshot: WorkerSnapshot) -> str:
    """Who asked the worker to end, as half a sentence; "" if nobody is known to."""
    evicted = next((condition for load in snapshot.workloads if (condition := _condition(load, "Evicted"))), None)
    if evicted is not None:
        return f"Kueue evicted it ({evicted.get('reason', '')}){_colon(evicted.get('message'))}"
    disrupted = _condition(snapshot.pod, "DisruptionTarget")
    if disrupted is not None:
        return f"the cluster ended its pod ({disrupted.get('reason', '')}){_colon(disrupted.get('message'))}"
    status = (snapshot.pod or {}).get("status", {})
    if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "Shutdown", "NodeShutdown", "Terminated"):
        return f"the node ended its pod ({status['reason']}){_colon(status.get('message'))}"
    if snapshot.job is None:
        return "its Job was deleted"
    if not owns(snapshot):
        return "its Job was deleted, and another of its name made"
    if snapshot.job.get("spec", {}).get("suspend"):
        return "its Job was suspended"
    if snapshot.deleted or is_leaving(snapshot):
        return "its pod was deleted"
    return ""


def _state_of_pod(pod: Json, snapshot: WorkerSnapshot) -> State | None:
    """None where the pod does not decide."""
    status, container = pod.get("status", {}), _container(pod)
    ended = container.get("state", {}).get("terminated")
    if status.get("reason") == "DeadlineExceeded" and (ended is None or ended.get("exitCode") != 0):
        return _deadline(status)
    if ended is not None:
        return _ended(ended, snapshot)
    if status.get("phase") == "Failed":
        # The node took the pod and gave it up before its container could tell of itself.
        reason = f"{status.get('reason', 'Failed')}{_colon(status.get('message'))}"
        return Ended(-signal.SIGTERM, MemorySeen(), who_asked(snapshot) or f"the node ended its pod ({reason})")
    if snapshot.deleted or not owns(snapshot):
        return None
    return Runs() if "running" in container.get("state", {}) else None


def _ended(ended: Json, snapshot: WorkerSnapshot) -> State:
    """A container's end: its exit code, unless that is only the signal that somebody sent it."""
    code, reason = int(ended.get("exitCode", 0)), ended.get("reason", "")
    if reason in NOT_BEGUN:
        fix = "correct image of kubernetes.yaml: it needs python on its PATH, and Trainworthy with its packages"
        return Refused(f"the container cannot start: {reason}{_colon(ended.get('message'))}", fix)
    memory = MemorySeen(kernel_kills=1, counted_in="its container") if reason == "OOMKilled" else MemorySeen()
    cause = who_asked(snapshot) if code else ""
    if cause and code in _SENT and reason != "OOMKilled":
        return Ended(-signal.SIGTERM, memory, cause)
    return Ended(SIGNALLED - code if code > SIGNALLED else code, memory, cause)


def _begins(pod: Json) -> State:
    """What a pod waits for that has not begun."""
    waiting = _container(pod).get("state", {}).get("waiting", {})
    reason, detail = waiting.get("reason", ""), _colon(waiting.get("message"))
    if reason in NEVER:
        return Refused(f"its container cannot be made: {reason}{detail}", IMAGE_FIX)
    if reason in PULLS:
        return Waits(f"the image cannot be pulled: {reason}{detail}", trouble=True)
    if reason in MAKES:
        return Waits(f"its container cannot be made: {reason}{detail}", trouble=True)
    scheduled = next(
        (condition for condition in pod.get("status", {}).get("conditions", []) if condition["type"] == "PodScheduled"),
        {},
    )
    if scheduled.get("status") == "False":
        return Waits(f"no node takes its pod ({scheduled.get('reason', '')}){_colon(scheduled.get('message'))}")
    if not _container(pod):
        return Waits("a node for its pod")
    return Waits("the node makes its container, and pulls the image where it lacks it")


# What to do about an image or a container that cannot be had.
IMAGE_FIX = "correct image of kubernetes.yaml, or the right to pull it (imagePullSecrets of the service account)"
# What to do about a worker that may run no longer.
LONGER_RUN = "a larger run_timeout_seconds in kubernetes.yaml, then run again: a training resumes"


def _deadline(status: Json) -> Refused:
    problem = f"the worker had no answer within run_timeout_seconds{_colon(status.get('message'))}"
    return Refused(problem, LONGER_RUN)


def _queued(workloads: Iterable[Json]) -> str:
    """Kueue's words about a Workload that waits: of its quota, else of its eviction."""
    for load in workloads:
        for condition in load.get("status", {}).get("conditions", []):
            if (
                condition["type"] in ("QuotaReserved", "Admitted")
                and condition.get("status") == "False"
                and condition.get("message")
            ):
                return str(condition["message"])
    return ""


def _container(pod: Json) -> Json:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((status for status in statuses if status["name"] == CONTAINER), {})


def _condition(thing: Json | None, kind: str) -> Json | None:
    """A condition that holds."""
    conditions = (thing or {}).get("status", {}).get("conditions") or []
    return next(
        (condition for condition in conditions if condition["type"] == kind and condition.get("status") == "True"), None
    )


def _failed(job: Json | None) -> Json | None:
    """The condition by which a Job has failed, or is about to."""
    return _condition(job, "Failed") or _condition(job, "FailureTarget")


def _colon(message: object) -> str:
    return f": {' '.join(str(message).split())}" if message else ""


def _time(text: str) -> datetime:
    """A time as the API writes it; Python reads microseconds at most."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text).replace("Z", "+00:00"))


def have_run(snapshots: Sequence[WorkerSnapshot]) -> bool:
    """True once the container of each has begun; of several, while none of them is gone or leaves.

    One that leaves may be taken back, and what a node says then of a container that never was looks like an end.
    """
    several = len(snapshots) > 1
    return all(
        snapshot.pod is not None
        and has_run(snapshot.pod)
        and not (several and (snapshot.deleted or is_leaving(snapshot)))
        for snapshot in snapshots
    )


def state_of_all(snapshots: Sequence[WorkerSnapshot], states: Sequence[State], *, began: bool) -> State:
    """In which state the whole is; `began`: all pods had run at once. How it ended `judged` says (../node_ends.py).

    Of several it has ended only when none runs any more: the first may have to tell the end yet.
    """
    if len(states) == 1:
        return states[0]
    if not began and not is_final(snapshots[0]):
        # Kueue takes back what has not begun, and all of it comes again.
        if is_suspended(snapshots[0]):
            return queued(snapshots[0])
        states = [_made_again(snapshot, state) for snapshot, state in zip(snapshots, states, strict=True)]
    for at, state in enumerate(states):
        if isinstance(state, Refused):
            return Refused(f"{node_of(at, states)}: {state.problem}", state.fix)
    if ended := one_has_failed(states) or (states[0] if all(isinstance(state, Ended) for state in states) else None):
        return Runs() if any(isinstance(state, Runs) for state in states) else ended
    return _waits(states) or Runs()


def _made_again(snapshot: WorkerSnapshot, state: State) -> State:
    """What a pod that is gone or leaves waits for while its Job goes on: it was taken back, and another comes."""
    taken_back = owns(snapshot) and (snapshot.deleted or is_leaving(snapshot))
    return Waits(POD_IS_MADE) if taken_back and isinstance(state, Ended) and state.exit_code else state


def one_has_failed(states: Sequence[State]) -> Ended | None:
    """The first that has ended, and not well."""
    return next((state for state in states if isinstance(state, Ended) and state.exit_code), None)


def is_ending(snapshots: Sequence[WorkerSnapshot], states: Sequence[State]) -> bool:
    """True once nothing is to be waited for but the end of those that still run.

    That is when one was asked to end or has failed, or the first, which judges, has ended well.
    """
    first_is_over = isinstance(states[0], Ended)
    return first_is_over or one_has_failed(states) is not None or any(map(is_leaving, snapshots))


def first_asked(snapshots: Sequence[WorkerSnapshot]) -> str:
    """Who asked for the end of all or of which node, as half a sentence; "" if nobody is known to.

    To be remembered from when it is first known: the end of one pod is followed by the cluster's end of the others.
    """
    causes = [who_asked(snapshot) for snapshot in snapshots]
    at = next((at for at, who in enumerate(causes) if who), None)
    if at is None or len(set(causes)) == 1:
        return causes[0]
    return f"{node_of(at, snapshots)}: {causes[at]}"


def _waits(states: Sequence[State]) -> Waits | None:
    """What they wait for, each that does by its number, unless it is the same for all."""
    waiting = {at: state for at, state in enumerate(states) if isinstance(state, Waits)}
    if not waiting:
        return None
    whats = {state.what for state in waiting.values()}
    together = len(waiting) == len(states) and len(whats) == 1
    waits = whats if together else [f"{node_of(at, states)}: {state.what}" for at, state in waiting.items()]
    return Waits("; ".join(waits), trouble=any(state.trouble for state in waiting.values()))
