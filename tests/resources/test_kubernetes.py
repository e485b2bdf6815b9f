"""Workers as Jobs of a scripted cluster: what is asked of it, what follows from what it tells, what is left."""

import time
from types import SimpleNamespace

import pytest
from kubernetes_api import NAMESPACE, Fault, Kube, kube_server
from kubernetes_played import Clock, Played, ends_with, runs

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends.kubernetes import logs, patience, submitted
from trainworthy.resources.backends.kubernetes.api import lines


@pytest.fixture
def kube(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with kube_server(tmp_path) as kube:
        yield kube


@pytest.fixture
def played(kube, tmp_path) -> Played:
    return Played(kube, tmp_path, Clock())


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (65, 65), (75, 75), (137, -9), (139, -11), (143, -15)])
def test_exit_code_is_the_containers_and_a_signals_is_negative(played, code, exit_code):
    played.kube.played = ends_with(code)
    ended = played.run()
    assert (ended.exit_code, ended.seen, ended.memory.kernel_kills) == (exit_code, "", None)
    assert played.left() == []


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


@pytest.mark.parametrize("of_pod", [True, False])
def test_worker_that_ran_too_long_is_an_error_and_no_further_attempt(played, of_pod):
    def play(kube: Kube, pod: str) -> None:
        told = {"reason": "DeadlineExceeded", "message": "active longer than specified"}
        if of_pod:
            kube.runs(pod)
            kube.set_pod(pod, None, phase="Failed", **told)
            kube.logs[pod].ended = True
        else:
            # The Job's limit, which counts while no node takes the pod.
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


@pytest.mark.parametrize("in_stream", [True, False])
def test_watch_that_expired_lists_again_and_misses_no_end(played, in_stream):
    played.kube.faults.append(Fault("WATCH .*/pods", 410, "too old resource version", times=3, in_stream=in_stream))
    played.kube.played = runs
    played.look_does = {9: lambda: played.kube.ends(played.pod, 65)}
    assert played.run().exit_code == 65
    asked = [asked for asked in played.kube.asked if asked.endswith("/pods")]
    begun = asked.index(f"WATCH /api/v1/namespaces/{NAMESPACE}/pods")
    assert [one.split()[0] for one in asked[begun : begun + 6]] == ["WATCH", "GET"] * 3
    assert played.told("does not answer") == []


def test_pod_that_came_and_went_while_the_watch_was_away_is_gone(played):
    played.kube.played = runs

    def look(looks: int) -> None:
        if looks == 3:
            played.kube.faults.append(Fault("WATCH .*/pods", 410))
            with played.kube.changed:
                played.kube.drop_pod(played.pod)
                # No watch tells of it any more.
                played.kube._events.clear()

    played.look_does = look
    assert played.run().exit_code == -15


def test_conflict_removes_what_is_in_the_way_and_submits_again(played):
    def taken(kube: Kube) -> None:
        kube.played = runs
        kube.make_job(manifest)
        kube.played = ends_with(0)

    played.kube.played = ends_with(0)
    assert played.run().exit_code == 0
    (manifest,) = played.kube.manifests
    # Somebody else's comes between the look and the submission.
    late = iter([True])
    really = submitted.Submitted._remove

    def remove_and_be_late(worker, uid):
        really(worker, uid)
        if next(late, False):
            taken(played.kube)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submitted.Submitted, "_remove", remove_and_be_late)
        assert played.run().exit_code == 0
    assert len(played.kube.manifests) == 2
    assert played.left() == []


def test_conflicts_without_end_are_an_error(played):
    played.kube.faults.append(Fault("POST .*/jobs", 409, "exists", times=99))
    with pytest.raises(BackendError, match="comes again and again"):
        played.run()
    assert sum("POST" in asked for asked in played.kube.asked) == submitted.CONFLICTS


@pytest.mark.parametrize("status", [429, 503])
def test_throttled_submission_waits_as_long_as_it_is_asked_to(played, status):
    played.kube.faults.append(Fault("POST .*/jobs", status, "too many requests", retry_after="7", times=2))
    played.kube.played = ends_with(0)
    assert played.run().exit_code == 0
    assert 14 <= played.clock.at < 20
    assert len(played.kube.manifests) == 1


