"""Turns, and what is done at once: whatever hangs, fails or is interrupted, each ends in its time."""

import itertools
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from travelled import fails

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))

from trainworthy.lifecycle.errors import StateError
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends.travel import mirror as mirrors
from trainworthy.resources.backends.travel import turns
from trainworthy.resources.backends.travel.parcel import fetch
from trainworthy.resources.backends.travel.places import ENDED, Gate, Index, at_once


def test_end_that_the_bucket_does_not_take_is_not_said_to_be_there(travelled, monkeypatch):
    with travelled.under_way() as (_, mirror):
        with monkeypatch.context() as patch:
            asked = fails(patch, lambda kind, name: "before" if name.endswith(ENDED) else "")
            assert not mirror.end(0, lambda: 0.0 if len(asked) > 1 else float("inf"))
        assert mirror.end(0, lambda: float("inf"))


def test_end_that_hangs_or_sends_a_large_file_is_waited_for_until_its_time_alone(travelled, monkeypatch):
    let_go, asked = threading.Event(), list[str]()

    def hangs(bucket: Bucket, name: str, path: Path, note: object) -> None:
        asked.append(name)
        assert let_go.wait(60)

    with travelled.under_way() as (_, mirror):
        travelled.write(travelled.there / "a", "a")
        monkeypatch.setattr(Bucket, "upload", hangs)
        # The time is asked for meanwhile: a signal may make it an earlier one.
        assert not mirror.end(0, lambda: 0.0 if asked else float("inf"))
        let_go.set()


def test_download_of_a_start_that_is_over_ends_between_two_parts(travelled, monkeypatch):
    monkeypatch.setattr("trainworthy.lifecycle.storage.durable.bucket.PART_BYTES", 4)
    travelled.bucket.put(key := f"files/{'0' * 64}", b"twelve bytes")
    gate, sizes = Gate(), list[int]()

    def go_on(size: int) -> None:
        sizes.append(size)
        if len(sizes) == 2:
            gate.close()
        gate.check()

    with pytest.raises(OSError, match="nobody waits"):
        travelled.bucket.download(key, travelled.here / "a", go_on)
    assert (travelled.here / "a").stat().st_size == 4
    with pytest.raises(OSError, match="nobody waits"):
        fetch(travelled.bucket, key, travelled.here / "b", gate)
    assert [path.name for path in travelled.here.iterdir()] == ["a"]


def test_files_at_once_keep_their_order_and_none_is_begun_after_an_error():
    assert at_once(lambda number: number * 2, range(50)) == list(range(0, 100, 2))
    begun = list[int]()

    def work(number: int) -> None:
        begun.append(number)
        raise IndexError(number)

    with pytest.raises(IndexError):
        at_once(work, range(5000))
    assert len(begun) < 100


