"""The job's folder here as it is there: folders that are files now, what grows, what cannot be read, what stays."""

import errno
import os
import shutil
from typing import Any

import obstore
import pytest
from obstore.exceptions import NotModifiedError
from travelled import Travelled, end, fails

from trainworthy.lifecycle.errors import BackendError
from trainworthy.resources.backends.on_node import ALIVE, NodeEnd, read_end
from trainworthy.resources.backends.travel import journey as journeys
from trainworthy.resources.backends.travel import mirror as mirrors
from trainworthy.resources.backends.travel import sent
from trainworthy.resources.backends.travel.places import ENDED, INDEX


def files(travelled: Travelled) -> dict[str, str]:
    """What is in the launcher's folder of the job, without signs."""
    found = (path for path in travelled.here.rglob("*") if path.is_file() and "kubernetes" not in path.parts)
    return {path.relative_to(travelled.here).as_posix(): path.read_text() for path in found}


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ({"report/a.html": "old", "report/deep/b": "b"}, {"report": "a file"}),
        ({"report": "old"}, {"report/a.html": "a", "report/deep/b": "b"}),
        ({"report/deep": "old"}, {"report/deep/b/c": "c"}),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_folder_that_is_a_file_there_and_a_file_that_is_a_folder_arrive(travelled, here, there, code):
    for name, text in here.items():
        travelled.write(travelled.here / name, text)
    with travelled.under_way() as (journey, mirror):
        for path in travelled.there.glob("report"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, text in there.items():
            travelled.write(travelled.there / name, text)
        end(travelled, code)
        mirror.turn(code)
        journey.arrived()
        assert files(travelled) == there


def test_signs_of_starts_are_no_folder_that_a_file_takes_the_place_of(travelled):
    with travelled.under_way() as (journey, mirror):
        shutil.rmtree(travelled.there / "kubernetes")
        travelled.write(travelled.there / "kubernetes", "a file")
        mirror.turn()
        with pytest.raises(IsADirectoryError):
            journey._take()
        assert (travelled.here / "kubernetes/1234abcd").is_dir()


def test_folder_that_cannot_be_read_for_a_moment_is_not_taken_for_gone(travelled, monkeypatch):
    travelled.write(travelled.here / "artifact/model.pt", "earlier")
    scandir, failed = os.scandir, list[str]()

    def flaky(path: Any) -> Any:
        if str(path).endswith("out/artifact") and not failed:
            failed.append(str(path))
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return scandir(path)

    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "artifact/model.pt", "new")
        end(travelled)
        monkeypatch.setattr(os, "scandir", flaky)
        with pytest.raises(OSError, match="Too many open files"):
            mirror.turn(0)
        mirror.turn(0)
        journey.arrived()
        assert files(travelled) == {"artifact/model.pt": "new"}


def test_success_without_a_word_of_its_end_is_an_error(travelled, monkeypatch):
    monkeypatch.setattr(journeys, "ARRIVE_SECONDS", 0.0)
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "late.bin", "late")
        mirror.turn()
        monkeypatch.setattr(journey._turns, "insist", lambda take, until: journey._turns._done(take))
        with pytest.raises(BackendError, match=rf"its end is not there: .*/{ENDED}"):
            journey.arrived(succeeded=True)
        # Of one that was killed all that came by then is there.
        journey.arrived()
        assert files(travelled) == {"late.bin": "late"}
        end(travelled)
        mirror.turn(0)
        journey.arrived(succeeded=True)
        assert read_end(travelled.here / "kubernetes/1234abcd") == NodeEnd(exit_code=0)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_file_that_only_grows_is_sent_again_by_a_tenth_or_after_a_minute_and_whole_at_the_end(travelled, monkeypatch):
    clock = Clock()
    for module in (mirrors, sent):
        monkeypatch.setattr(module, "time", clock)
    path = travelled.there / "metrics.jsonl"

    def comes_as(size: int) -> bool:
        mirror.turn()
        journey._take()
        return (travelled.here / "metrics.jsonl").stat().st_size == size

    with travelled.under_way() as (journey, mirror):
        for size, seconds, comes in ((1000, 0, True), (1099, 59, False), (1100, 0, True), (1110, 60, True)):
            clock.now += seconds
            travelled.write(path, "x" * size)
            assert comes_as(size) is comes
        # Another file in its place is another file, also one that is little longer; so is one that is shorter.
        travelled.write(travelled.there / "new", "y" * 1111)
        (travelled.there / "new").rename(path)
        assert comes_as(1111)
        travelled.write(path, "y" * 1105)
        assert comes_as(1105)
        travelled.write(path, "y" * 1106)
        end(travelled)
        mirror.turn(0)
        journey.arrived()
        assert (travelled.here / "metrics.jsonl").read_text() == "y" * 1106


