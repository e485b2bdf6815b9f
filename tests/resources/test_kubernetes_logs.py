"""The log of a worker's pod, copied while it runs: each line once, whatever breaks."""

import time
from types import SimpleNamespace

from kubernetes_api import Fault, Kube
from kubernetes_played import runs

from trainworthy.resources.backends.kubernetes import logs
from trainworthy.resources.backends.kubernetes.api import lines


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
