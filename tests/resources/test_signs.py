"""Signs of life between a worker's starter and its node, also on storage that is away for a while."""

import errno
import os
import time
from pathlib import Path

import pytest

from trainworthy.resources.backends import signs
from trainworthy.resources.backends.signs import Given, ObservedSign


def test_sign_that_was_withdrawn_is_not_given_again(tmp_path, monkeypatch):
    monkeypatch.setattr("trainworthy.resources.backends.signs.BEAT_SECONDS", 0.0)
    given, seen = Given(tmp_path / "sign"), ObservedSign(tmp_path / "sign")
    assert not seen.there()
    given.give()
    assert seen.there()
    first = (tmp_path / "sign").read_text()
    given.give()
    assert (tmp_path / "sign").read_text() != first
    given.withdraw()
    given.give()
    assert not seen.there()


class Storage:
    """A file server that is away from files of some names, by whatever way they are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away: tuple[str, ...] = ()
        for way in ("stat", "open", "read_text", "write_text", "unlink"):
            monkeypatch.setattr(Path, way, self._asked(getattr(Path, way)))

    def _asked(self, real):
        def ask(path: Path, *given, **named):
            if path.name in self.away:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
            return real(path, *given, **named)

        return ask


def test_storage_that_is_away_is_no_sign_and_no_end(tmp_path, monkeypatch):
    storage, sign, seen = Storage(monkeypatch), Given(tmp_path / "sign"), ObservedSign(tmp_path / "sign")
    sign.give()
    assert seen.there()
    first = (tmp_path / "sign").read_text()
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.0)
    storage.away = ("sign",)
    sign.give()
    assert seen.there()
    storage.away = ()
    sign.give()
    assert (tmp_path / "sign").read_text() not in (first, "")
    sign.withdraw()
    assert not seen.there()


def test_sign_that_could_not_be_given_at_first_is_given_once_the_storage_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.0)
    storage, sign = Storage(monkeypatch), Given(tmp_path / "sign")
    storage.away = ("sign",)
    sign.give()
    storage.away = ()
    assert not (tmp_path / "sign").exists()
    sign.give()
    assert (tmp_path / "sign").exists()
    # Its giver wants no more of it, also where the storage did not answer.
    storage.away = ("sign",)
    sign.withdraw()
    storage.away = ()
    before = (tmp_path / "sign").read_text()
    sign.give()
    assert (tmp_path / "sign").read_text() == before


def changes(file: Path) -> bool:
    """True once a file's content is another than now."""
    first, until = file.read_text(), time.monotonic() + 10
    while file.read_text() in (first, ""):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_sign_that_cannot_be_given_keeps_no_other_back_and_is_given_again(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.02)
    storage = Storage(monkeypatch)
    with signs.kept_up(Given(tmp_path / "one"), Given(tmp_path / "two")):
        storage.away = ("one",)
        assert changes(tmp_path / "two")
        assert changes(tmp_path / "two")
        storage.away = ()
        assert changes(tmp_path / "one")


class Broken:
    """A sign that fails in a way that nobody thought of."""

    def __init__(self) -> None:
        self.asked = 0

    def give(self) -> None:
        self.asked += 1
        if self.asked > 1:
            raise RuntimeError("never seen before")

    def withdraw(self) -> None: ...


def test_error_that_nobody_thought_of_ends_no_signs_and_is_said_once(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.02)
    broken = Broken()
    with signs.kept_up(broken, Given(tmp_path / "one")):
        assert changes(tmp_path / "one")
        assert changes(tmp_path / "one")
    assert broken.asked > 2
    assert capfd.readouterr().err.count("RuntimeError: never seen before") == 1


def test_time_in_which_nobody_could_look_is_no_silence(tmp_path, monkeypatch):
    sign, seen = tmp_path / "sign", ObservedSign(tmp_path / "sign")
    sign.write_text("1")
    clock = [time.monotonic()]
    monkeypatch.setattr(signs.time, "monotonic", lambda: clock[0])

    def after(seconds: float) -> float:
        clock[0] += seconds
        return seen.silent_seconds()

    assert after(0) == 0
    assert [after(1) for _ in range(30)] == list(range(1, 31))
    # A look that hung on a file server, or a process that was stopped: the other side may have been as well.
    assert after(500) == 30 + signs.BEAT_SECONDS
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, *given: (_ for _ in ()).throw(OSError(5, "no", str(path))))
    assert [after(1) for _ in range(30)] == [40.0] * 30
    monkeypatch.setattr(Path, "read_text", read)
    assert after(1) == 41
    sign.write_text("2")
    assert after(1) == 0


def test_signs_are_kept_up_while_their_giver_waits_and_withdrawn_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(signs, "BEAT_SECONDS", 0.02)
    files = [tmp_path / name for name in ("one", "two")]
    with signs.kept_up(*map(Given, files)):
        first = [file.read_text() for file in files]
        until = time.monotonic() + 10
        while any(file.read_text() in (old, "") for file, old in zip(files, first, strict=True)):
            assert time.monotonic() < until
            time.sleep(0.01)
    assert not any(file.exists() for file in files)