def test_file_that_a_turn_sends_is_left_at_its_next_part_once_the_worker_has_ended(travelled):
    with travelled.under_way() as (journey, mirror):
        with mirror.kept_up():
            travelled.write(travelled.there / "a", "a")
        with pytest.raises(OSError, match="the worker has ended"):
            mirror.turn()
        end(travelled)
        assert mirror.end(0, lambda: float("inf"))
        journey.arrived(succeeded=True)
        assert files(travelled) == {"a": "a"}


def test_links_hidden_files_and_odd_names_that_stay_there_are_told_at_the_end(travelled, capfd):
    with travelled.under_way() as (journey, mirror):
        for name in ("empty", "artifact/.meta", "artifact/.git/config", "artifact/__pycache__/a.pyc", ".lock"):
            travelled.write(travelled.there / name, "")
        (travelled.there / "latest").symlink_to("empty")
        travelled.write(travelled.there / "fetched/.of_one_place", "")
        end(travelled)
        assert mirror.end(0, lambda: float("inf"))
        journey.arrived()
        assert files(travelled) == {"empty": ""}
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "stay on this node" in line]
    assert line.endswith("stay on this node: latest, artifact/.git, artifact/.meta")


def test_nothing_is_told_where_nothing_stays(travelled, capfd):
    with travelled.under_way() as (_, mirror):
        travelled.write(travelled.there / "a", "a")
        assert mirror.end(0, lambda: float("inf"))
    assert "stay on this node" not in capfd.readouterr().err


def test_index_that_is_as_it_was_is_not_fetched_again(travelled, monkeypatch):
    get, same = obstore.get, list[str]()

    def told(store: Any, name: str, **given: Any) -> Any:
        try:
            return get(store, name, **given)
        except NotModifiedError:
            same.append(name)
            raise

    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "first")
        mirror.turn()
        monkeypatch.setattr(obstore, "get", told)
        for _ in range(3):
            journey._take()
        assert same == [f"{journey.prefix}/{INDEX}"] * 2
        travelled.write(travelled.there / "a", "second")
        mirror.turn()
        journey._take()
        assert files(travelled) == {"a": "second"}


def test_index_of_an_earlier_turn_that_is_written_late_takes_nothing_back(travelled):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "before")
        mirror.turn()
        late = travelled.bucket.read(f"{journey.prefix}/{INDEX}")[0]
        travelled.write(travelled.there / "a", "after!")
        mirror.turn()
        journey._take()
        told = (journey._folder / ALIVE).stat().st_ino
        journey._take()
        travelled.bucket.put(f"{journey.prefix}/{INDEX}", late)
        journey._take()
        # Nor is it a sign of life.
        assert (journey._folder / ALIVE).stat().st_ino == told
        assert files(travelled) == {"a": "after!"}


def test_file_whose_request_has_failed_is_sent_by_the_next_turn(travelled, monkeypatch):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "a")
        with monkeypatch.context() as patch:
            fails(patch, lambda kind, name: "before" if kind == "upload" else "")
            with pytest.raises(TimeoutError):
                mirror.turn()
        mirror.turn()
        journey._take()
        assert files(travelled) == {"a": "a"}
