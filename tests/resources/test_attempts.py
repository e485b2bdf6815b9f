"""The table of attempts, in SQLite and in a real PostgreSQL: every start of a worker is in it once, and ends once."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from attempt_rows import CHARGED, Told, rows, started, training
from postgres_server import PASSWORD, postgres_server
from sqlalchemy import event

from trainworthy.lifecycle.errors import AttemptError, BackendError, SettingsError, TrainworthyError, WorkerError
from trainworthy.lifecycle.protocol.attempts import AttemptRow, EndedAttempt, Process
from trainworthy.resources import attempts
from trainworthy.resources.attempt_table import AttemptTable, attempt_table, database_url
from trainworthy.resources.attempts import SILENT_SECONDS, kept_ends, recorded, settle, this_process, why_lost
from trainworthy.resources.settings import DATABASE, Settings, read_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))


# A process that enters attempts and says how many it could: arguments are their number and what to do then.
WRITER = """
import os, signal, sys, time
from trainworthy.lifecycle.protocol.attempts import ChargedTo
from trainworthy.lifecycle.protocol.jobs import VerifyJob
from trainworthy.resources.attempts import recorded

class Log:
    def info(self, line): print(line, file=sys.stderr)
    warning = error = info

charged = ChargedTo(run_id=f"run-{os.getpid()}", use_case="toy", step="rollback", identity="i")
job = VerifyJob(use_case_folder="u", out="o", device="cpu", artifact="a", artifact_sha256="s")
for _ in range(int(sys.argv[1])):
    with recorded(job, charged, Log()) as attempt:
        attempt.begin()
        attempt.look()
        if sys.argv[2] == "wait":
            print("begun", flush=True)
            time.sleep(600)
