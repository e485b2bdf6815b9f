"""Whether a worker on another disk is still wanted, by its launcher's beat in the bucket, and how its node ends."""

import errno
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from s3_servers import moto_server, reached
from travelled import fails

from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends import signs
from trainworthy.resources.backends.travel import wants
from trainworthy.resources.backends.travel.wants import BeatGiven, BeatObserved, Wants

NAME = "travel/worker/1/wanted.json"


@pytest.fixture(scope="module")
def server():
    with moto_server() as address:
        yield address


@pytest.fixture
def address(server, monkeypatch, request):
    for name in ("LOOK_SECONDS", "RENEWED_SECONDS", "TURN_SECONDS"):
        monkeypatch.setattr(wants, name, 0.01)
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.0)
    return f"{reached(monkeypatch, server)}/{request.node.name.replace('[', '/').removesuffix(']')}"


@pytest.fixture
def sign(address):
    """The launcher's, given once."""
    given = BeatGiven(address, NAME)
    given.give()
    return given


def until(true: Callable[[], object]) -> None:
    """Wait for it, as long as a busy machine may take."""
    limit = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.005)


def wanted(address: str, path: Path, abandoned_seconds: float = 3600.0) -> Wants:
    return Wants(BeatObserved(address, NAME), path, abandoned_seconds)


def changes(path: Path) -> Callable[[], bool]:
    before = path.read_text()
    return lambda: path.exists() and path.read_text() not in ("", before)


def test_worker_is_wanted_while_its_launcher_gives_signs(address, sign, tmp_path):
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        assert (tmp_path / "wanted").exists()
        until(changes(tmp_path / "wanted"))
        assert not known.gone.is_set()


def test_beat_that_is_taken_away_ends_the_worker(address, sign, tmp_path):
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        sign.withdraw()
        sign.give()
        until(known.gone.is_set)
        until(lambda: not (tmp_path / "wanted").exists())


def test_worker_whose_launcher_is_gone_before_it_begins_is_not_wanted(address, tmp_path):
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        assert known.gone.is_set()
        assert not (tmp_path / "wanted").exists()


def test_beat_that_has_stopped_ends_the_worker(address, sign, tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 10.0)
    known = wanted(address, tmp_path / "wanted", abandoned_seconds=0.2)
    with known.kept_up():
        until(known.gone.is_set)
        until(lambda: not (tmp_path / "wanted").exists())


def test_bucket_that_is_away_ends_nothing(address, sign, tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 10.0)
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        asked = fails(monkeypatch, lambda kind, name: "before")
        # The one that was on its way before may have been answered; what it counted is all that may count.
        until(lambda: len(asked) > 1)
        known._abandoned_seconds = known._beat._silent
        until(lambda: len(asked) > 5)
        until(changes(tmp_path / "wanted"))
        assert not known.gone.is_set()


def test_bucket_that_takes_no_writes_ends_nothing_and_a_late_beat_does_once_it_takes_them(
    address, sign, tmp_path, monkeypatch
):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.01)
    known = wanted(address, tmp_path / "wanted")
    with monkeypatch.context() as patch, known.kept_up():
        asked = fails(patch, lambda kind, name: "before" if kind == "put" else "")
        until(lambda: "put" in str(asked))
        # Full, read-only or slow for writes: nobody knows whether the launcher would give signs.
        known._abandoned_seconds = known._beat._silent
        until(lambda: str(asked).count("put") > 20)
        until(changes(tmp_path / "wanted"))
        assert not known.gone.is_set()
        patch.undo()
        until(known.gone.is_set)


def test_bucket_that_takes_no_writes_for_an_hour_ends_the_worker(address, sign, tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.01)
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        fails(monkeypatch, lambda kind, name: "before" if kind == "put" else "")
        monkeypatch.setattr(wants, "AWAY_SECONDS", 0.3)
        until(known.gone.is_set)


def test_bucket_that_hangs_for_longer_than_a_launcher_may_be_silent_ends_nothing(address, sign, tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 10.0)
    hangs, goes_on, read = threading.Event(), threading.Event(), Bucket.read

    def hanging(bucket: Bucket, name: str) -> object:
        if hangs.is_set():
            assert goes_on.wait(30)
        return read(bucket, name)

    monkeypatch.setattr(Bucket, "read", hanging)
    known = wanted(address, tmp_path / "wanted", abandoned_seconds=20.0)
    with known.kept_up():
        hangs.set()
        # More renewals than a silent launcher would be waited for, by on_node.py's clock.
        for _ in range(5):
            until(changes(tmp_path / "wanted"))
        assert not known.gone.is_set()
        goes_on.set()


def test_bucket_that_stays_away_for_an_hour_ends_the_worker(address, sign, tmp_path, monkeypatch):
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        fails(monkeypatch, lambda kind, name: "before")
        monkeypatch.setattr(wants, "AWAY_SECONDS", 0.1)
        until(known.gone.is_set)
        until(lambda: not (tmp_path / "wanted").exists())


def test_bucket_that_is_away_from_the_beginning_is_not_waited_for_without_end(
    address, sign, tmp_path, monkeypatch, capfd
):
    # Each look takes a hundredth of a second at least.
    fails(monkeypatch, lambda kind, name: "before" if next(looks) < 500 else pytest.fail("it waits for ever"))
    looks = itertools.count()
    monkeypatch.setattr(wants, "AWAY_SECONDS", 0.1)
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        assert known.gone.is_set()
        assert not (tmp_path / "wanted").exists()
    assert "this worker is ended: the bucket by which its launcher is heard did not answer" in capfd.readouterr().err


