"""Streams: whoever reads one at the launcher, as Dagster reads Pipes' messages, sees whole lines, and each once."""

import io
from pathlib import Path
from typing import Any

import pytest
from travelled import Travelled, end, fails

from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends.travel import streams
from trainworthy.resources.backends.travel.places import Gate

MESSAGES = "pipes-1/messages"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch, travelled):
    monkeypatch.setattr(streams, "CHUNK_BYTES", 10)
    travelled.write(travelled.here / MESSAGES, "")


def seen(travelled: Travelled, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is in the file here each time that the launcher asks the bucket for more."""
    read, contents = Bucket.read, list[str]()

    def looking(bucket: Bucket, name: str) -> object:
        contents.append((travelled.here / MESSAGES).read_text())
        return read(bucket, name)

    monkeypatch.setattr(Bucket, "read", looking)
    return contents


@pytest.mark.parametrize("lines", ["abc\n" * 7, "one\n" + "x" * 35 + "\ntwo\n", "x" * 9 + "\n" + "y" * 10 + "\n"])
def test_no_chunk_shows_half_a_line(travelled, monkeypatch, lines):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / MESSAGES, lines)
        mirror.turn()
        contents = seen(travelled, monkeypatch)
        journey._take()
        assert (travelled.here / MESSAGES).read_text() == lines
        assert len(contents) > 3
        assert all(content == "" or content.endswith("\n") for content in contents)


def test_chunk_in_the_bucket_ends_with_a_line_where_it_can(travelled):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / MESSAGES, "abcdef\n" * 3 + "x" * 12 + "\nhalf")
        mirror.turn()
        names = travelled.bucket.names(f"{journey.prefix}/streams")
        chunks = [travelled.bucket.read(name)[0] for name in names]
    assert chunks == [b"abcdef\n"] * 3 + [b"x" * 10, b"xx\n"]


def test_line_that_is_half_written_comes_once_it_is_whole(travelled):
    with travelled.under_way() as (journey, mirror):
        for content, come in (("one\ntw", "one\n"), ("one\ntwo\nth", "one\ntwo\n"), ("one\ntwo\nth" + "r" * 9, None)):
            travelled.write(travelled.there / MESSAGES, content)
            mirror.turn()
            journey._take()
            assert (travelled.here / MESSAGES).read_text() == (come or "one\ntwo\n")
        # Its writer was killed within a line.
        end(travelled, 137)
        mirror.turn(137)
        journey.arrived()
        assert (travelled.here / MESSAGES).read_text() == "one\ntwo\n"


@pytest.mark.parametrize("full", [False, True])
def test_each_line_is_written_by_a_call_of_its_own_and_a_short_one_is_an_error(travelled, monkeypatch, full):
    calls, write_of = list[bytes](), io.FileIO.write

    class Written(io.FileIO):
        def write(self, content: Any) -> int:
            calls.append(bytes(content))
            return write_of(self, content[: len(content) - full])

    monkeypatch.setattr(Path, "open", lambda path, mode, buffering: Written(path, mode))
    received = streams.StreamsReceived(travelled.bucket, "p", travelled.here, Gate(), lambda name, size: None)
    if full:
        with pytest.raises(OSError, match="No space left"):
            received._write(travelled.here / MESSAGES, 0, b"one\ntwo\n")
    else:
        received._write(travelled.here / MESSAGES, 0, b"one\ntwo\n")
    assert calls == [b"one\n", b"two\n"][: 1 if full else 2]


def test_lines_that_a_full_disk_has_cut_off_are_written_again(travelled, monkeypatch):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / MESSAGES, lines := "first\nsecond\nthird\n")
        mirror.turn()
        write = streams.StreamsReceived._write

        def full(self: streams.StreamsReceived, path: Path, at: int, content: bytes) -> None:
            write(self, path, at, content[:3])
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(streams.StreamsReceived, "_write", full)
            with pytest.raises(OSError, match="No space left"):
                journey._take()
        journey._take()
        assert (travelled.here / MESSAGES).read_text() == lines


def test_request_of_a_chunk_that_is_served_late_changes_nothing_of_it(travelled, monkeypatch):
    put, late = Bucket.put, list[tuple[str, bytes]]()

    def lost(bucket: Bucket, name: str, content: bytes) -> None:
        if "streams/" in name and not late:
            late.append((name, content))
            raise TimeoutError(110, "the store does not answer", name)
        put(bucket, name, content)

    with travelled.under_way() as (journey, mirror):
        monkeypatch.setattr(Bucket, "put", lost)
        travelled.write(travelled.there / MESSAGES, "one\n")
        with pytest.raises(TimeoutError):
            mirror.turn()
        travelled.write(travelled.there / MESSAGES, "one\ntwo\n")
        mirror.turn()
        travelled.bucket.put(*late[0])
        journey._take()
        assert (travelled.here / MESSAGES).read_text() == "one\ntwo\n"


def test_stream_whose_file_is_gone_here_is_written_anew_and_holds_up_nothing(travelled):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "pipes-9/messages", "of another reader\n")
        travelled.write(travelled.there / "result.json", "answer")
        end(travelled)
        mirror.turn(0)
        journey.arrived()
        assert (travelled.here / "result.json").read_text() == "answer"
        assert (travelled.here / "pipes-9/messages").read_text() == "of another reader\n"


def test_messages_come_while_a_turn_sends_and_fetches_a_large_file(travelled, monkeypatch):
    """What is read as it comes waits for no file, on both sides."""
    upload, download = Bucket.upload, Bucket.download

    def sending(*given: Any) -> None:
        mirror._turn_beside()
        journey._take()
        shown.append((travelled.here / MESSAGES).read_text())
        upload(*given)

    def fetching(*given: Any) -> None:
        travelled.write(travelled.there / MESSAGES, "one\ntwo\n")
        mirror._in_turn = True
        mirror._turn_beside()
        journey._take_beside()
        shown.append((travelled.here / MESSAGES).read_text())
        download(*given)

    shown = list[str]()
    with travelled.under_way() as (journey, mirror):
        monkeypatch.setattr(Bucket, "upload", sending)
        monkeypatch.setattr(Bucket, "download", fetching)
        travelled.write(travelled.there / "large", "large")
        travelled.write(travelled.there / MESSAGES, "one\n")
        mirror.turn()
        assert not (travelled.here / "large").exists()
        journey._take()
        assert (travelled.here / "large").exists()
    assert shown == ["one\n", "one\ntwo\n"]


def test_last_messages_come_though_the_end_does_not(travelled, monkeypatch):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "large", "large")
        mirror.turn()
        travelled.write(travelled.there / "large", "too large")
        travelled.write(travelled.there / MESSAGES, "one\n")
        fails(monkeypatch, lambda kind, name: "before" if kind == "upload" else "")
        assert not mirror.end(75, lambda: 0.0 if mirror.failed_by else float("inf"))
        journey._take()
        assert (travelled.here / MESSAGES).read_text() == "one\n"
        assert (travelled.here / "large").read_text() == "large"


def test_between_turns_and_at_the_end_nothing_is_said_beside_them(travelled, monkeypatch):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / MESSAGES, "one\n")
        asked = fails(monkeypatch, lambda kind, name: "")
        mirror._turn_beside()
        journey._take_beside()
        assert mirror.end(75, lambda: float("inf"))
        mirror._in_turn, asked[:] = True, []
        mirror._turn_beside()
        assert asked == []
