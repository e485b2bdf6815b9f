"""The node's process, from the parcel to the end: how it ends, and what is in the bucket by then."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from travelled import Travelled, alone, fails

from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_PREEMPTED, EXIT_STORAGE
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends import on_node, signs
from trainworthy.resources.backends.on_node import ABANDONED_SECONDS, NodeEnd
from trainworthy.resources.backends.travel import arrival, wants
from trainworthy.resources.backends.travel.mirror import NodeMirror
from trainworthy.resources.backends.travel.places import LAST_SECONDS, PARCEL

SIGNAL = signal.signal


@pytest.fixture
def travelled(bucket_server, tmp_path, monkeypatch, request):
    for name in ("LOOK_SECONDS", "RENEWED_SECONDS", "TURN_SECONDS"):
        monkeypatch.setattr(wants, name, 0.01)
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.0)
    # Those of this process stay.
    monkeypatch.setattr(arrival.signal, "signal", lambda number, handler: None)
    return alone(bucket_server, tmp_path, monkeypatch, request)


def arrive(travelled: Travelled, start: str) -> int:
    own = ["--bucket", travelled.address, "--start", start, "--root", str(travelled.disk)]
    return arrival.main([*own, "--abandoned", str(ABANDONED_SECONDS), "--", "--of-the-worker"])


def does(travelled: Travelled, code: int, seen: str = "") -> Callable[..., int]:
    """A worker that answers and ends so."""

    def main(arguments: list[str], afterwards: object) -> int:
        assert arguments == ["--of-the-worker"]
        assert (travelled.there / "kubernetes/1234abcd/wanted").exists()
        travelled.write(travelled.there / "result.json", "answer")
        travelled.write(
            travelled.there / "kubernetes/1234abcd/end.json", NodeEnd(exit_code=code, seen=seen).model_dump_json()
        )
        return code

    return main


def test_node_ends_as_its_worker_once_that_is_in_the_bucket(travelled, monkeypatch):
    monkeypatch.setattr(on_node, "main", does(travelled, 75))
    under = travelled.journey()
    with under.under_way(travelled.named):
        assert arrive(travelled, under.prefix) == 75
        under.arrived()
        assert (travelled.here / "result.json").read_text() == "answer"


@pytest.mark.parametrize("changes", [{}, {"form": 2, "modes": {}, "files": None}])
def test_node_with_other_sources_runs_no_worker_and_says_what_to_do(travelled, monkeypatch, changes):
    monkeypatch.setattr(on_node, "main", lambda arguments, afterwards: pytest.fail("a worker was started"))
    under = travelled.journey()
    with under.under_way(travelled.named):
        parcel = json.loads(travelled.bucket.read(name := f"{under.prefix}/{PARCEL}")[0])
        travelled.bucket.put(name, json.dumps(parcel | changes | {"code": "0" * 64}).encode())
        assert arrive(travelled, under.prefix) == EXIT_BAD_INPUT
        under.arrived()
        error = json.loads((travelled.here / "error.json").read_text())
    assert "another Trainworthy than its launcher" in error["problem"]
    assert "image" in error["fix"]
    assert travelled.laid_out() == set()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"code": 1}'])
def test_parcel_that_is_none_is_told_as_what_cannot_be_fetched(travelled, capfd, content):
    travelled.bucket.put(f"travel/worker/1/{PARCEL}", content)
    assert arrive(travelled, "travel/worker/1") == EXIT_STORAGE
    assert "what the job needs cannot be fetched" in capfd.readouterr().err


@pytest.fixture
def real_signals(travelled, monkeypatch):
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    monkeypatch.setattr(arrival.signal, "signal", SIGNAL)
    yield
    for number in numbers:
        SIGNAL(number, before[number])


@pytest.mark.parametrize("kind", ["read", "download"])
def test_node_that_is_asked_to_end_while_it_fetches_ends_at_once_as_preempted(
    travelled, monkeypatch, real_signals, kind, capfd
):
    monkeypatch.setattr(on_node, "main", lambda arguments, afterwards: pytest.fail("a worker was started"))
    let_go, do, in_main = threading.Event(), getattr(Bucket, kind), list[bool]()

    def hangs(*given: object) -> object:
        # The bucket's own code hears no signal while it waits.
        in_main.append(threading.current_thread() is threading.main_thread())
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert let_go.wait(60)
        return do(*given)

    under = travelled.journey()
    with under.under_way(travelled.named):
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, kind, hangs)
            assert arrive(travelled, under.prefix) == EXIT_PREEMPTED
        let_go.set()
    assert True not in in_main
    assert "asked to end by SIGTERM before its worker began" in capfd.readouterr().err


def test_node_whose_output_is_gone_ends_as_it_would(travelled, monkeypatch):
    def gone(line: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrival, "say", gone)
    assert arrive(travelled, "travel/worker/none") == EXIT_STORAGE


def test_worker_that_breaks_in_an_unknown_way_leaves_what_it_wrote(travelled, monkeypatch):
    def breaks(arguments: list[str], afterwards: object) -> int:
        travelled.write(travelled.there / "trace", "a trace")
        raise RuntimeError("never seen before")

    monkeypatch.setattr(on_node, "main", breaks)
    under = travelled.journey()
    with under.under_way(travelled.named):
        assert arrive(travelled, under.prefix) == 70
        under.arrived()
        assert (travelled.here / "trace").exists()


@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [("put", 0, EXIT_STORAGE), ("upload", 0, EXIT_STORAGE), ("put", 75, 75), ("upload", 137, 137)],
)
def test_node_whose_bucket_takes_no_end_says_storage_in_place_of_success(
    travelled, monkeypatch, kind, code, told, capfd
):
    monkeypatch.setattr(arrival, "AWAY_SECONDS", 0.1)
    monkeypatch.setattr(on_node, "main", does(travelled, code))
    under = travelled.journey()
    with under.under_way(travelled.named):
        with monkeypatch.context() as patch:
            fails(patch, lambda asked, name: "before" if asked == kind else "")
            assert arrive(travelled, under.prefix) == told
        under.arrived()
        assert not (travelled.here / "result.json").exists()
    said = capfd.readouterr().err
    assert "its launcher will not know: TimeoutError" in said


@pytest.mark.parametrize("asked", ["before", "meanwhile", "not"])
def test_node_that_is_asked_to_end_takes_no_longer_than_it_is_given(travelled, monkeypatch, asked):
    """Its kubelet sends one signal, whatever the worker was at, and kills what is there a minute later."""
    worker = does(travelled, 75, seen="its node was asked to end it" if asked == "before" else "")

    def main(arguments: list[str], afterwards: Callable[[int, None], object]) -> int:
        code = worker(arguments, afterwards)
        if asked == "meanwhile":
            # Between the worker's end and what follows.
            afterwards(15, None)
        return code

    lasts: list[float] = []
    monkeypatch.setattr(on_node, "main", main)
    monkeypatch.setattr(NodeMirror, "end", lambda self, code, until: lasts.append(until() - time.monotonic()) or True)
    under = travelled.journey()
    with under.under_way(travelled.named):
        assert arrive(travelled, under.prefix) == 75
    assert (lasts[0] <= LAST_SECONDS) is (asked != "not")
    assert 0 < lasts[0] <= wants.AWAY_SECONDS


def test_node_without_a_parcel_runs_no_worker(travelled, monkeypatch, capfd):
    monkeypatch.setattr(on_node, "main", lambda arguments, afterwards: pytest.fail("a worker was started"))
    assert arrive(travelled, "travel/worker/none") == EXIT_STORAGE
    assert "its launcher is gone" in capfd.readouterr().err


def test_time_of_the_end_begins_before_a_turn_that_lasts_is_waited_for(travelled, monkeypatch):
    order, begins = list[str](), arrival._End.begins

    @contextlib.contextmanager
    def kept_up(mirror: NodeMirror) -> Iterator[None]:
        yield
        order.append("the turn is over")

    def begun(self: arrival._End, folder: Path) -> None:
        begins(self, folder)
        order.append("the end begins")

    monkeypatch.setattr(on_node, "main", does(travelled, 75))
    monkeypatch.setattr(NodeMirror, "kept_up", kept_up)
    monkeypatch.setattr(arrival._End, "begins", begun)
    under = travelled.journey()
    with under.under_way(travelled.named):
        assert arrive(travelled, under.prefix) == 75
    assert order == ["the end begins", "the turn is over"]
