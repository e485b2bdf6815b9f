"""What a cluster's words about a worker mean: it waits, it runs, it ended, or it cannot go on. Pure.

A Job, its newest pod and Kueue's Workload come in as the API tells them. The pod's container has the last word, since
it alone knows an exit code; where a pod is gone without one, it was asked to end, as a preempted machine is.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.resources.backends.backend import SIGNALLED, Ended
from trainworthy.resources.backends.kubernetes.manifest import CONTAINER

Json = dict[str, Any]
# Reasons of a container that waits: which no time mends, and which a registry or a node that is busy causes as well.
NEVER = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
PULLS = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable")
MAKES = ("CreateContainerError", "RunContainerError")
# Of a container that ended and had not begun.
NOT_BEGUN = ("StartError", "ContainerCannotRun")
# What the kubelet tells with a signal that it sends; the code alone would not say who sent it.
_SENT = (SIGNALLED + signal.SIGTERM, SIGNALLED + signal.SIGKILL)


@dataclass(frozen=True)
class Seen:
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


def state_of(seen: Seen) -> State:
    """In which state the worker is."""
    if seen.pod is not None:
        state = _state_of_pod(seen.pod, seen)
        if state is not None:
            return state
    if not owns(seen):
        return asked_to_end(seen)
    assert seen.job is not None
    if seen.pod is not None and not seen.deleted:
        return _begins(seen.pod)
    if seen.pod is not None and has_run(seen.pod):
        return Ended(0, MemorySeen()) if _condition(seen.job, "Complete") else asked_to_end(seen)
    failed = _condition(seen.job, "Failed") or _condition(seen.job, "FailureTarget")
    if failed is not None:
        return _deadline(failed) if failed.get("reason") == "DeadlineExceeded" else asked_to_end(seen)
    if is_suspended(seen):
        return queued(seen)
    return Waits("the cluster makes its pod")


def asked_to_end(seen: Seen) -> Ended:
    """An end that somebody asked for, and how that is known."""
    return Ended(-signal.SIGTERM, MemorySeen(), who_asked(seen) or "its pod is gone, and nothing says why")


def owns(seen: Seen) -> bool:
    """True while the Job is there that the worker was started by; one of its name may be another's."""
    return seen.job is not None and seen.job["metadata"]["uid"] == seen.uid


def is_suspended(seen: Seen) -> bool:
    """True while Kueue has not admitted its Job, or no longer."""
    return owns(seen) and bool((seen.job or {}).get("spec", {}).get("suspend"))


def queued(seen: Seen) -> Waits:
    """It waits to be admitted, in Kueue's words."""
    return Waits(f"queued by Kueue{_colon(_queued(seen.workloads))}")


def is_leaving(seen: Seen) -> bool:
    """True once somebody has asked for the end of its pod, which its node has to carry out."""
    return bool((seen.pod or {}).get("metadata", {}).get("deletionTimestamp"))


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


def who_asked(seen: Seen) -> str:
    """Who asked the worker to end, as half a sentence; "" if nobody is known to."""
    evicted = next((one for load in seen.workloads if (one := _condition(load, "Evicted"))), None)
    if evicted is not None:
        return f"Kueue evicted it ({evicted.get('reason', '')}){_colon(evicted.get('message'))}"
    disrupted = _condition(seen.pod, "DisruptionTarget")
    if disrupted is not None:
        return f"the cluster ended its pod ({disrupted.get('reason', '')}){_colon(disrupted.get('message'))}"
    status = (seen.pod or {}).get("status", {})
    if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "Shutdown", "NodeShutdown", "Terminated"):
        return f"the node ended its pod ({status['reason']}){_colon(status.get('message'))}"
    if seen.job is None:
        return "its Job was deleted"
    if not owns(seen):
        return "its Job was deleted, and another of its name made"
    if seen.job.get("spec", {}).get("suspend"):
        return "its Job was suspended"
    if seen.deleted or is_leaving(seen):
        return "its pod was deleted"
    return ""


