"""A line that is slow: nothing that comes is given up, nothing that does not is waited for, and requests have room."""

import threading
from collections.abc import Callable
from typing import Any

import obstore
import pytest
from travelled import bytes_of, end

from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.storage.durable import bucket as buckets
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.lifecycle.storage.durable.line import Line
from trainworthy.resources.backends.travel import arrival, turns
from trainworthy.resources.backends.travel.parcel import keep
from trainworthy.resources.backends.travel.places import LAST_SECONDS, at_once
from trainworthy.resources.backends.travel.turns import Moved
from trainworthy.resources.backends.travel.wants import AWAY_SECONDS, BeatObserved, Wants


class Clock:
    """Goes on as a test says."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    for module in (turns, arrival):
        monkeypatch.setattr(module, "time", clock)
    return clock


def parts_take(monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float, fails: Callable[[int], bool]) -> None:
    """Parts of four bytes take so long, and some fail, by where they begin."""
    get = obstore.get

    def slow(store: Any, name: str, **given: Any) -> Any:
        if (part := (given.get("options") or {}).get("range")) is not None:
            clock.now += seconds
            if fails(part[0]):
                raise OSError("the line is away")
        return get(store, name, **given)

    monkeypatch.setattr(buckets, "PART_BYTES", 4)
    monkeypatch.setattr(obstore, "get", slow)


def test_what_comes_slowly_is_waited_for_as_long_as_it_comes(travelled, monkeypatch, clock):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "predictions.parquet", bytes_of(1, 20))
        end(travelled)
        mirror.turn(0)
        parts_take(monkeypatch, clock, 400.0, lambda at: False)
        journey.arrived()
        assert clock.now == 1000.0 + 5 * 400.0
        assert (travelled.here / "predictions.parquet").read_bytes() == bytes_of(1, 20)


def test_download_that_begins_again_and_again_and_comes_no_further_is_an_error(travelled, monkeypatch, clock):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "predictions.parquet", bytes_of(1, 20))
        end(travelled)
        mirror.turn(0)
        parts_take(monkeypatch, clock, 250.0, lambda at: at >= 8 and clock.now < 20000.0)
        with pytest.raises(BackendError, match=r"nor any part of it for 600 s: OSError: the line is away"):
            journey.arrived()


def test_end_of_a_node_goes_on_while_something_of_it_goes(travelled, clock):
    wants, moved = Wants(BeatObserved(travelled.address, "wanted"), travelled.here / "wanted", 60.0), Moved()
    until = arrival._End(wants, moved).until
    clock.now += AWAY_SECONDS - 1
    moved.note("a", 8)
    clock.now += AWAY_SECONDS - 1
    assert until() > clock.now
    # The same part once more.
    moved.note("a", 8)
    clock.now += 2
    assert until() < clock.now


def test_node_that_is_asked_to_end_has_its_seconds_once(travelled, clock):
    wants = Wants(BeatObserved(travelled.address, "wanted"), travelled.here / "wanted", 60.0)
    asked = arrival._End(wants, Moved())
    asked.soon()
    first = asked.until()
    assert first == clock.now + LAST_SECONDS
    clock.now += 20
    asked.soon()
    wants.gone.set()
    assert asked.until() == first


def test_each_file_and_chunk_that_went_counts_as_something_that_went(travelled, monkeypatch, clock):
    upload, put = Bucket.upload, Bucket.put

    def slowly(bucket: Bucket, name: str, *given: Any) -> None:
        clock.now += 1000
        (upload if len(given) == 2 else put)(bucket, name, *given)

    with travelled.under_way() as (_, mirror):
        monkeypatch.setattr(Bucket, "upload", slowly)
        travelled.write(travelled.there / "a", "a")
        mirror.turn()
        assert mirror.moved.at == clock.now == 2000.0
        travelled.write(travelled.there / "b", "b")
        end(travelled)
        mirror.turn(0)
        assert mirror.moved.at == clock.now == 4000.0
        monkeypatch.setattr(Bucket, "put", slowly)
        mirror._streams.send("pipes-1/messages", travelled.there / "a", ended=True)
        assert mirror.moved.at == clock.now == 5000.0


class UnderWay:
    """Requests that take until so many are `together`: the most of bytes and of requests that there were at once."""

    def __init__(self, together: int) -> None:
        self._alone, self._now, self._together, self._enough = (
            threading.Lock(),
            list[int](),
            together,
            threading.Event(),
        )
        self.most, self.most_requests = 0, 0

    def take(self, size: int) -> None:
        with self._alone:
            self._now.append(size)
            self.most, self.most_requests = max(self.most, sum(self._now)), max(self.most_requests, len(self._now))
            if len(self._now) >= self._together:
                self._enough.set()
        assert self._enough.wait(60)
        # As long as another needs to begin that should not.
        threading.Event().wait(0.02)
        with self._alone:
            self._now.remove(size)


@pytest.mark.parametrize("large", [True, False])
def test_files_that_are_sent_at_once_have_room_on_the_line_for_each_request(travelled, monkeypatch, large):
    monkeypatch.setattr(buckets, "LINE", Line(24))
    line, put = UnderWay(1 if large else 2), obstore.put

    def sent(store: Any, name: str, file: Any, **given: Any) -> Any:
        line.take(min(len(file._file.read()), 24))
        file._file.seek(0)
        return put(store, name, file, **given)

    paths = [travelled.home / str(number) for number in range(8)]
    for number, path in enumerate(paths):
        travelled.write(path, bytes_of(number, 40 if large else 10))
    monkeypatch.setattr(obstore, "put", sent)
    at_once(lambda path: keep(travelled.bucket, path, sha256_file(path)), paths)
    assert line.most <= 24
    assert line.most_requests == (1 if large else 2)


def test_files_that_are_fetched_at_once_have_room_on_the_line_for_each_request(travelled, monkeypatch):
    line, get = UnderWay(3), obstore.get
    for number in range(8):
        travelled.bucket.put(str(number), bytes_of(number, 10))

    def came(store: Any, name: str, **given: Any) -> Any:
        start, stop = given["options"]["range"]
        line.take(stop - start)
        return get(store, name, **given)

    monkeypatch.setattr(buckets, "LINE", Line(24))
    monkeypatch.setattr(buckets, "PART_BYTES", 8)
    monkeypatch.setattr(obstore, "get", came)
    at_once(lambda number: travelled.bucket.download(str(number), travelled.home / f"{number}.back"), range(8))
    assert line.most <= 24
    assert line.most_requests >= 3
    for number in range(8):
        assert (travelled.home / f"{number}.back").read_bytes() == bytes_of(number, 10)


def test_room_is_given_back_by_whoever_fails():
    line = Line(8)
    for _ in range(3):
        with pytest.raises(OSError, match="away"), line.room(100):
            raise OSError("away")
    with line.room(8):
        pass
