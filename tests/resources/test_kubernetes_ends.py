"""What a cluster's words about a worker mean, where a scripted cluster would be a long way to them."""

from dataclasses import replace
from typing import Any

import pytest

from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.kubernetes.ends import (
    Refused,
    Runs,
    Waits,
    WorkerSnapshot,
    has_run,
    have_run,
    ran_seconds,
    state_of,
    state_of_all,
)
from trainworthy.resources.backends.kubernetes.pods import Pods, owner_of

JOB: dict[str, Any] = {"metadata": {"uid": "u"}, "spec": {"suspend": False}, "status": {}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def pod(state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    containers = [{"name": "sidecar", "state": {"running": {}}}]
    containers += [{"name": "worker", "state": state}] if state is not None else []
    return {"metadata": {"name": "p", "uid": "q"}, "status": {"containerStatuses": containers, **status}}


def job(kind: str = "", reason: str = "", *, suspend: bool = False) -> dict[str, Any]:
    told = [{"type": kind, "status": "True", "reason": reason, "message": "said so"}] if kind else []
    return {"metadata": {"uid": "u"}, "spec": {"suspend": suspend}, "status": {"conditions": told}}


def asked(seen: str) -> Ended:
    return Ended(-15, MemorySeen(), seen)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (WorkerSnapshot("u", JOB, None), Waits("the cluster makes its pod")),
        (WorkerSnapshot("u", job(suspend=True), None), Waits("queued by Kueue")),
        (WorkerSnapshot("u", JOB, pod()), Waits("a node for its pod")),
        (
            WorkerSnapshot("u", JOB, pod({"waiting": {"reason": "ContainerCreating"}})),
            Waits("the node makes its container, and pulls the image where it lacks it"),
        ),
        (
            WorkerSnapshot("u", JOB, pod({"waiting": {"reason": "CreateContainerError", "message": "busy"}})),
            Waits("its container cannot be made: CreateContainerError: busy", trouble=True),
        ),
        (WorkerSnapshot("u", JOB, pod(RUNNING)), Runs()),
        # What is suspended while its pod still runs ends with the pod: a checkpoint is being written.
        (WorkerSnapshot("u", job(suspend=True), pod(RUNNING)), Runs()),
        (WorkerSnapshot("u", job(suspend=True), pod(RUNNING), deleted=True), asked("its Job was suspended")),
        (
            WorkerSnapshot("u", job("Failed", "BackoffLimitExceeded"), pod(RUNNING), deleted=True),
            asked("its pod was deleted"),
        ),
        # Its pod was collected before anybody saw its exit code, and the controller had.
        (WorkerSnapshot("u", job("Complete"), pod(RUNNING), deleted=True), Ended(0, MemorySeen())),
        (
            WorkerSnapshot("u", job("FailureTarget", "PodFailurePolicy"), None),
            asked("its pod is gone, and nothing says why"),
        ),
        # Final: a queue does not let it in again.
        (WorkerSnapshot("u", job("Failed", "PodFailurePolicy", suspend=True), None), asked("its Job was suspended")),
        (WorkerSnapshot("u", None, pod(RUNNING)), asked("its Job was deleted")),
        (WorkerSnapshot("x", JOB, pod(RUNNING)), asked("its Job was deleted, and another of its name made")),
        (WorkerSnapshot("u", JOB, pod(phase="Failed")), asked("the node ended its pod (Failed)")),
        (
            WorkerSnapshot(
                "u", JOB, pod({"terminated": {"exitCode": 137}}, phase="Failed", reason="Evicted", message="disk")
            ),
            asked("the node ended its pod (Evicted): disk"),
        ),
        # An answer that was written counts, whatever was asked meanwhile.
        (WorkerSnapshot("u", None, pod({"terminated": {"exitCode": 0}})), Ended(0, MemorySeen())),
        (
            WorkerSnapshot(
                "u", JOB, pod({"terminated": {"exitCode": 0}}, phase="Succeeded", reason="DeadlineExceeded")
            ),
            Ended(0, MemorySeen()),
        ),
        # A loader was killed for memory, and the worker lived on to tell it.
        (
            WorkerSnapshot("u", JOB, pod({"terminated": {"exitCode": 70, "reason": "OOMKilled"}})),
            Ended(70, MemorySeen(kernel_kills=1, counted_in="its container")),
        ),
        # Also of one that was being evicted: the same would run out again.
        (
            WorkerSnapshot("u", job(suspend=True), pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})),
            Ended(-9, MemorySeen(kernel_kills=1, counted_in="its container"), "its Job was suspended"),
        ),
    ],
)  # fmt: skip
def test_state_is_what_the_cluster_says(seen, state):
    assert state_of(seen) == state


