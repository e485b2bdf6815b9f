"""trainworthy attempts, and doctor on its table: every worker of a real run is in it, and none is left open."""

import time

import pytest
from doctor_checks import bad, dead_pid, only

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.protocol.attempts import ChargedTo, EndedAttempt, StartedAttempt
from trainworthy.pipeline.attempts import SHOWN, attempts_text
from trainworthy.pipeline.doctor import examine, runs
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.attempts import keep_end, this_process
from trainworthy.resources.settings import DATABASE, read_settings


def entered(name: str, step: str = "full", at: float = 0.0, *, gone: bool = False) -> StartedAttempt:
    """An attempt in the table of the state folder, of a process that is gone or of this one."""
    process = this_process()
    process = process.model_copy(update={"pid": dead_pid(), "started": time.time() - 60}) if gone else process
    one = StartedAttempt(
        attempt=name, charged_to=ChargedTo(run_id="r" * 32, use_case="toy", step=step, identity="i"), job_kind="train",
        stage="full", launcher="local", process=process, device="cpu", world_size=1, from_step=25, started_at=at,
    )  # fmt: skip
    (settings := read_settings()).var.mkdir(exist_ok=True)
    attempt_table(settings).start(one)
    return one


def test_every_worker_of_a_run_is_an_attempt_that_is_charged_to_its_step(toy):
    # As the command finds it.
    with toy.instance():
        found = attempt_table(read_settings()).rows("toy")
        text = attempts_text("toy", everything=True)
    asked = [(row.started.charged_to.step, row.started.job_kind, row.started.stage) for row in reversed(found)]
    assert asked == [
        ("preflight", "preflight", None),
        ("smoke", "train", "smoke"),
        ("pilot", "train", "pilot"),
        ("full", "train", "full"),
        ("evaluation", "predict", None),
        ("promotion", "predict", None),
        ("promotion", "train", "full"),
    ]
    assert {row.ended and row.ended.outcome for row in found} == {"answered"}
    (run_id,) = {row.started.charged_to.run_id for row in found}
    for row in found:
        record = toy.record(run_id, row.started.charged_to.step)
        assert row.started.charged_to.identity == record.identity
        assert 0 < row.seconds < record.cost.wall_seconds
        assert row.usd <= record.cost.usd
        assert row.started.charged_to.sku == "local-2cpu"
        assert (row.started.charged_to.dataset, row.started.world_size) == ("toy_rows@v1", 1)
    full = next(row for row in found if row.started.charged_to.step == "full")
    assert (full.started.from_step, full.ended and full.ended.to_step) == (0, toy.record(run_id, "full").steps)
    lines = text.splitlines()
    assert len(lines) == 1 + len(found) + 2
    # The newest is the control of reproducibility's, which keeps no checkpoint.
    assert "  first updates again  " in lines[1]
    assert lines[1].split().index(run_id[:8]) == lines[1].split().index("-") + 1
    assert lines[-1].startswith("7 attempts: ")
    assert lines[-1].endswith(f" and {sum(row.usd for row in found):.4f} USD together")
    assert f"0 to {toy.record(run_id, 'full').steps}  {run_id[:8]}" in text


def test_attempts_are_told_newest_first_with_how_each_ended(place):
    assert attempts_text("toy", everything=False).startswith("no worker was started yet for toy (in /")
    entered("a", at=0.0)
    entered("b", "promotion", at=1.0)
    table = attempt_table(read_settings())
    table.end(
        EndedAttempt(
            attempt="a",
            outcome="failed",
            ended_at=9.0,
            seconds=7.0,
            cause="killed",
            told="a\nb",
            exit_code=-9,
            to_step=50,
        )
    )
    titles, second, first, empty, total = attempts_text("", everything=False).splitlines()
    assert (empty, total[:34]) == ("", "2 attempts (2 of them without a pr")
    assert titles.split()[:3] == ["from", "(UTC)", "use"]
    assert "promotion  first updates again  " in second
    assert "not yet; its last sign was" in second
    assert first.startswith("1970-01-01 00:00:00  toy")
    assert first.endswith("failed, killed (-9): a b")
    assert "25 to 50" in first
    for number in range(SHOWN):
        entered(f"c{number}", at=2.0)
    last = attempts_text("toy", everything=False).splitlines()[-1]
    assert last.startswith(f"{SHOWN} attempts (")
    assert last.endswith(" together, the newest; all of them: trainworthy attempts toy --all")
    text = attempts_text("toy", everything=True)
    assert len(text.splitlines()) == 1 + 2 + SHOWN + 2
    assert "25 to ?" in text


def test_attempts_of_an_unknown_use_case_name_the_nearest_one(place):
    with pytest.raises(SettingsError, match="did you mean 'toy'"):
        attempts_text("tyo", everything=False)


def test_doctor_attempt_of_a_gone_process_is_told_and_ended_only_by_fix(place):
    (place / "state").mkdir()
    assert bad(runs.attempts) == []
    entered("a", at=time.time())
    assert bad(runs.attempts) == []
    gone = entered("b", gone=True, at=time.time())
    told = f"its process (pid {gone.process.pid}) is gone"
    only(runs.attempts, "! open attempts: 1 were left open: toy full: ", told, "trainworthy doctor --fix")
    assert [line for line in examine.repairs() if "attempt" in line] == [
        f"repaired: attempt b (toy full, run rrrrrrrr) is lost: {told}"
    ]
    assert bad(runs.attempts) == []


def test_doctor_end_that_was_kept_is_told_and_entered_by_fix(place, monkeypatch):
    entered("a")
    keep_end(read_settings(), EndedAttempt(attempt="a", outcome="answered", ended_at=3.0, seconds=1.0))
    only(runs.attempts, "! open attempts: 1 ends are kept in ", "none was left open")
    monkeypatch.setattr("trainworthy.resources.attempts.PATIENCE_SECONDS", -1.0)
    assert list(runs.repair_attempts(read_settings())) == ["the end of attempt a is entered, which was kept"]
    assert bad(runs.attempts) == []


def test_doctor_table_that_takes_no_rows_fails_and_looking_leaves_none(place):
    entered("a", at=1.0)
    assert bad(runs.attempts) == []
    assert [row.last_sign for row in attempt_table(read_settings()).rows()] == [1.0]
    database = place / "state" / "attempts.db"
    database.write_bytes(b"no database" * 100)
    only(runs.attempts, "✗ attempts: the table of attempts in ", "file is not a database", "move it away")


def test_doctor_address_that_cannot_be_used_fails_without_its_password(place, monkeypatch):
    (place / "state").mkdir()
    monkeypatch.setenv(DATABASE, "mysql://me:hush@db/x")
    only(runs.attempts, f"✗ attempts: {DATABASE} names no PostgreSQL database", "write postgresql://USER")
    assert "hush" not in str(bad(runs.attempts))
