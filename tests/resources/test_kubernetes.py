"""Workers as Jobs of a scripted cluster: what is asked of it, what follows from what it tells, what is left."""

import functools
from pathlib import Path
from typing import Any

import pytest
from kubernetes_api import Fault, Kube
from kubernetes_played import ends_with, runs

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends.kubernetes import backend as backends
from trainworthy.resources.backends.kubernetes import submitted
from trainworthy.resources.backends.on_node import END, WANTED
from trainworthy.resources.backends.signs import Given


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (65, 65), (75, 75), (137, -9), (139, -11), (143, -15)])
def test_exit_code_is_the_containers_and_a_signals_is_negative(played, code, exit_code):
    played.kube.played = ends_with(code)
    ended = played.run()
    assert (ended.exit_code, ended.seen, ended.memory.kernel_kills) == (exit_code, "", None)
    assert played.left() == []


@pytest.mark.parametrize(("code", "succeeded"), [(0, True), (75, False)])
def test_success_of_a_pod_without_a_common_volume_has_to_be_in_the_bucket(played, monkeypatch, code, succeeded):
    class Journey:
        def __init__(self) -> None:
            self.sign, self.asked = Given(played.folder / "sign"), list[bool]()

        def arrived(self, *, succeeded: bool) -> None:
            self.asked.append(succeeded)

    made: Any = submitted.Submitted
    journey, played.kube.played = Journey(), ends_with(code)
    monkeypatch.setattr(backends, "Submitted", functools.partial(made, journey=journey))
    assert played.run().exit_code == code
    assert journey.asked == [succeeded]


def test_container_that_ran_out_of_memory_says_so_and_in_what(played):
    played.kube.played = ends_with(137, reason="OOMKilled")
    ended = played.run()
    assert (ended.exit_code, ended.memory.kernel_kills, ended.memory.counted_in) == (-9, 1, "its container")


def test_worker_queued_for_an_hour_tells_what_for_and_its_wait_is_no_cost(played):
    played.cluster = played.cluster.model_copy(update={"queue": "gpus"})
    why = {
        "type": "QuotaReserved",
        "status": "False",
        "message": "insufficient quota for nvidia.com/gpu,\n 1 more needed",
    }
    played.kube.workloads = [{"status": {"conditions": [why]}}]
    played.kube.played = ends_with(0)

    def look(looks: int) -> None:
        played.clock.at += 360
        if looks == 10:
            played.kube.admit(played.name)

    played.look_does = look
    assert played.run().exit_code == 0
    assert played.kube.manifests[0]["spec"]["suspend"] is True
    assert len(played.told("queued by Kueue: insufficient quota for nvidia.com/gpu, 1 more needed")) == 1
    assert played.waits == sorted(played.waits)
    assert played.waits[-1] >= 3600
    assert played.left() == []


def test_worker_that_is_queued_too_long_ends_with_what_it_waits_for_and_leaves_nothing(played):
    played.cluster = played.cluster.model_copy(update={"queue": "gpus", "queue_timeout_seconds": 3600})
    played.look_does = lambda looks: played.clock.sleep(600)
    with pytest.raises(BackendError, match="has not begun within queue_timeout_seconds: queued by Kueue") as caught:
        played.run()
    assert caught.value.value == 3600
    assert played.left() == []


def test_pod_that_no_node_takes_waits_in_the_schedulers_words(played):
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: taints"}
    played.kube.played = lambda kube, pod: kube.set_pod(pod, conditions=[told])
    played.cluster = played.cluster.model_copy(update={"queue_timeout_seconds": 60})
    played.look_does = lambda looks: played.clock.sleep(5)
    with pytest.raises(BackendError, match="no node takes its pod \\(Unschedulable\\): 0/3 nodes: taints"):
        played.run()
    assert played.left() == []


def test_image_that_cannot_be_pulled_is_given_minutes_and_then_an_error(played):
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    played.kube.played = lambda kube, pod: kube.set_pod(pod, waiting)
    played.look_does = lambda looks: played.clock.sleep(60)
    with pytest.raises(BackendError, match="the image cannot be pulled: ImagePullBackOff: not found") as caught:
        played.run()
    assert "imagePullSecrets" in caught.value.fix
    assert submitted.TROUBLE_SECONDS < played.clock.at < 600
    assert played.left() == []


def test_registry_that_comes_back_in_time_is_no_error(played):
    def look(looks: int) -> None:
        played.clock.at += 100
        pull = {"waiting": {"reason": "ErrImagePull"}}
        made = {"waiting": {"reason": "ContainerCreating"}}
        # Twice away, each for less than is allowed, together for more.
        match looks:
            case 1 | 5:
                played.kube.set_pod(played.pod, pull)
            case 4:
                played.kube.set_pod(played.pod, made)
            case 8:
                ends_with(0)(played.kube, played.pod)
            case _:
                pass

    played.look_does = look
    assert played.run().exit_code == 0