# What a node says when it gives up a pod whose container never was.
NEVER_WAS = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}


def leaving(state: dict[str, Any] | None = None) -> dict[str, Any]:
    gone = pod(state)
    return gone | {"metadata": gone["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize("other", [
    WorkerSnapshot("u", JOB, leaving(NEVER_WAS)), WorkerSnapshot("u", JOB, pod(NEVER_WAS), deleted=True),
    WorkerSnapshot("u", JOB, pod(RUNNING), deleted=True), WorkerSnapshot("u", JOB, pod(), deleted=True),
])  # fmt: skip
@pytest.mark.parametrize("number", [0, 1])
def test_pod_that_is_taken_back_before_all_have_begun_comes_again_unless_the_job_is_final(other, number):
    snapshots = [WorkerSnapshot("u", JOB, pod(RUNNING))]
    snapshots.insert(number, other)
    assert not have_run(snapshots)

    def state(of: dict[str, Any], *, began: bool = False):
        seen = [replace(snapshot, job=of) for snapshot in snapshots]
        return state_of_all(seen, [state_of(snapshot) for snapshot in seen], began=began)

    assert state(JOB) == Waits(f"node {number} of 2: the cluster makes its pod")
    assert state(job(suspend=True)) == Waits("queued by Kueue")
    # The other one runs, and its container is let end.
    assert state(job("Failed", "PodFailurePolicy", suspend=True)) == Runs()
    if other.pod is not None and has_run(other.pod):
        assert state(JOB, began=True) == Runs()


def test_newest_pod_is_one_that_is_there_whatever_the_times_say():
    def made(uid: str, time: str) -> dict[str, Any]:
        owner = {"kind": "Job", "uid": "j"}
        return {"metadata": {"name": uid, "uid": uid, "creationTimestamp": time, "ownerReferences": [owner]}}

    class Lists:
        there = (made("old", "2026-01-01T00:00:05Z"),)

        def pods(self, selector: str):
            return self.there, ""

    lists: Any = Lists()
    pods = Pods(lists, "", "j")
    assert pods.newest(0) == (None, False)
    pods.look(1)
    assert pods.newest(0) == (lists.there[0], False)
    # By another server, whose clock is behind; and of the same second.
    for uid, time in (("new", "2026-01-01T00:00:03Z"), ("newer", "2026-01-01T00:00:03Z")):
        lists.there = (made(uid, time),)
        pods.look(1)
        assert pods.newest(0) == (lists.there[0], False)
    lists.there = ()
    pods.look(1)
    assert pods.newest(0) == (made("old", "2026-01-01T00:00:05Z"), True)


def test_deadline_and_a_container_that_cannot_start_are_refused_in_the_clusters_words():
    late = state_of(WorkerSnapshot("u", JOB, pod(RUNNING, reason="DeadlineExceeded", message="too long")))
    assert isinstance(late, Refused)
    assert late.problem.endswith("too long")
    begun = pod({"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}})
    assert isinstance(state_of(WorkerSnapshot("u", JOB, begun)), Refused)
    assert not has_run(begun)


def test_queue_tells_the_first_word_that_kueue_has_on_a_wait():
    load = {"status": {"conditions": [
        {"type": "Evicted", "status": "False", "message": "old"},
        {"type": "QuotaReserved", "status": "False", "message": "couldn't assign\n flavors"},
    ]}}  # fmt: skip
    assert state_of(WorkerSnapshot("u", job(suspend=True), None, workloads=(load,))) == Waits(
        "queued by Kueue: couldn't assign flavors"
    )


@pytest.mark.parametrize(
    ("ended", "seconds"),
    [
        ({"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:30.123456789Z"}, 90.123456),
        ({"startedAt": "2026-01-01T00:01:00Z", "finishedAt": "2026-01-01T00:00:00Z"}, 0.0),
        ({"startedAt": None, "finishedAt": "2026-01-01T00:00:00Z"}, 0.0),
        ({"startedAt": "never", "finishedAt": "2026-01-01T00:00:00Z"}, 0.0),
    ],
)
def test_seconds_that_a_container_ran_are_the_nodes(ended, seconds):
    assert ran_seconds(pod({"terminated": {"exitCode": 0, **ended}})) == pytest.approx(seconds)
    assert ran_seconds(pod(RUNNING)) == 0.0


def test_pod_that_was_left_by_its_job_is_known_by_its_label():
    owned = {"metadata": {"ownerReferences": [{"kind": "Node", "uid": "n"}, {"kind": "Job", "uid": "j"}]}}
    left = {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "j"}}}
    assert [owner_of(owned), owner_of(left), owner_of({"metadata": {}})] == ["j", "j", ""]