def test_sign_on_a_full_disk_keeps_its_last_time(address, sign, tmp_path, monkeypatch):
    known, path, opened = wanted(address, tmp_path / "wanted"), tmp_path / "wanted", Path.open

    def full(path: Path, mode: str) -> object:
        opened(path, mode).close()
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    known._renew()
    before = path.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        patch.setattr(Path, "write_text", lambda path, text: full(path, "w"))
        known._renew()
    assert path.read_text() == before
    known._renew()
    assert len(path.read_text()) == len(before)
    assert path.read_text() > before


def test_sign_on_the_node_has_the_time_of_its_launcher(address, tmp_path):
    Bucket(address).put(NAME, str(time.time_ns() - 25 * 10**9).encode())
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        behind = time.time() - int((tmp_path / "wanted").read_text()) / 1e9
    assert 24 < behind < 60


def test_launcher_whose_bucket_is_away_goes_on_giving_signs_later(address, monkeypatch):
    given = BeatGiven(address, NAME)
    with monkeypatch.context() as patch:
        fails(patch, lambda kind, name: "before")
        given.give()
        with pytest.raises(TimeoutError):
            given.give_first()
    assert not Bucket(address).has(NAME)
    given.give()
    assert Bucket(address).has(NAME)


def test_conflict_of_two_puts_is_tried_again_by_the_next_beat(address, monkeypatch):
    given, answers = BeatGiven(address, NAME), DomainDispatcherApplication.__call__
    body = b"<Error><Code>OperationAborted</Code></Error>"

    def conflict(app: object, environ: object, start_response: Callable[..., object]) -> list[bytes]:
        start_response("409 Conflict", [("Content-Length", str(len(body)))])
        return [body]

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", conflict)
    given.give()
    with pytest.raises(OSError, match="at the same time") as told:
        given.give_first()
    assert told.value.errno == errno.EAGAIN
    monkeypatch.setattr(DomainDispatcherApplication, "__call__", answers)
    given.give()
    assert Bucket(address).has(NAME)


def test_proxy_that_knows_no_store_takes_no_beat_away(address, sign, tmp_path, monkeypatch):
    answers, asked = DomainDispatcherApplication.__call__, list[str]()

    def of_a_proxy(app: object, environ: dict[str, str], start_response: Callable[..., object]) -> list[bytes]:
        asked.append(environ["REQUEST_METHOD"])
        start_response("404 Not Found", [("Content-Length", "21")])
        return [b"default backend - 404"]

    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        monkeypatch.setattr(DomainDispatcherApplication, "__call__", of_a_proxy)
        until(lambda: len(asked) > 2 * wants.ABSENCES)
        assert not known.gone.is_set()
        with pytest.raises(OSError, match="404"):
            Bucket(address).read(NAME)
        monkeypatch.setattr(DomainDispatcherApplication, "__call__", answers)
        assert Bucket(address).read("other") is None
        assert not Bucket(address).has("other")


def test_one_word_that_the_beat_is_gone_ends_nothing(address, sign, tmp_path, monkeypatch):
    known, read, times = wanted(address, tmp_path / "wanted"), Bucket.read, list[int]()

    def absent_once(bucket: Bucket, name: str) -> object:
        times.append(1)
        if len(times) == 2:
            raise TimeoutError(errno.ETIMEDOUT, "the store does not answer")
        return None if len(times) == 1 else read(bucket, name)

    with known.kept_up():
        monkeypatch.setattr(Bucket, "read", absent_once)
        until(lambda: len(times) > 3)
        assert not known.gone.is_set()


def test_first_sign_is_given_as_patiently_as_files_are_sent(address, monkeypatch):
    """A server that asks for patience, as often as a quick bucket would have waited."""
    given, answers, refused = BeatGiven(address, NAME), DomainDispatcherApplication.__call__, list[str]()

    def slow_down(app: Any, environ: dict[str, str], start_response: Callable[..., object]) -> object:
        # Of a test before, a thread may still read.
        if len(refused) > 1 or environ["REQUEST_METHOD"] != "PUT":
            return answers(app, environ, start_response)
        refused.append(environ["REQUEST_METHOD"])
        start_response("503 Slow Down", [("Content-Length", "0")])
        return [b""]

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", slow_down)
    given._bucket = Bucket(address, retry_seconds=0.0)
    given.give_first()
    assert refused == ["PUT", "PUT"]


def test_sign_is_not_made_anew_once_the_worker_is_given_up(address, sign, tmp_path):
    known = wanted(address, tmp_path / "wanted")
    known._renew()
    assert (tmp_path / "wanted").exists()
    known._give_up("its launcher is gone")
    # By the other thread, which had just looked.
    known._renew()
    assert not (tmp_path / "wanted").exists()


def test_word_that_the_launcher_is_gone_counts_though_nobody_can_be_told(address, sign, tmp_path, monkeypatch):
    def gone(line: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(wants, "say", gone)
    known = wanted(address, tmp_path / "wanted")
    with known.kept_up():
        sign.withdraw()
        until(known.gone.is_set)
        until(lambda: not (tmp_path / "wanted").exists())
