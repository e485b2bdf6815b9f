"""The cluster's API away, throttled, refusing or in conflict: what a worker's start and its life make of it."""

import pytest
from kubernetes_api import NAMESPACE, Fault, Kube
from kubernetes_played import ends_with, runs

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends.kubernetes import logs, patience, submitted


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