"""


@pytest.fixture(scope="module")
def server():
    with postgres_server() as server:
        yield server


@pytest.fixture
def shared(settings, server, monkeypatch) -> Settings:
    """The same with a database of its own on the server."""
    name = f"attempts_{time.monotonic_ns()}"
    server.execute(f"CREATE DATABASE {name}")
    monkeypatch.setenv(DATABASE, server.url(name))
    return read_settings()


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request) -> Settings:
    return request.getfixturevalue("settings" if request.param == "sqlite" else "shared")


def test_attempt_is_read_back_as_it_was_entered_with_its_newest_sign_and_its_end(either):
    table, one = attempt_table(either), started("a", from_step=2**40, stage="full")
    assert table.rows() == ()
    table.start(one)
    assert table.rows() == (AttemptRow(started=one, last_sign=100.0),)
    table.beat("a", 130.5)
    table.beat("a", 160.25)
    end = EndedAttempt(
        attempt="a", outcome="failed", ended_at=1830.125, seconds=1730.125, cause="hang", told="none — ü", exit_code=76,
        to_step=2**41,
    )  # fmt: skip
    assert table.end(end) == end
    (row,) = attempt_table(either).rows()
    assert row == AttemptRow(started=one, last_sign=160.25, ended=end)
    assert (row.seconds, row.usd) == (1730.125, pytest.approx(1730.125 / 1800))
    assert AttemptRow(started=one, last_sign=160.25).seconds == 60.25


def test_attempts_are_listed_newest_first_of_one_use_case_or_without_an_end(either):
    table, other = attempt_table(either), CHARGED.model_copy(update={"use_case": "other"})
    for name, at, charged_to in (("a", 1.0, CHARGED), ("c", 3.0, other), ("b", 2.0, CHARGED)):
        table.start(started(name, at, charged_to=charged_to))
    table.end(EndedAttempt(attempt="b", outcome="answered", ended_at=3.0, seconds=1.0))

    def named(**which) -> str:
        return "".join(row.started.attempt for row in table.rows(**which))

    assert (named(), named(use_case="toy"), named(only_open=True), named(most=2)) == ("cba", "ba", "ca", "cb")
    other_run = started("d", charged_to=CHARGED.model_copy(update={"run_id": "run-2", "sku": "large"}))
    assert named(of=other_run) == "ba"
    others = {"step": "promotion"}, {"identity": "j"}, {"use_case": "none"}
    assert [named(of=started("d", charged_to=CHARGED.model_copy(update=one))) for one in others] == ["", "", ""]
    assert (named(of=started("d", stage="smoke_seed_3")), named(of=started("d", job_kind="predict"))) == ("", "")


def test_first_end_of_an_attempt_stands_and_nothing_is_ever_changed_or_removed(either):
    said: list[str] = []
    table = attempt_table(either)
    event.listen(table._engine, "before_cursor_execute", lambda *given: said.append(given[2].upper()))
    first = EndedAttempt(attempt="a", outcome="lost", ended_at=3.0, seconds=1.0, told="gone")
    for _ in range(2):
        table.start(started("a"))
        table.beat("a", 2.0)
        assert table.end(first) == first
    assert table.end(first.model_copy(update={"outcome": "answered"})) == first
    (row,) = table.rows()
    assert (row.ended, row.last_sign) == (first, 2.0)
    assert [line for line in said if line.startswith("INSERT")]
    assert [line for line in said if "UPDATE" in line or "DELETE" in line or "DROP" in line] == []


def test_two_processes_that_make_the_table_and_write_at_once_lose_nothing(either):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, "10", "end"], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [writer.communicate(timeout=120)[1] for writer in writers]
    assert ([writer.returncode for writer in writers], said) == ([0, 0], ["", ""])
    found = rows(either)
    assert len(found) == 20
    assert {row.started.charged_to.run_id for row in found} == {f"run-{writer.pid}" for writer in writers}
    assert {row.ended and row.ended.outcome for row in found} == {"answered"}


def test_tables_that_are_made_by_many_at_once_are_made_once(either):
    tables, begin = [attempt_table(either) for _ in range(8)], threading.Barrier(8)

    def enter(number: int) -> None:
        begin.wait()
        tables[number].start(started(f"a{number}"))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(enter, range(8))) == [None] * 8
    assert len(rows(either)) == 8


def test_attempt_of_a_killed_process_is_lost_and_that_of_a_living_one_is_not(either):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, "1", "wait"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        assert [writer.stdout and writer.stdout.readline() for writer in writers] == ["begun\n", "begun\n"]
        assert settle(either) == []
        killed, alive = writers
        killed.send_signal(signal.SIGKILL)
        # Not waited for yet: dead and not collected is gone as well.
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        (line,) = settle(either)
        assert f"(toy rollback, run run-{killed.pid})"[:25] in line
        assert f"is lost: its process (pid {killed.pid}) is gone" in line
        assert settle(either) == []
        ended = {row.started.process.pid: row.ended for row in rows(either)}
        lost = ended[killed.pid]
        assert lost is not None
        assert (lost.outcome, lost.cause, lost.exit_code) == ("lost", None, None)
        assert ended[alive.pid] is None
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_process_that_only_has_the_number_of_a_gone_one_does_not_keep_its_attempt_open():
    here = this_process()
    row = AttemptRow(started=started("a"), last_sign=100.0)
    assert why_lost(row, here, 1e9) == ""
    earlier = here.model_copy(update={"started": here.started - 60})
    assert "is gone" in why_lost(AttemptRow(started=started("a", process=earlier), last_sign=1.0), here, 2.0)


@pytest.mark.parametrize("changed", [{"host": "other"}, {"pid_space": "another start of it"}])
def test_attempt_of_another_machine_is_lost_only_after_a_long_silence(changed):
    # Its number is that of a living process here, which says nothing; nor would a gone one.
    elsewhere = Process.model_validate(this_process().model_dump() | changed)
    row = AttemptRow(started=started("a", process=elsewhere), last_sign=1000.0)
    assert why_lost(row, this_process(), 1000.0 + SILENT_SECONDS) == ""
    assert "no sign of life from" in why_lost(row, this_process(), 1001.0 + SILENT_SECONDS)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (None, ("answered", None, "", 0)),
        (WorkerError("k\0", fix="f", exit_code=-9, cause="killed"), ("failed", "killed", "k", -9)),
        (ValueError("x" * 600), ("failed", None, f"ValueError: {'x' * 488}", None)),
        (BackendError("no node", fix="f"), ("failed", None, "no node", None)),
        (KeyboardInterrupt(), ("cancelled", None, "KeyboardInterrupt", None)),
    ],
)
def test_attempt_ends_with_what_ended_its_worker(either, tmp_path, raised, expected):
    job, log = training(tmp_path, reached=25), Told()

    def life() -> None:
        with recorded(job, CHARGED, log) as attempt:
            attempt.begin()
            (tmp_path / "smoke" / "checkpoints" / "step-00000050").mkdir()
            if raised is not None:
                raise raised

    if raised is None:
        life()
    else:
        with pytest.raises(type(raised)) as caught:
            life()
        assert caught.value is raised
    (row,) = rows(either)
    assert row.ended is not None
    assert (row.ended.outcome, row.ended.cause, row.ended.told, row.ended.exit_code) == expected
    assert (row.started.stage, row.started.from_step, row.ended.to_step) == ("smoke", 25, 50)
    assert (row.started.charged_to, row.started.launcher, row.started.world_size) == (CHARGED, "local", 1)
    assert (log.lines, kept_ends(either)) == ([], [])


@pytest.mark.parametrize(
    ("named", "problem", "shown"),
    [
        ("mysql://me:hush@db/x", "names no PostgreSQL database", "mysql://db/x"),
        ("postgres://me:hush@db/x", "names no PostgreSQL database", "postgres://db/x"),
        ("postgresql+psycopg2://me:hush@db/x", "names no PostgreSQL database", "postgresql+psycopg2://db/x"),
        ("me:hush@db", "holds no address of a database", None),
        ("postgresql://me:hush@db:port/x", "holds no address of a database", "postgresql://db:port/x"),
        ("postgresql://me:hu@hush@db/x", "has more than one @", "postgresql://db/x"),
    ],
)
def test_address_that_cannot_be_used_is_one_error_without_its_password(settings, monkeypatch, named, problem, shown):
    monkeypatch.setenv(DATABASE, named)
    with pytest.raises(SettingsError) as caught:
        attempt_table(read_settings())
    assert (caught.value.problem, caught.value.value) == (f"{DATABASE} {problem}", shown)
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(read_settings())


def test_address_of_postgresql_means_the_installed_driver():
    for named in ("postgresql://me@db/x", "postgresql+psycopg://me@db/x"):
        assert database_url(named).drivername == "postgresql+psycopg"


def test_postgresql_without_its_package_is_told_with_the_command(settings, monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://me:hush@db/x")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingsError, match="PostgreSQL needs a package") as caught:
        attempt_table(read_settings())
    assert "pip install 'trainworthy[postgresql]'" in caught.value.fix


def refused(settings: Settings, *, read: bool = False) -> str:
    """What is said where an attempt cannot be entered, or read."""
    table = attempt_table(settings)
    with pytest.raises(TrainworthyError) as caught:
        table.rows() if read else table.start(started("a"))
    assert type(caught.value) is AttemptError
    assert PASSWORD not in str(caught.value)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


def test_server_that_cannot_be_reached_or_refuses_is_one_error_without_the_password(shared, server):
    away = replace(shared, database=shared.database.replace(str(server.port), "1"))
    assert "in postgresql+psycopg://127.0.0.1:1/attempts_" in refused(away)
    assert f"or correct {DATABASE}" in refused(away, read=True)
    assert "password authentication failed" in refused(replace(shared, database=shared.database.replace("s3c", "s4c")))
    assert 'database "none" does not exist' in refused(replace(shared, database=server.url("none")))


def test_server_that_only_reads_refuses_the_training_and_still_lists(shared, server, tmp_path, hasty):
    attempt_table(shared).start(started("a"))
    name = shared.database.rpartition("/")[2]
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    job = training(tmp_path)
    with (
        pytest.raises(AttemptError, match="cannot execute INSERT in a read-only transaction"),
        recorded(job, CHARGED, Told()) as attempt,
    ):
        attempt.begin()
    assert [row.started.attempt for row in rows(shared)] == ["a"]


def test_user_who_may_only_add_and_read_rows_is_enough(shared, server):
    attempt_table(shared).start(started("a"))
    name, user = shared.database.rpartition("/")[2], f"adder_{time.monotonic_ns()}"
    server.execute(
        f"CREATE USER {user} PASSWORD 'p'", f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO {user}",
        database=name,
    )  # fmt: skip
    table = attempt_table(replace(shared, database=f"postgresql://{user}:p@127.0.0.1:{server.port}/{name}"))
    table.start(started("b"))
    table.beat("b", 1.0)
    end = EndedAttempt(attempt="b", outcome="answered", ended_at=3.0, seconds=1.0)
    assert table.end(end) == end
    assert len(table.rows()) == 2


def test_server_that_crashes_between_a_sign_of_life_and_the_end_gets_the_end_once_it_is_back(
    shared, server, tmp_path, monkeypatch
):
    monkeypatch.setattr(attempts, "BEAT_SECONDS", 0.0)
    end, log, kept = AttemptTable.end, Told(), []

    def restarted_after_a_try(self: AttemptTable, ended: EndedAttempt) -> EndedAttempt:
        try:
            return end(self, ended)
        except AttemptError:
            kept.extend(kept_ends(shared))
            server.start()
            raise

    monkeypatch.setattr(AttemptTable, "end", restarted_after_a_try)
    with recorded(training(tmp_path), CHARGED, log) as attempt:
        attempt.begin()
        attempt.look()
        server.crash()
        attempt.look()
        attempt.look()
    (line,) = log.lines
    assert line.startswith("warning: train: no sign of life in the table of attempts: the table of attempts in postg")
    (row,) = rows(shared)
    assert row.ended is not None
    assert (row.ended.outcome, len(kept), kept_ends(shared)) == ("answered", 1, [])
    assert row.last_sign > row.started.started_at


def test_server_that_stays_away_gets_the_end_from_its_file_later(shared, server, tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.5)
    log = Told()
    with recorded(training(tmp_path), CHARGED, log) as attempt:
        attempt.begin()
        server.crash()
    server.start()
    (kept,) = kept_ends(shared)
    (line,) = log.lines
    assert line.startswith(f"error: train: the end of its attempt is kept in {kept}; the next run enters it, or train")
    assert [row.ended for row in rows(shared)] == [None]
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.0)
    assert len(settle(shared)) == 1
    (row,) = rows(shared)
    assert row.ended is not None
    assert json.loads(row.ended.model_dump_json())["outcome"] == "answered"