def test_retry_after_of_hours_is_not_obeyed(played):
    played.kube.faults.append(Fault("POST .*/jobs", 429, "later", retry_after="7200"))
    played.kube.played = ends_with(0)
    played.run()
    assert patience.LONGEST_WAIT_SECONDS <= played.clock.at < 40


def test_api_that_stays_away_lets_no_worker_begin(played):
    played.kube.faults.append(Fault(".", times=10_000))
    with pytest.raises(BackendError, match="the cluster's API cannot be reached"):
        played.run()
    assert patience.PATIENCE_SECONDS < played.clock.at < patience.PATIENCE_SECONDS + 10


@pytest.mark.parametrize(("request_", "verb", "resource"), [
    ("GET .*/jobs/", "get", "jobs"), ("POST .*/jobs", "create", "jobs"), ("WATCH .*/pods", "watch", "pods"),
])  # fmt: skip
def test_forbidden_request_names_the_verb_that_is_missing(played, request_, verb, resource):
    played.kube.faults.append(Fault(request_, 403, "jobs.batch is forbidden: User x"))
    with pytest.raises(BackendError, match="is forbidden: User x") as caught:
        played.run()
    assert f"verb {verb} on {resource} " in caught.value.fix
    assert "secret-token" not in str(caught.value)
    assert played.left() == []


def test_page_of_a_proxy_is_an_api_that_is_away(played):
    played.kube.faults += [Fault("POST", 502, page=b"<html>"), Fault("GET .*/jobs", 200, page=b"<html>")]
    played.kube.played = ends_with(0)
    assert played.run().exit_code == 0
    assert played.clock.at > patience.PAUSE_SECONDS
    played.kube.faults += [Fault("GET .*/jobs", 403, page=b"<html>")]
    with pytest.raises(BackendError, match="forbids to get jobs: 403 Forbidden"):
        played.run()


@pytest.mark.parametrize("status", [403, 404])
def test_queue_whose_words_nobody_may_read_is_a_queue_all_the_same(played, status):
    played.cluster = played.cluster.model_copy(update={"queue": "gpus"})
    played.kube.faults.append(Fault("GET .*/workloads", status, times=9))
    played.kube.played = ends_with(0)
    played.look_does = {5: lambda: played.kube.admit(played.name)}
    assert played.run().exit_code == 0
    assert len(played.told("waits: queued by Kueue")) == 1
    # It is not asked again what it does not tell.
    assert played.kube.faults[0].times == 7


def test_login_that_ran_out_and_values_that_are_refused_say_which(played):
    played.kube.faults.append(Fault("POST .*/jobs", 401, "Unauthorized"))
    with pytest.raises(BackendError, match="does not know who asks: Unauthorized"):
        played.run()
    played.kube.faults.append(Fault("POST .*/jobs", 422, "spec.template: Invalid value"))
    with pytest.raises(BackendError, match=r"refuses to create jobs: spec\.template: Invalid value"):
        played.run()
    played.kube.faults.append(Fault("POST .*/jobs", 404, 'namespaces "ml" not found'))
    with pytest.raises(BackendError, match='cannot make the Job: namespaces "ml" not found'):
        played.run()


def test_training_lives_on_while_the_api_is_away_and_is_told_once(played):
    played.kube.played = runs
    looks_away: list[float] = []

    def look(looks: int) -> None:
        if looks == 3:
            played.kube.faults.append(Fault(".", times=400))
        if played.kube.faults and played.kube.faults[0].times:
            looks_away.append(played.clock.at)
        elif looks > 10 and played.kube.jobs:
            played.kube.ends(played.pod, 0)

    played.look_does = look
    assert played.run().exit_code == 0
    # Minutes of the launcher's time, in which it gives signs of life.
    assert max(looks_away) > 600
    assert len(looks_away) > 100
    assert len(played.told("does not answer about")) == 1
    assert len(played.told("answers again")) == 1
    assert played.left() == []


