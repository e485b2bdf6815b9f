"""What is sent of trainings, by a real receiver: each subject once, its recovery once, and after a crash none less."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from verdict_logs import log_in, logged
from webhook_receiver import receiving

from trainworthy.assets import announce as announcing
from trainworthy.assets.announce import announce, announce_rollback
from trainworthy.assets.stopped import StoppedError, error_check
from trainworthy.assets.training_alerts import about, with_incidents, with_judgements, with_stop
from trainworthy.lifecycle.alert import read_alerts
from trainworthy.lifecycle.errors import ChampionError, WorkerError
from trainworthy.lifecycle.failure import End, error_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case

TOY = load_use_case(Path(__file__).parents[1] / "toy" / "use_cases" / "toy")
LOG = logging.getLogger("alerts")
GOOD = CheckResult(name="finite", status="pass")


def failed(name, evidence="broken", **rest):
    return CheckResult(name=name, status="fail", evidence=evidence, fix="mend it", **rest)


def alarm(incident: str | None = "toy/1/smoke/3-non_finite_loss"):
    return Alarm(
        step=3, onset=3, monitor="non_finite_loss", severity="critical", symptom="the loss is nan", evidence="nan",
        cause="a division", fix="look", action="stop", row_keys=({"row_id": "Ada"},), incident=incident, last_step=3,
    )  # fmt: skip


@pytest.fixture
def receiver(monkeypatch):
    with receiving() as server:
        monkeypatch.setenv("TRAINWORTHY_WEBHOOK", server.url)
        yield server


@pytest.fixture
def workspace(tmp_path):
    state = StateFolder(tmp_path)
    shared = FolderState(state.root)
    return SimpleNamespace(state=state, shared=shared, records=StateRecords(shared))


def ends(workspace, *checks, step="smoke", run="run", again=False):
    announce(workspace, TOY, LOG, lambda state: with_stop(state, TOY, step, run, checks), again=again)


@pytest.mark.parametrize(
    ("step", "check", "subject"),
    [
        ("smoke", failed("finite"), "stopped run"),
        ("preflight", failed("cost_forecast"), "budget"),
        ("pilot", failed("remaining_cost"), "budget"),
        ("full", failed("steps", code="budget"), "budget"),
        ("promotion", failed("cost"), "budget"),
        ("preflight", CheckResult(name="cost_forecast", status="insufficient", required=True), "stopped run"),
    ],
)
def test_stop_is_sent_once_and_its_recovery_once_by_the_next_run_that_passes_the_step(
    workspace, receiver, step, check, subject
):
    ends(workspace, check, step=step)
    ends(workspace, check.model_copy(update={"observed": 2.0}), step=step, run="next")
    assert receiver.told() == [("error", subject, "toy_rows@v1")]
    ends(workspace, GOOD, step="dataset")
    assert receiver.told() == []
    for run in ("third", "fourth"):
        ends(workspace, GOOD, step=step, run=run)
    assert receiver.told() == [("recovered", subject, "toy_rows@v1")]


def test_stop_by_another_check_is_another_finding_and_one_by_two_subjects_two(workspace, receiver):
    ends(workspace, failed("finite"))
    ends(workspace, failed("learned"))
    ends(workspace, failed("learned"), failed("remaining_cost"))
    assert [what for _, what, _ in receiver.told()] == ["stopped run", "stopped run", "budget"]


def test_stop_that_names_rows_sends_none(workspace, receiver):
    ends(workspace, failed("finite", "loss is nan; first of 2 rows: row_id=Ada", details=({"row_id": "Ada"},)))
    (alert,) = receiver.taken
    assert alert["evidence"] == "smoke: finite: loss is nan"
    assert "Ada" not in str(receiver.taken)


def of_worker(exit_code=70, exception="ValueError", problem="could not convert string to float: 'Ada, 1815-12-10'"):
    """The check of an end of the worker, as its error.json tells it."""
    told = {"problem": f"{exception}: {problem}", "fix": "correct it", "exception": exception}
    return error_check(error_of(End(exit_code=exit_code, told=told)))


def test_stop_by_an_exception_in_the_worker_sends_its_class_and_never_its_message(workspace, receiver):
    check = of_worker()
    assert "Ada" in check.evidence
    ends(workspace, check)
    trials = ({"check": "wiring.reach", "status": "error", "evidence": check.evidence},)
    ends(workspace, failed("wiring", f"wiring.reach: {check.evidence}", details=trials), step="preflight")
    assert [alert["evidence"] for alert in receiver.taken] == [
        "smoke: completed: the worker stopped (bug.ValueError), see the log of the run",
        "preflight: wiring: wiring.reach could not be tried, see the report",
    ]
    assert "Ada" not in str(receiver.taken)


def test_stop_by_another_class_or_cause_in_the_worker_is_sent_anew(workspace, receiver):
    for check in (of_worker(), of_worker(problem="another row"), of_worker(71), of_worker(exception="KeyError")):
        ends(workspace, check)
    told = [alert["evidence"].partition("(")[2].partition(")")[0] for alert in receiver.taken]
    assert told == ["bug.ValueError", "out of memory.ValueError", "bug.KeyError"]


def test_step_without_a_record_that_the_worker_ended_sends_no_message_either(workspace, receiver):
    try:
        try:
            raise error_of(
                End(exit_code=70, told={"problem": "ValueError: 'Ada'", "fix": "", "exception": "ValueError"})
            )
        except WorkerError as error:
            raise StoppedError(f"toy stopped at full\n{error}") from None
    except StoppedError as stop:
        (check,) = announcing._checks(None, stop)
    ends(workspace, check)
    ends(workspace, announcing._completed(RuntimeError("Ada")), step="dataset")
    assert len(receiver.taken) == 2
    assert "Ada" not in str(receiver.taken)


def test_stop_by_another_error_of_the_same_step_is_sent_anew(workspace, receiver):
    for problem in ("the disk is full, 3 GB are needed", "the disk is full, 4 GB are needed", "MLflow does not answer"):
        ends(workspace, CheckResult(name="completed", status="error", evidence=problem))
    assert [alert["evidence"].partition(": ")[2] for alert in receiver.taken] == [
        "completed: the disk is full, 3 GB are needed",
        "completed: MLflow does not answer",
    ]


def test_incident_is_sent_once_with_its_replay_and_without_its_rows(workspace, receiver):
    of = about(TOY, "incident", "smoke", "run")
    for _ in range(2):
        announce(workspace, TOY, LOG, lambda state: with_incidents(state, of, [alarm(), alarm(incident=None)]))
    (alert,) = receiver.taken
    assert (alert["subject"], alert["severity"], alert["check"]) == ("incident", "error", "non_finite_loss")
    assert "trainworthy replay toy/1/smoke/3-non_finite_loss" in alert["fix"]
    assert "Ada" not in str(alert)


def judged(workspace, action, version, reason="", before=None):
    logged(
        log_in(workspace.state.root), action=action, model_version=version,
        verdict_sha256=version * 64, previous_verdict_sha256=before, reason=reason,
    )  # fmt: skip


def test_verdict_and_rollback_are_sent_once_each_also_of_a_run_that_was_killed(workspace, receiver):
    def look(judged=False):
        announce(workspace, TOY, LOG, lambda state: with_judgements(state, workspace, TOY, "run", judged=judged))

    look()
    judged(workspace, "promote", "1")
    judged(workspace, "promote", "2", before="1" * 64)
    # That run was killed before it sent anything: the next one does, at its first step.
    look()
    judged(workspace, "rollback", "1", "late flights were missed", before="2" * 64)
    announce_rollback(workspace, TOY, "run", LOG)
    look(judged=True)
    sent = [(alert["subject"], alert["severity"], alert["evidence"]) for alert in receiver.taken]
    assert sent == [
        ("verdict", "info", "promote, version 1: the record of the verdict is gone"),
        ("verdict", "info", "promote, version 2: the record of the verdict is gone"),
        ("rollback", "info", "the champion is version 1 again, version 2 is withdrawn: late flights were missed"),
    ]


def test_verdicts_of_before_the_first_look_are_not_sent_but_for_the_run_s_own(workspace, receiver):
    judged(workspace, "promote", "1")
    judged(workspace, "promote", "2", before="1" * 64)
    announce(workspace, TOY, LOG, lambda state: with_judgements(state, workspace, TOY, "run", judged=True))
    assert [alert["evidence"].partition(":")[0] for alert in receiver.taken] == ["promote, version 2"]


def test_refused_rollback_and_a_log_that_was_changed_are_no_reason_to_break(workspace, receiver):
    path = workspace.state.folder("verdicts", "toy.jsonl")
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    announce_rollback(workspace, TOY, "run", LOG)
    announce_rollback(workspace, TOY, "run", LOG, refused=ChampionError("gone", fix="restore it"))
    (alert,) = receiver.taken
    assert (alert["severity"], alert["what"], alert["evidence"]) == ("error", "rollback", "refused: gone")


def test_receiver_that_refuses_is_tried_again_by_the_next_run_in_order(workspace, receiver, caplog):
    receiver.answer = 500
    ends(workspace, failed("finite"))
    ends(workspace, failed("learned"), step="pilot")
    assert "alert not delivered" in caplog.text
    receiver.taken.clear()
    ends(workspace, GOOD, step="dataset")
    assert receiver.taken == []
    receiver.answer = 200
    ends(workspace, GOOD, step="dataset", again=True)
    ends(workspace, GOOD, step="dataset", again=True)
    assert sorted(alert["step"] for alert in receiver.taken) == ["pilot", "smoke"]


def test_stop_that_recovers_before_the_receiver_took_it_is_not_sent(workspace, receiver):
    receiver.answer = 500
    ends(workspace, failed("finite"))
    receiver.answer, receiver.taken = 200, []
    ends(workspace, GOOD, again=True)
    assert receiver.taken == []


@pytest.mark.parametrize(("write", "times"), [(1, 1), (2, 2)])
def test_run_that_is_killed_while_it_sends_loses_no_alert_and_doubles_an_equal_one_at_most(
    workspace, receiver, monkeypatch, write, times
):
    """Killed after the first write, before it sends, or before the second one, when it has sent."""
    writes = []
    real = announcing.write_alerts

    def killed(path, state):
        writes.append(path)
        if len(writes) == write:
            if write == 1:
                real(path, state)
            raise SystemExit
        real(path, state)

    monkeypatch.setattr(announcing, "write_alerts", killed)
    with pytest.raises(SystemExit):
        ends(workspace, failed("finite"))
    monkeypatch.setattr(announcing, "write_alerts", real)
    ends(workspace, GOOD, step="dataset", again=True)
    assert len(receiver.taken) == times
    assert len({alert["key"] for alert in receiver.taken}) == 1
    assert read_alerts(workspace.state.folder("alerts", "toy.json")).waiting == ()
