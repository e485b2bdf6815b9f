"""A training over several nodes as one Indexed Job of a scripted cluster: how its pods meet, wait and end."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from kubernetes_api import Kube, index_of, kube_server
from kubernetes_played import Clock, Played, runs

from trainworthy.lifecycle.errors import BackendError, SettingsError
from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.nodes.node import Node
from trainworthy.resources.backends import meeting, on_node
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.kubernetes import logs, submitted
from trainworthy.resources.backends.meeting import ADDRESS, INDEX, FolderMeeting, absent, meeting_of, prepare
from trainworthy.resources.backends.node_ends import cpu_seconds_of, judged
from trainworthy.resources.backends.on_node import END, NodeEnd

KILLED = MemorySeen(kernel_kills=1, counted_in="its container")


@pytest.fixture
def played(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(logs, "FIRST_PAUSE_SECONDS", 0.01)
    with kube_server(tmp_path) as kube:
        yield Played(kube, tmp_path, Clock(), nodes=2)


def pods(played: Played) -> list[str]:
    return played.kube.pods_of(played.name)


def says(played: Played, number: int, end: NodeEnd) -> None:
    """A node leaves how it ended."""
    (start,) = (Path(played.job.out) / "kubernetes").iterdir()
    (start / str(number) / END).write_bytes(canonical_json(end.model_dump(mode="json")))


def test_two_pods_are_one_job_whose_logs_both_are_copied(played):
    def play(kube: Kube, pod: str) -> None:
        kube.runs(pod)
        kube.say(pod, f"I am {index_of(kube.pods[pod])}")

    played.kube.played = play
    played.look_does = {20: lambda: [played.kube.ends(pod, 0) for pod in pods(played)]}
    assert played.run() == Ended(0, MemorySeen())
    assert sorted(played.output.read_text().splitlines()) == ["I am 0", "node 1: I am 1"]
    (manifest,) = played.kube.manifests
    assert (manifest["spec"]["completionMode"], manifest["spec"]["completions"]) == ("Indexed", 2)
    assert played.left() == []


def test_wait_lasts_until_the_last_pod_runs_and_is_told_by_its_number(played):
    played.kube.played = lambda kube, pod: kube.runs(pod) if index_of(kube.pods[pod]) == "0" else None

    def look(looks: int) -> None:
        played.clock.at += 60
        if looks == 5:
            played.kube.runs(pods(played)[1])
        if looks == 9:
            played.kube.ends(pods(played)[1], 0)
            played.kube.ends(pods(played)[0], 0)

    played.look_does = look
    assert played.run().exit_code == 0
    assert len(played.told("waits: node 1 of 2: a node for its pod")) == 1
    assert 240 <= played.waits[-1] < 400


def test_pod_that_waits_for_the_other_uses_up_nothing_of_the_time_that_it_may_run(played):
    played.kube.played = lambda kube, pod: kube.runs(pod) if index_of(kube.pods[pod]) == "0" else None
    played.cluster = played.cluster.model_copy(update={"run_timeout_seconds": 300})
    began = list[float]()

    def look(looks: int) -> None:
        played.clock.at += 60
        if looks == 20:
            played.kube.runs(pods(played)[1])
            began.append(played.clock.at)

    played.look_does = look
    with pytest.raises(BackendError, match="no answer within run_timeout_seconds"):
        played.run()
    # The first ran for 20 minutes before the second did.
    assert began[0] >= 1200
    assert 300 < played.clock.at - began[0] < 600
    assert played.left() == []


def test_pod_that_no_node_ever_takes_ends_the_wait_of_both_and_leaves_nothing(played):
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: taints"}

    def play(kube: Kube, pod: str) -> None:
        kube.runs(pod) if index_of(kube.pods[pod]) == "0" else kube.set_pod(pod, conditions=[told])

    played.kube.played = play
    played.cluster = played.cluster.model_copy(update={"queue_timeout_seconds": 600})
    played.look_does = lambda looks: played.clock.sleep(60)
    with pytest.raises(BackendError, match="within queue_timeout_seconds: node 1 of 2: no node takes its pod") as error:
        played.run()
    assert "0/3 nodes: taints" in error.value.problem
    assert played.left() == []


def test_container_that_can_never_be_made_is_told_with_its_node(played):
    def play(kube: Kube, pod: str) -> None:
        waiting = {"waiting": {"reason": "InvalidImageName"}}
        kube.runs(pod) if index_of(kube.pods[pod]) == "0" else kube.set_pod(pod, waiting)

    played.kube.played = play
    with pytest.raises(BackendError, match="node 1 of 2: its container cannot be made: InvalidImageName"):
        played.run()
    assert played.left() == []


@pytest.mark.parametrize("ran", ["0", "1"])
@pytest.mark.parametrize("again_after", [0, 8])
def test_kueue_lets_both_in_and_takes_both_back_before_they_have_begun(played, ran, again_after):
    played.cluster = played.cluster.model_copy(update={"queue": "gpus"})
    played.kube.played = lambda kube, pod: kube.runs(pod) if index_of(kube.pods[pod]) == ran else None

    def look(looks: int) -> None:
        if looks == 2:
            played.kube.admit(played.name)
        if looks == 8:
            # One of them runs, and waits for the other: no attempt has begun.
            played.kube.evict(played.name, "pods not ready", code=143)
        if looks == 8 + again_after:
            # New ones come as soon as the old are gone, and are not seen at once.
            played.kube.played = runs
            played.kube.admit(played.name)
        if looks == 28:
            for pod in pods(played):
                played.kube.ends(pod, 0)

    played.look_does = look
    assert played.run().exit_code == 0
    assert len(played.told("waits: queued by Kueue")) == (2 if again_after else 1)
    assert played.kube.manifests[0]["spec"]["suspend"] is True
    assert played.left() == []


@pytest.mark.parametrize("kind", ["Failed", "FailureTarget"])
def test_job_that_failed_while_it_was_suspended_is_waited_for_no_more(played, kind):
    played.cluster = played.cluster.model_copy(update={"queue": "gpus"})
    played.kube.played = lambda kube, pod: kube.runs(pod) if index_of(kube.pods[pod]) == "0" else None

    def look(looks: int) -> None:
        assert looks < 40, "it still waits for what no queue lets in again"
        if looks == 2:
            played.kube.admit(played.name)
        if looks == 8:
            # The exit code of the pod that ran is a failure by the Job's own policy, whoever asked it to end.
            failed = {"type": kind, "status": "True", "reason": "PodFailurePolicy", "message": "exit code 143"}
            played.kube.jobs[played.name]["status"]["conditions"] = [failed]
            played.kube.evict(played.name, "pods not ready", code=143)

    played.look_does = look
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "Kueue evicted it (Preempted): pods not ready")
    assert played.left() == []


def test_node_that_ran_out_of_memory_is_the_guilty_one_although_the_other_was_asked_to_end(played):
    played.kube.played = runs
    # The cluster asks the first one to end, which the signal does before it has said anything.
    delete = played.kube.delete_pod
    played.kube.delete_pod = lambda pod, grace=5.0, code=None: delete(pod, grace, 143)
    played.look_does = {6: lambda: played.kube.ends(pods(played)[1], 137, reason="OOMKilled")}
    assert played.run() == Ended(-9, KILLED, "it was node 1 of 2")
    assert played.left() == []


def test_first_nodes_own_judgement_is_the_end_although_another_ended_first(played):
    played.kube.played = runs

    def end() -> None:
        # The rank of node 1 was killed; node 0 has found out, and says so by its exit code.
        says(played, 0, NodeEnd(exit_code=-9, cpu_seconds=2.5))
        played.kube.ends(pods(played)[0], 137)

    delete = played.kube.delete_pod
    played.kube.delete_pod = lambda pod, grace=5.0, code=None: delete(pod, grace, 137)
    played.look_does = {6: end}
    ended = played.run()
    assert (ended.exit_code, ended.seen, ended.cpu_seconds) == (-9, "", 2.5)
    assert played.left() == []


def test_job_that_somebody_made_anew_ends_this_training_and_is_left_alone(played):
    played.kube.played = runs

    def look(looks: int) -> None:
        if looks == 6:
            ours = pods(played)
            job = played.kube.drop_job(played.name)
            played.kube.played = lambda kube, pod: None
            played.kube.make_job({**job, "status": {}})
            played.theirs = [played.name, *(name for name in played.kube.pods if name not in ours)]

    played.look_does = look
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "its Job was deleted, and another of its name made")
    assert played.left() == played.theirs
    assert len(played.theirs) == 3


def test_node_that_is_gone_with_its_pod_ends_the_wait(played, monkeypatch):
    monkeypatch.setattr(submitted, "GONE_SECONDS", 8.0)
    monkeypatch.setattr(logs, "LAST_WORDS_SECONDS", 0.1)
    monkeypatch.setattr(played.kube, "drop_pod", lambda name: None)
    tainted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": ""}

    def look(looks: int) -> None:
        if looks == 6:
            played.kube.set_pod(pods(played)[1], conditions=[tainted])
            played.kube.delete_pod(pods(played)[1])
        if looks > 6:
            played.clock.at += 100

    played.kube.played = runs
    played.look_does = look
    ended = played.run()
    assert (ended.exit_code, ended.seen) == (-15, "node 1 of 2: the cluster ended its pod (DeletionByTaintManager)")
    assert 300 < played.clock.at < 3000
    assert played.told("could not be removed")


def test_pods_that_run_and_do_not_find_each_other_are_an_error_that_names_who_is_missing(played):
    def look(looks: int) -> None:
        assert looks < 60, "it still waits"
        if looks == 6:
            (start,) = (Path(played.job.out) / "kubernetes").iterdir()
            (start / "0" / "address").write_text("127.0.0.2 first\n")
        if looks > 6:
            played.clock.at += 100

    played.kube.played = runs
    played.look_does = look
    with pytest.raises(BackendError, match="its pods run, and wait for an address of node 1 of 2") as error:
        played.run()
    assert 1800 < played.clock.at < 2400
    assert error.value.value == "for 1800 s"
    assert played.left() == []


@pytest.mark.parametrize("known_by", ["their files", "an end"])
def test_pods_that_have_met_may_take_as_long_as_they_need(played, known_by):
    def look(looks: int) -> None:
        if looks == 6 and known_by == "an end":
            # The API was away while they met.
            played.kube.ends(pods(played)[1], 0)
        elif looks == 6:
            (start,) = (Path(played.job.out) / "kubernetes").iterdir()
            found = dict[int, Node]()
            for thread in [meet(start, number, found) for number in (0, 1)]:
                thread.join(10)
            assert len(found) == 2
        if looks == 10 and known_by == "their files":
            # Node 1 leaves: the first one has to save yet.
            (start,) = (Path(played.job.out) / "kubernetes").iterdir()
            (start / "1" / "address").write_text("")
        if looks > 6:
            played.clock.at += 1000
        if looks == 20:
            for pod in pods(played):
                played.kube.ends(pod, 0)

    played.kube.played = runs
    played.look_does = look
    assert played.run().exit_code == 0
    assert played.clock.at > 10_000


def test_first_node_that_ended_well_waits_for_no_other_for_ever(played):
    def look(looks: int) -> None:
        assert looks < 60, "it still waits"
        if looks == 6:
            played.kube.ends(pods(played)[0], 0)
        if looks > 6:
            played.clock.at += 100

    played.kube.played = runs
    played.look_does = look
    assert played.run() == Ended(0, MemorySeen())
    assert 300 < played.clock.at < 1000
    assert played.left() == []


LOST, ASKED = Ended(77, MemorySeen()), Ended(-15, MemorySeen(), "its pod was deleted")


@pytest.mark.parametrize(
    ("states", "words", "ended"),
    [
        # The first one's word counts, and its container's code is a signal's.
        ((ASKED, LOST), (NodeEnd(exit_code=65), None), Ended(65, MemorySeen())),
        ((Ended(75, MemorySeen()), ASKED), (NodeEnd(exit_code=75), None), Ended(75, MemorySeen(), "asked")),
        ((ASKED, ASKED), (NodeEnd(exit_code=0), None), Ended(0, MemorySeen())),
        ((Ended(0, MemorySeen()), LOST), (None, None), Ended(0, MemorySeen())),
        # A rank of another node was killed for memory, which that node's kernel counts.
        ((ASKED, LOST), (NodeEnd(exit_code=-9), NodeEnd(exit_code=77, memory=KILLED)), Ended(-9, KILLED)),
        # No judgement: who ended by itself, and not for the others.
        ((ASKED, Ended(-9, MemorySeen())), (None, None), Ended(-9, MemorySeen(), "it was node 1 of 2")),
        ((Ended(-11, MemorySeen()), LOST), (None, None), Ended(-11, MemorySeen(), "it was node 0 of 2")),
        ((Ended(-9, KILLED, "deleted"), LOST), (None, None), Ended(-9, KILLED, "it was node 0 of 2")),
        ((ASKED, LOST), (NodeEnd(exit_code=75, seen="by SIGTERM"), None), Ended(75, MemorySeen(), "asked")),
        ((ASKED, LOST), (NodeEnd(exit_code=-15, seen="by SIGTERM"), None), Ended(-15, MemorySeen(), "asked")),
    ],
)  # fmt: skip
def test_end_of_all_is_the_first_nodes_judgement_or_what_the_cluster_saw(states, words, ended):
    assert judged(states, words, "asked") == ended


def test_cpu_seconds_are_those_of_all_nodes_that_have_said_so():
    said = NodeEnd(exit_code=0, cpu_seconds=2.5)
    assert cpu_seconds_of((said, None, said)) == 5.0
    assert cpu_seconds_of((None, None)) == 0.0


def test_nobody_known_to_have_asked_leaves_the_nodes_own_words():
    assert judged((ASKED, LOST), (NodeEnd(exit_code=-15, seen="silent"), None), "").seen == "silent"
    assert judged((ASKED, LOST), (None, None), "").seen == "its pod was deleted"


# How pods meet


def meet(folder: Path, number: int, found: dict[int, Node], look=lambda: None) -> threading.Thread:
    one = FolderMeeting(folder, number, 2, f"127.0.0.{2 + number}")
    thread = threading.Thread(target=lambda: found.update({number: one.node(look)}), daemon=True)
    thread.start()
    return thread


def test_pods_meet_at_the_first_ones_address_once_all_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting, "LOOK_SECONDS", 0.01)
    prepare(start := tmp_path / "start", 2)
    # Of a second pod that was there before and ended in order: it is none that one waits for.
    before = FolderMeeting(start, 1, 2, "127.0.0.9")
    (start / "1" / "address").write_text("127.0.0.9 0000\n")
    before.leave()
    found, looks = dict[int, Node](), list[int]()
    first = meet(start, 0, found, lambda: looks.append(0))
    until = time.monotonic() + 10
    while len(looks) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert found == {}
    second = meet(start, 1, found)
    for thread in (first, second):
        thread.join(10)
    assert found[0].port == found[1].port > 0
    assert [found[number] for number in (0, 1)] == [Node(number, 2, "127.0.0.2", found[0].port) for number in (0, 1)]


def test_pods_that_were_killed_hard_before_are_none_that_the_later_ones_meet(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting, "LOOK_SECONDS", 0.01)
    prepare(start := tmp_path / "start", 2)
    # All of an earlier admission: nobody has left.
    earlier, looks = dict[int, Node](), list[int]()
    for thread in [meet(start, number, earlier) for number in (1, 0)]:
        thread.join(10)
    assert set(earlier) == {0, 1}
    assert absent(start, 2) == []
    found = dict[int, Node]()
    first = meet(start, 0, found, lambda: looks.append(0))
    until = time.monotonic() + 10
    while len(looks) < 5:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert found == {}
    assert absent(start, 2) == [1]
    second = meet(start, 1, found)
    for thread in (first, second):
        thread.join(10)
    assert found[0].port == found[1].port
    assert absent(start, 2) == []


def test_storage_that_is_away_from_a_pod_delays_the_meeting(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting, "LOOK_SECONDS", 0.01)
    prepare(start := tmp_path / "start", 2)
    assert absent(start, 2) == [0, 1]
    write, refused = Path.write_text, set[Path]()

    def write_text(path: Path, text: str) -> int:
        if path not in refused:
            refused.add(path)
            raise OSError(5, "Input/output error", str(path))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    found = dict[int, Node]()
    for thread in [meet(start, number, found) for number in (0, 1)]:
        thread.join(10)
    assert refused == {start / "0" / "address", start / "1" / "address", start / "endpoint"}
    assert found[0].port == found[1].port


def test_endpoint_that_an_earlier_pod_was_told_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting, "LOOK_SECONDS", 0.01)
    prepare(start := tmp_path / "start", 2)
    (start / "endpoint").write_text("127.0.0.8 4000 0000 1111\n")
    asked = []

    class EnoughError(Exception):
        pass

    def look() -> None:
        asked.append(0)
        if len(asked) > 5:
            raise EnoughError

    with pytest.raises(EnoughError):
        FolderMeeting(start, 1, 2, "127.0.0.3").node(look)


def test_pod_without_a_number_or_an_address_begins_nothing_and_says_so(tmp_path, monkeypatch):
    monkeypatch.delenv(INDEX, raising=False)
    assert meeting_of(tmp_path, 1) is None
    with pytest.raises(SettingsError, match="none of the 2 nodes of its job"):
        meeting_of(tmp_path, 2)
    monkeypatch.setenv(INDEX, "0")
    prepare(start := tmp_path / "start", 2)
    # Not one of this machine's.
    monkeypatch.setenv(ADDRESS, "192.0.2.1")
    one = meeting_of(start, 2)
    assert one is not None
    with pytest.raises(SettingsError, match="another address than it is told"):
        one.node(lambda: None)


def test_other_node_waits_for_the_first_ones_word_but_not_after_the_cluster_asks_it_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(on_node, "LOOK_SECONDS", 0.01)
    before = signal.getsignal(signal.SIGTERM)
    try:
        timer = threading.Timer(0.1, (tmp_path / END).write_bytes, [b'{"exit_code": 65}'])
        timer.start()
        on_node._after_the_first(tmp_path)
        assert (tmp_path / END).exists()
        (tmp_path / END).unlink()
        timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM])
        timer.start()
        on_node._after_the_first(tmp_path)
        assert not (tmp_path / END).exists()
        monkeypatch.setattr(on_node, "FIRST_SECONDS", 0.05)
        on_node._after_the_first(tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_node_waits_for_no_word_that_nobody_wants(tmp_path, monkeypatch):
    monkeypatch.setattr(on_node, "LOOK_SECONDS", 0.01)
    before, looks = signal.getsignal(signal.SIGTERM), iter([True, True, False])
    try:
        on_node._after_the_first(tmp_path, lambda: next(looks))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert list(looks) == []