def test_right_that_is_lost_during_a_training_does_not_end_it(played):
    played.kube.played = runs

    def look(looks: int) -> None:
        if looks == 3:
            played.kube.faults.append(Fault("WATCH|GET", 403, "forbidden", times=20))
        if looks == 30:
            played.kube.ends(played.pod, 0)

    played.look_does = look
    assert played.run().exit_code == 0
    assert "forbidden" in played.told("does not answer")[0]


def test_api_that_is_away_for_too_long_ends_the_wait_and_says_what_is_left(played, monkeypatch):
    played.kube.played = runs
    monkeypatch.setattr(submitted, "AWAY_SECONDS", 600.0)
    monkeypatch.setattr(logs, "LAST_WORDS_SECONDS", 0.1)
    played.look_does = {3: lambda: played.kube.faults.append(Fault(".", times=10_000))}
    with pytest.raises(BackendError, match=r"did not answer about .* for 10 min") as caught:
        played.run()
    assert "ended first" in caught.value.fix
    assert played.told("could not be removed; the cluster's API cannot be reached")


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


def test_log_is_copied_while_it_runs_and_a_stream_that_breaks_repeats_no_line(played, monkeypatch):
    monkeypatch.setattr(logs, "FIRST_PAUSE_SECONDS", 0.01)
    said = [f"line {number}" for number in range(40)]
    played.kube.cut_log_after = 15
    seen_early: list[bytes] = []

    def play(kube: Kube, pod: str) -> None:
        kube.runs(pod)
        for line in said[:30]:
            kube.say(pod, line)
        deadline = time.monotonic() + 10
        while b"line 29" not in played.output.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
        seen_early.append(played.output.read_bytes())
        for line in said[30:]:
            kube.say(pod, line)
        kube.ends(pod, 0)

    played.kube.played = play
    assert played.run().exit_code == 0
    assert seen_early[0].decode().splitlines() == said[:30]
    assert played.output.read_text().splitlines() == said
    assert played.kube.cut_log_after == 0


def test_line_that_was_cut_in_two_is_one_and_the_last_needs_no_end():
    chunks = [b"a\nb", b"c\n\n", b"d"]
    assert list(lines(SimpleNamespace(stream=lambda: iter(chunks)))) == [b"a", b"bc", b"d"]


def test_lines_of_one_moment_are_each_written_once():
    position = logs.Position()
    first = [b"2026-01-01T00:00:00.1Z a", b"2026-01-01T00:00:00.12Z b", b"2026-01-01T00:00:00.12Z c"]
    assert position.since_seconds() is None
    assert [position.new(line) for line in first] == [b"a", b"b", b"c"]
    assert position.since_seconds() == logs.AGAIN_SECONDS + 1
    again = [*first, b"2026-01-01T00:00:00.12Z d", b"2026-01-01T00:00:01Z e", b"the node's own words"]
    assert [position.new(line) for line in again] == [None, None, None, b"d", b"e", b"the node's own words"]


def test_last_lines_are_read_where_the_first_try_at_the_end_fails(played, monkeypatch):
    monkeypatch.setattr(logs, "FIRST_PAUSE_SECONDS", 0.01)

    def end() -> None:
        # The stream that is open ends with the container, and is not to be had again at once.
        played.kube.cut_log_after = 1
        played.kube.faults.append(Fault("GET .*/log", times=3))
        for line in ("one", "two"):
            played.kube.say(played.pod, line)
        played.kube.ends(played.pod, 0)

    played.kube.played = runs
    played.look_does = {9: end}
    assert played.run().exit_code == 0
    assert played.output.read_text().splitlines() == ["one", "two"]


def test_log_that_cannot_be_had_ends_no_training(played, monkeypatch):
    monkeypatch.setattr(logs, "LAST_WORDS_SECONDS", 0.1)
    played.kube.faults.append(Fault("GET .*/log", 403, "no logs", times=999))
    played.kube.played = runs
    played.look_does = {20: lambda: played.kube.ends(played.pod, 0)}
    assert played.run().exit_code == 0
    assert played.output.read_bytes() == b""