def test_who_is_interrupted_waits_for_no_file_and_nor_does_the_process():
    code = """
        import _thread, threading
        from trainworthy.resources.backends.travel.places import at_once

        def work(number):
            _thread.interrupt_main()
            threading.Event().wait()

        try:
            at_once(work, range(20))
        except KeyboardInterrupt:
            print("interrupted")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.returncode) == ("interrupted\n", 0)


def test_unchanged_turns_ask_the_bucket_for_nothing(travelled, monkeypatch):
    with travelled.under_way() as (_, mirror):
        travelled.write(travelled.there / "a", "a")
        mirror.turn()
        asked = fails(monkeypatch, lambda kind, name: "")
        mirror.turn()
        assert asked == []


def test_states_of_a_file_that_grows_do_not_stay_and_one_that_comes_back_is_sent_again(travelled, monkeypatch):
    monkeypatch.setattr(mirrors, "SUPERSEDED_SECONDS", 0.0)
    with travelled.under_way() as (journey, mirror):
        for content in ("one", "one two", "one two three", "one"):
            travelled.write(travelled.there / "metrics.jsonl", content)
            travelled.write(travelled.there / "stays", "as it is")
            mirror.turn()
            assert len(travelled.bucket.names(f"{journey.prefix}/files")) == 2
            journey._take()
            assert (travelled.here / "metrics.jsonl").read_text() == content
        assert (travelled.here / "stays").read_text() == "as it is"
        # The same file, moved away and back.
        (travelled.there / "stays").rename(travelled.there / ".away")
        mirror.turn()
        (travelled.there / ".away").rename(travelled.there / "stays")
        mirror.turn()
        assert len(travelled.bucket.names(f"{journey.prefix}/files")) == 2


def test_state_that_was_superseded_just_now_stays_for_a_launcher_that_has_read_of_it(travelled):
    with travelled.under_way() as (journey, mirror):
        for content in ("one", "two", "three"):
            travelled.write(travelled.there / "a", content)
            mirror.turn()
        assert len(travelled.bucket.names(f"{journey.prefix}/files")) == 3


def test_all_objects_of_a_start_are_removed_by_one_request(travelled, monkeypatch):
    asked = fails(monkeypatch, lambda kind, name: "")
    with travelled.under_way() as (_, mirror):
        for name in "abc":
            travelled.write(travelled.there / name, name)
        mirror.turn()
    assert len([request for request in asked if request.startswith("delete")]) == 1
    assert travelled.bucket.names("travel") == []


def test_index_is_as_small_as_it_can_be_said(travelled):
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Index(turn=0, files={}, streams={})


def test_turn_that_fails_in_whatever_way_ends_no_thread_and_is_told_once(monkeypatch):
    monkeypatch.setattr(turns, "_PAUSE_SECONDS", 0.001)
    told, failures = list[str](), [KeyError("a"), OSError("b"), StateError("c", fix="d"), ValueError("e")]

    def turn() -> None:
        if failures:
            raise failures.pop()

    made = turns.Turns(turn, "nothing comes", told.append)
    assert made.insist(turn, lambda: float("inf"))
    again = ["nothing comes, and it is tried again", "what failed and was tried again has come to be"]
    assert [line.partition(":")[0] for line in told] == again


def test_turns_go_on_though_nobody_can_be_told(monkeypatch):
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.001)
    count, came = itertools.count(), threading.Event()

    def turn() -> None:
        if next(count) < 5:
            raise OSError("away")
        came.set()

    def tell(line: str) -> None:
        raise OSError("no space left")

    with turns.Turns(turn, "nothing comes", tell).kept_up():
        assert came.wait(20)


class Held:
    """A lock that another has, and that says when somebody waits for it."""

    def __init__(self) -> None:
        self.free, self.waits = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        self.waits.set()
        assert self.free.wait(60)

    def __exit__(self, *error: object) -> None: ...


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_turns_end_with_what_they_are_kept_up_for(monkeypatch):
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.001)
    before = threads("turns of a bucket")
    with turns.Turns(lambda: None, "nothing comes").kept_up():
        (thread,) = [thread for thread in threads("turns of a bucket") if thread not in before]
    assert not thread.is_alive()


def test_turn_that_waited_for_another_is_not_made_once_nobody_waits_for_it(monkeypatch):
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.001)
    monkeypatch.setattr(turns, "STOP_SECONDS", 0.0)
    monkeypatch.setattr(turns, "_PAUSE_SECONDS", 0.001)
    made, before = list[str](), threading.enumerate()
    of_turns = turns.Turns(lambda: made.append("turn"), "nothing comes")
    monkeypatch.setattr(of_turns, "_alone", held := Held())
    with of_turns.kept_up():
        assert held.waits.wait(60)
    assert not of_turns.insist(lambda: made.append("last"), lambda: 0.0)
    waiting = [thread for thread in threading.enumerate() if thread not in before]
    assert len(waiting) == 2
    held.free.set()
    for thread in waiting:
        thread.join(60)
    assert made == []
