"""What is entered around a worker's life: its start, signs and end, and what becomes of an end that is not taken."""

import subprocess
import sys

import pytest
from attempt_rows import CHARGED, Told, question, rows, started, training

from trainworthy.lifecycle.errors import AttemptError, WorkerError
from trainworthy.lifecycle.protocol.attempts import EndedAttempt
from trainworthy.resources import attempts
from trainworthy.resources.attempt_table import AttemptTable, attempt_table
from trainworthy.resources.attempts import kept_ends, recorded, settle, this_process
from trainworthy.resources.backends import local
from trainworthy.resources.settings import Settings
from trainworthy.resources.worker_process import Nobody, run_worker


def test_worker_that_never_started_is_no_attempt(settings, tmp_path):
    with recorded(question(tmp_path), CHARGED, Told()) as attempt:
        attempt.look()
    assert not (settings.var / "attempts.db").exists()


def test_question_has_no_steps(settings, tmp_path):
    with recorded(question(tmp_path), CHARGED, Told()) as attempt:
        attempt.begin()
    (row,) = rows(settings)
    assert row.ended is not None
    assert (row.started.job_kind, row.started.stage, row.started.from_step, row.ended.to_step) == (
        "verify", None, None, None,
    )  # fmt: skip


def test_signs_of_life_are_entered_at_most_every_thirty_seconds(settings, tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(attempts.time, "monotonic", lambda: clock[0])
    beats: list[float] = []
    monkeypatch.setattr(AttemptTable, "beat", lambda self, attempt, at: beats.append(clock[0]))
    with recorded(question(tmp_path), CHARGED, Told()) as attempt:
        attempt.begin()
        for _ in range(95):
            clock[0] += 1.0
            attempt.look()
    assert beats == [1030.0, 1060.0, 1090.0]


def unusable(settings: Settings) -> None:
    """No file can be made where the table belongs; root's rights do not matter."""
    (settings.var / "attempts.db").mkdir()


def test_training_whose_attempt_cannot_be_entered_does_not_start(settings, tmp_path, hasty, monkeypatch):
    unusable(settings)
    monkeypatch.setattr(local, "start_worker", lambda *given, **how: pytest.fail("a worker was started"))
    job = training(tmp_path)
    with pytest.raises(AttemptError) as caught, recorded(job, CHARGED, Told()) as attempt:
        run_worker(job, watcher=attempt)
    assert str(caught.value) == (
        f"the table of attempts in {settings.var}/attempts.db cannot be read: unable to open database file\n"
        "  fix: make the file and its folder writable and free space there; a damaged file: move it away"
    )


def test_question_whose_attempt_cannot_be_entered_says_so_and_goes_on(settings, tmp_path, hasty):
    unusable(settings)
    log = Told()
    with recorded(question(tmp_path), CHARGED, log) as attempt:
        attempt.begin()
        attempt.look()
    (line,) = log.lines
    assert line.startswith("warning: verify: not in the table of attempts, so its cost is missing there: the table of")


def test_worker_begins_after_its_folder_is_free_and_is_looked_at_while_it_lives(tmp_path, monkeypatch):
    order: list[str] = []

    def start(*given, **how):
        order.append("start")
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(65)"], start_new_session=True)

    class Follows(Nobody):
        def begin(self) -> None:
            order.append(f"begin, holder {(tmp_path / '.lock').read_text().partition(' ')[0]}")

        def look(self) -> None:
            order.append("look")

    monkeypatch.setattr(local, "start_worker", start)
    with pytest.raises(WorkerError):
        run_worker(question(tmp_path), watcher=Follows())
    assert order[:3] == ["begin, holder process", "start", "look"]


def test_end_that_cannot_be_entered_is_kept_and_told_and_the_next_start_enters_it(settings, tmp_path, hasty):
    log, job = Told(), question(tmp_path)
    with recorded(job, CHARGED, log) as attempt:
        attempt.begin()
        aside = (settings.var / "attempts.db").rename(settings.var / "aside")
        unusable(settings)
    (kept,) = kept_ends(settings)
    (line,) = log.lines
    assert line.startswith(f"error: verify: the end of its attempt is kept in {kept}; the next run enters it")
    (settings.var / "attempts.db").rmdir()
    aside.rename(settings.var / "attempts.db")
    with recorded(job, CHARGED, log) as attempt:
        attempt.begin()
    assert log.lines[1:] == [f"info: the end of attempt {kept.stem[:8]} is entered, which was kept"]
    assert kept_ends(settings) == []
    assert [row.ended and row.ended.outcome for row in rows(settings)] == ["answered", "answered"]


def test_kept_end_comes_before_what_else_would_call_the_attempt_lost(settings):
    gone = this_process().model_copy(update={"started": 1.0})
    attempt_table(settings).start(started("a", process=gone))
    own = EndedAttempt(attempt="a", outcome="answered", ended_at=3.0, seconds=1.0)
    attempts.keep_end(settings, own)
    # Young, so that its own process may still be at it: entered without a word.
    assert settle(settings) == []
    assert [row.ended for row in rows(settings)] == [own]


def test_kept_end_that_cannot_be_read_is_named(settings):
    path = attempts.keep_end(settings, EndedAttempt(attempt="a", outcome="answered", ended_at=3.0, seconds=1.0))
    path.write_text("{")
    with pytest.raises(AttemptError, match="a kept end of an attempt cannot be read") as caught:
        settle(settings)
    assert caught.value.value == str(path)


def test_end_of_an_attempt_that_was_ended_before_is_told_and_changes_nothing(settings, tmp_path):
    log = Told()
    with recorded(question(tmp_path), CHARGED, log) as attempt:
        attempt.begin()
        (row,) = rows(settings)
        lost = EndedAttempt(attempt=row.started.attempt, outcome="lost", ended_at=3.0, seconds=1.0, told="silent")
        attempt_table(settings).end(lost)
    assert log.lines == ["warning: verify: its attempt had been ended before, as lost: silent"]
    assert (rows(settings)[0].ended, kept_ends(settings)) == (lost, [])