def _state_of_pod(pod: Json, seen: Seen) -> State | None:
    """None where the pod does not decide."""
    status, container = pod.get("status", {}), _container(pod)
    ended = container.get("state", {}).get("terminated")
    if status.get("reason") == "DeadlineExceeded" and (ended is None or ended.get("exitCode") != 0):
        return _deadline(status)
    if ended is not None:
        return _ended(ended, seen)
    if status.get("phase") == "Failed":
        # The node took the pod and gave it up before its container could tell of itself.
        told = f"{status.get('reason', 'Failed')}{_colon(status.get('message'))}"
        return Ended(-signal.SIGTERM, MemorySeen(), who_asked(seen) or f"the node ended its pod ({told})")
    if seen.deleted or not owns(seen):
        return None
    return Runs() if "running" in container.get("state", {}) else None


def _ended(ended: Json, seen: Seen) -> State:
    """A container's end: its exit code, unless that is only the signal that somebody sent it."""
    code, reason = int(ended.get("exitCode", 0)), ended.get("reason", "")
    if reason in NOT_BEGUN:
        fix = "correct image of kubernetes.yaml: it needs python on its PATH, and Trainworthy with its packages"
        return Refused(f"the container cannot start: {reason}{_colon(ended.get('message'))}", fix)
    memory = MemorySeen(kernel_kills=1, counted_in="its container") if reason == "OOMKilled" else MemorySeen()
    asked = who_asked(seen) if code else ""
    if asked and code in _SENT and reason != "OOMKilled":
        return Ended(-signal.SIGTERM, memory, asked)
    return Ended(SIGNALLED - code if code > SIGNALLED else code, memory, asked)


def _begins(pod: Json) -> State:
    """What a pod waits for that has not begun."""
    waiting = _container(pod).get("state", {}).get("waiting", {})
    reason, told = waiting.get("reason", ""), _colon(waiting.get("message"))
    if reason in NEVER:
        return Refused(f"its container cannot be made: {reason}{told}", IMAGE_FIX)
    if reason in PULLS:
        return Waits(f"the image cannot be pulled: {reason}{told}", trouble=True)
    if reason in MAKES:
        return Waits(f"its container cannot be made: {reason}{told}", trouble=True)
    scheduled = next((one for one in pod.get("status", {}).get("conditions", []) if one["type"] == "PodScheduled"), {})
    if scheduled.get("status") == "False":
        return Waits(f"no node takes its pod ({scheduled.get('reason', '')}){_colon(scheduled.get('message'))}")
    if not _container(pod):
        return Waits("a node for its pod")
    return Waits("the node makes its container, and pulls the image where it lacks it")


# What to do about an image or a container that cannot be had.
IMAGE_FIX = "correct image of kubernetes.yaml, or the right to pull it (imagePullSecrets of the service account)"


def _deadline(told: Json) -> Refused:
    problem = f"the worker had no answer within run_timeout_seconds{_colon(told.get('message'))}"
    return Refused(problem, "a larger run_timeout_seconds in kubernetes.yaml, then run again: a training resumes")


def _queued(workloads: Iterable[Json]) -> str:
    """Kueue's words about a Workload that waits: of its quota, else of its eviction."""
    for load in workloads:
        for one in load.get("status", {}).get("conditions", []):
            if one["type"] in ("QuotaReserved", "Admitted") and one.get("status") == "False" and one.get("message"):
                return str(one["message"])
    return ""


def _container(pod: Json) -> Json:
    found = pod.get("status", {}).get("containerStatuses") or []
    return next((one for one in found if one["name"] == CONTAINER), {})


def _condition(thing: Json | None, kind: str) -> Json | None:
    """A condition that holds."""
    found = (thing or {}).get("status", {}).get("conditions") or []
    return next((one for one in found if one["type"] == kind and one.get("status") == "True"), None)


def _colon(message: object) -> str:
    return f": {' '.join(str(message).split())}" if message else ""


def _time(text: str) -> datetime:
    """A time as the API writes it; Python reads microseconds at most."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text).replace("Z", "+00:00"))