@pytest.mark.parametrize("reason", ["InvalidImageName", "CreateContainerConfigError"])
def test_container_that_can_never_be_made_is_an_error_at_once(played, reason):
    played.kube.played = lambda kube, pod: kube.set_pod(pod, {"waiting": {"reason": reason, "message": "bad"}})
    with pytest.raises(BackendError, match=f"its container cannot be made: {reason}: bad"):
        played.run()
    assert played.clock.at < 10
    assert played.left() == []


def test_container_that_cannot_start_is_an_error_and_no_end_of_the_worker(played):
    played.kube.played = ends_with(128, reason="StartError")
    with pytest.raises(BackendError, match="the container cannot start: StartError"):
        played.run()


@pytest.mark.parametrize("answers", [True, False])
def test_worker_that_runs_too_long_is_an_error_and_no_further_attempt(played, answers):
    played.kube.played = runs
    played.cluster = played.cluster.model_copy(update={"run_timeout_seconds": 300})

    def look(looks: int) -> None:
        played.clock.at += 60
        if looks == 3 and not answers:
            played.kube.faults.append(Fault(".", times=10_000))

    played.look_does = look
    with pytest.raises(BackendError, match="no answer within run_timeout_seconds") as error:
        played.run()
    assert error.value.value == 300
    assert 300 < played.clock.at < 600
    # What the API is not there to remove ends by itself, since nobody wants it any more.
    assert not list(played.folder.rglob(WANTED))
    assert (played.left() == []) is answers
    assert bool(played.told("could not be removed")) is not answers


@pytest.mark.parametrize("away", [True, False])
def test_worker_that_ended_in_time_has_its_answer_however_late_the_cluster_tells_it(played, away):
    """`away`: the API, across the limit; else a node is late to tell."""
    played.kube.played = runs
    played.cluster = played.cluster.model_copy(update={"run_timeout_seconds": 300})

    def look(looks: int) -> None:
        played.clock.at += 60
        if looks == 3:
            (folder,) = (Path(played.job.out) / "kubernetes").iterdir()
            (folder / END).write_text('{"exit_code": 0}')
            played.kube.faults += [Fault(".", times=10_000)] * away
        if looks == 8:
            played.kube.faults.clear()
        if looks == 9:
            played.kube.ends(played.pod, 0)

    played.look_does = look
    assert played.run().exit_code == 0
    assert played.clock.at > 500
    assert played.left() == []


def test_worker_that_is_asked_to_end_is_no_overtime_however_long_that_takes(played, monkeypatch):
    drop = played.kube.drop_pod
    # Its node writes a large checkpoint.
    monkeypatch.setattr(played.kube, "drop_pod", lambda name: None)
    played.kube.played = runs
    played.cluster = played.cluster.model_copy(update={"run_timeout_seconds": 300})

    def look(looks: int) -> None:
        played.clock.at += 60
        if looks == 3:
            played.kube.delete_pod(played.pod)
        if looks == 7:
            played.kube.ends(pod := played.pod, 75)
            drop(pod)

    played.look_does = look
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (75, "its pod was deleted")
    assert played.clock.at > 400


@pytest.mark.parametrize("of_pod", [True, False])
def test_worker_that_the_cluster_found_too_old_is_an_error_and_no_further_attempt(played, of_pod):
    def play(kube: Kube, pod: str) -> None:
        told = {"reason": "DeadlineExceeded", "message": "active longer than specified"}
        if of_pod:
            # By a limit that the manifest does not set, and a cluster's policy may.
            kube.runs(pod)
            kube.set_pod(pod, None, phase="Failed", **told)
            kube.logs[pod].ended = True
        else:
            # The Job's limit, for one whose launcher is gone.
            kube.jobs[played.name]["status"] = {"conditions": [{"type": "Failed", "status": "True", **told}]}
            kube.drop_pod(pod)

    played.kube.played = play
    with pytest.raises(BackendError, match="within run_timeout_seconds: active longer than specified"):
        played.run()
    assert played.left() == []


def test_preempted_worker_ends_so_and_its_job_does_not_wait_to_be_admitted_again(played):
    played.cluster = played.cluster.model_copy(update={"queue": "gpus"})
    played.kube.played = runs
    played.look_does = {
        2: lambda: played.kube.admit(played.name),
        # Its worker gets the signal, and ends as one does that has written its checkpoint.
        6: lambda: played.kube.evict(played.name, "preempted to accommodate a workload", 75),
    }
    ended = played.run()
    assert ended.exit_code == 75
    assert ended.seen == "Kueue evicted it (Preempted): preempted to accommodate a workload"
    # The suspended Job would be let in again, with nobody to read its answer.
    assert played.left() == []
    assert len(played.kube.manifests) == 1


def test_pod_that_is_gone_without_an_exit_code_was_asked_to_end_by_whoever_says_so(played):
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "by kube/x",
    }

    def disrupt() -> None:
        played.kube.set_pod(pod := played.pod, conditions=[disrupted])
        played.kube.drop_pod(pod)

    played.kube.played = runs
    played.look_does = {3: disrupt}
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "the cluster ended its pod (PreemptionByScheduler): by kube/x")


def test_signal_of_whoever_deletes_the_pod_is_a_request_to_end_and_no_kill(played):
    played.kube.played = runs
    # Nobody ends by SIGTERM within its grace here, as a node that writes a large checkpoint.
    played.look_does = {3: lambda: played.kube.delete_pod(played.pod, code=137)}
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "its pod was deleted")


def test_node_that_is_gone_ends_the_wait_although_its_container_still_runs_by_its_last_word(played, monkeypatch):
    monkeypatch.setattr(submitted, "GONE_SECONDS", 8.0)
    # Nor does it answer.
    monkeypatch.setattr(played.kube, "drop_pod", lambda name: None)
    tainted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": ""}

    def look(looks: int) -> None:
        if looks == 3:
            played.kube.set_pod(played.pod, conditions=[tainted])
            played.kube.delete_pod(played.pod)
        if looks > 3:
            played.clock.at += 100

    played.kube.played = runs
    played.look_does = look
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "the cluster ended its pod (DeletionByTaintManager)")
    assert 300 < played.clock.at < 3000
    # What its node may still run is told, and lets no other begin.
    assert played.told("could not be removed")


def test_node_that_gives_a_pod_up_before_it_runs_is_a_machine_that_was_taken_away(played):
    played.kube.played = lambda kube, pod: kube.set_pod(pod, phase="Failed", reason="OutOfcpu", message="no room")
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "the node ended its pod (OutOfcpu: no room)")


def test_pod_that_kueue_takes_back_before_it_ran_waits_again(played):
    played.cluster = played.cluster.model_copy(update={"queue": "gpus"})

    def back() -> None:
        played.kube.evict(played.name, "pods not ready")

    def again() -> None:
        played.kube.played = ends_with(0)
        played.kube.admit(played.name)

    played.look_does = {2: lambda: played.kube.admit(played.name), 6: back, 14: again}
    assert played.run().exit_code == 0


def test_job_that_somebody_made_anew_is_not_ours_and_is_left_alone(played):
    played.kube.played = runs

    def look(looks: int) -> None:
        if looks == 3:
            pod, job = played.pod, played.kube.drop_job(played.name)
            played.kube.played = lambda kube, pod: None
            # Its counters begin at zero, as ours never do: they are in the table of attempts.
            played.kube.make_job({**job, "status": {}})
            played.theirs = [played.name, *(name for name in played.kube.pods if name != pod)]

    played.look_does = look
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "its Job was deleted, and another of its name made")
    assert played.left() == played.theirs


def test_job_that_was_deleted_without_its_pod_takes_the_pod_with_it(played):
    played.kube.played = runs
    played.look_does = {3: lambda: played.kube.drop_job(played.name)}
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "its Job was deleted")
    assert played.left() == []


def test_job_that_an_earlier_launcher_left_is_ended_before_the_new_one(played):
    played.kube.played = lambda kube, pod: kube.runs(pod)
    played.look_does = {2: lambda: played.kube.ends(played.pod, 0)}
    assert played.run().exit_code == 0
    (manifest,) = played.kube.manifests
    played.kube.make_job(manifest)
    old = played.kube.jobs[played.name]["metadata"]["uid"]
    alive: list[int] = []
    made = played.kube.make_job

    def make_job(manifest):
        alive.append(len(played.kube.pods) + len(played.kube.jobs))
        return made(manifest)

    played.kube.make_job = make_job
    played.kube.played = ends_with(0)
    assert played.run().exit_code == 0
    assert alive == [0]
    assert old not in str(played.kube.jobs)


def test_pod_that_does_not_end_lets_no_second_trainer_begin(played, monkeypatch):
    monkeypatch.setattr(submitted, "GONE_SECONDS", 8.0)
    played.kube.played = runs
    played.look_does = {2: lambda: played.kube.ends(played.pod, 0)}
    played.run()
    played.kube.make_job(played.kube.manifests[0])
    # Its node does not answer.
    monkeypatch.setattr(played.kube, "drop_pod", lambda name: None)
    pod = played.pod
    with pytest.raises(BackendError, match="a worker's pod does not end") as caught:
        played.run()
    assert f"pod {pod}" in str(caught.value.value)
    assert "--force" in caught.value.fix
    assert played.told(f"waits for the end of job {played.name}, pod {pod}")
    assert len(played.kube.manifests) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_cancel_ends_the_pod_and_waits_until_it_is_gone(played, error):
    played.kube.played = runs

    def cancel() -> None:
        raise error

    played.look_does = {4: cancel}
    with pytest.raises(error):
        played.run()
    assert played.left() == []
    assert any(asked.startswith("DELETE") and "/jobs/" in asked for asked in played.kube.asked)


def test_answer_counts_also_where_its_job_cannot_be_removed(played):
    played.kube.played = ends_with(0)
    played.kube.faults.append(Fault("DELETE", 403, "no delete", times=9))
    assert played.run().exit_code == 0
    assert played.told("could not be removed")
