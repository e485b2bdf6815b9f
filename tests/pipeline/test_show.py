"""What `trainworthy verdict` says that is served."""

import argparse
from types import SimpleNamespace
from typing import Any

import pytest
from verdict_logs import log_in, logged

from tests.lifecycle import report_records
from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.history import RolledBack
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.protocol.records import Record, Step, StoppedStep, Verdict
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.lifecycle.storage.records import StateRecords, record_sha256
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.pipeline import compare, show
from trainworthy.pipeline.commands import verdict as verdict_command
from trainworthy.pipeline.not_passed import not_passed_text


def judged(version: str, threshold: float) -> Verdict:
    point = OperatingPoint(decision=DecisionSpec(capacity=0.1), threshold=threshold)
    return report_records.verdict("promote").model_copy(update={"model_version": version, "decides": point})


def entry(version: str) -> LogEntry:
    return LogEntry(
        number=1, use_case="toy", action="rollback", model_version=version, verdict_sha256=version,
        previous_verdict_sha256=None, previous_entry_sha256=None, entry_sha256="", written_at="2026-11-26T00:00:00",
    )  # fmt: skip


class Kept:
    """Records of two verdicts."""

    def __init__(self, *_: Any) -> None: ...

    def get(self, _use_case: str, _step: str, sha256: str) -> Verdict:
        if sha256 != "2":
            raise RecordError("the record is gone", value=sha256, fix="restore it")
        return judged("2", 0.05471)


@pytest.mark.parametrize(
    ("champion", "lines"),
    [
        ("3", ["served      it decides: 1 from an answer of 0.1088 on"]),
        (
            "2",
            [
                "served      it decides: 1 from an answer of 0.05471 on",
                "judged      version 3 decides: 1 from an answer of 0.1088 on",
            ],
        ),
        (
            "1",
            [
                "served      what it decides is not known: the record is gone",
                "judged      version 3 decides: 1 from an answer of 0.1088 on",
            ],
        ),
        (None, ["judged      version 3 decides: 1 from an answer of 0.1088 on"]),
    ],
)
def test_served_is_what_the_champion_decides_and_not_a_version_that_was_withdrawn(monkeypatch, champion, lines):
    monkeypatch.setattr(show, "records_of", Kept)
    told = show._decides(judged("3", 0.1088), None if champion is None else entry(champion))
    assert [line.partition(";")[0] for line in told.splitlines()] == lines


def test_promotion_that_was_rolled_back_is_not_told_as_if_it_stood():
    promoted = judged("2", 0.1)
    off = RolledBack(model_version="2", to_version="1", at="2026-11-26T00:00:00", reason="late answers")
    assert show.decided(promoted, None) == "PROMOTE"
    assert show.decided(promoted, off) == "PROMOTE, rolled back since"
    worse = promoted.model_copy(update={"headline": "worse than gradient boosting"})
    assert show.decided(worse, off) == "PROMOTE, rolled back since, worse than gradient boosting"


def test_how_many_rows_have_a_rare_event_stands_beside_its_groups(monkeypatch):
    snapshot = report_records.snapshot()
    monkeypatch.setattr(show, "_snapshot", lambda verdict: snapshot)
    told = show._judged_on(judged("1", 0.1))
    label = "label late (arrives 15 or more minutes after schedule)"
    assert told == f"judged on   54,961 rows in 61 groups, {label}: 13,025 of 54,961 rows are 1\n"
    window = snapshot.splits["benchmark"].model_copy(update={"positives": None, "labels": "minutes"})
    snapshot = snapshot.model_copy(update={"splits": {"benchmark": window}})
    assert show._judged_on(judged("1", 0.1)) == f"judged on   54,961 rows in 61 groups, {label}\n"
    monkeypatch.setattr(show, "_snapshot", lambda verdict: None)
    assert show._judged_on(judged("1", 0.1)) == ""


@pytest.fixture
def kept(tmp_path, monkeypatch) -> StateRecords:
    """The records of a state whose verdict log `show` reads."""
    records = StateRecords(FolderState(tmp_path))
    monkeypatch.setattr(show, "records_of", lambda settings: records)
    monkeypatch.setattr(show, "verdict_log", lambda use_case: log.read(log_in(tmp_path, use_case)))
    return records


def made(records: StateRecords, version: str) -> Verdict:
    """A verdict whose record was written, as before its entry."""
    verdict = judged(version, 0.5)
    records.put(verdict, f"run{version}")
    return verdict


def test_newest_verdict_is_the_one_that_was_entered_last_whichever_record_was_written_last(kept, tmp_path):
    first, second = made(kept, "1"), made(kept, "2")
    previous = None
    entered: tuple[tuple[log.Action, Verdict], ...] = (("promote", first), ("promote", second), ("rollback", first))
    for action, verdict in entered:
        logged(
            log_in(tmp_path, "flight_delays"), action=action, model_version=verdict.model_version,
            verdict_sha256=record_sha256(verdict), previous_verdict_sha256=previous,
        )  # fmt: skip
        previous = record_sha256(verdict)
    assert show._not_entered("flight_delays") == ""
    # One that woke too late: its record was written, its entry was refused.
    late = made(kept, "3")
    assert kept.newest("flight_delays", "promotion") == late
    assert show.newest_verdict("flight_delays") == second
    told = f"Not in the log, so it does not count: the verdict of run {late.provenance.run_id}\n"
    assert show._not_entered("flight_delays") == told


def test_verdict_that_is_not_in_the_log_is_an_error_where_the_log_has_none(kept):
    with pytest.raises(RecordError, match="there is no verdict yet"):
        show.newest_verdict("flight_delays")
    late = made(kept, "1")
    with pytest.raises(RecordError, match="the newest verdict is not in the log") as caught:
        show.newest_verdict("flight_delays")
    assert caught.value.value == late.provenance.run_id


def test_long_reason_of_a_stop_is_told_once_in_full(kept, monkeypatch):
    stop = SimpleNamespace(
        label="Stopped at snapshot", why="Leakage: " + "498 rows equal a training row; " * 20, changes=("mend it",)
    )
    monkeypatch.setattr(show, "newest_stop", lambda use_case, store: ("7", stop))
    with pytest.raises(RecordError) as caught:
        show.newest_verdict("flight_delays")
    assert len(caught.value.problem) < 300
    assert caught.value.problem.endswith(" …")


def test_run_that_was_interrupted_is_told_to_go_on(kept, monkeypatch):
    monkeypatch.setattr(show, "newest_stop", lambda use_case, store: ("7", None))
    with pytest.raises(RecordError, match="was interrupted") as caught:
        show.newest_verdict("flight_delays")
    assert (caught.value.value, "goes on from its newest checkpoint" in caught.value.fix) == ("run 7", True)


@pytest.mark.parametrize(
    ("ended", "fix"),
    [
        ("run again: finished steps are reused", "finished steps are reused; train the first model: dagster"),
        ("see the traceback", "See the traceback; then train the first model: dagster"),
    ],
)
def test_run_that_only_has_to_be_run_again_is_told_with_one_command(kept, monkeypatch, ended, fix):
    monkeypatch.setattr(show, "judge_fix", lambda use_case, entries: "train the first model: dagster job execute")
    records = report_records.judged()
    check = CheckResult(name="completed", status="error", evidence="cancelled", fix=ended)
    verdict = records.pop("promotion")
    head = {name: getattr(verdict, name) for name in Record.model_fields}
    stopped = StoppedStep(**head, error="cancelled").model_copy(update={"checks": (check,)})
    for record in (*records.values(), stopped):
        kept.put(record, "run1")
    with pytest.raises(RecordError, match="the newest run was stopped at promotion: cancelled") as caught:
        show.newest_verdict("flight_delays")
    assert caught.value.fix == f"{fix} job execute"


def test_compare_shows_both_operating_points_where_there_are_some():
    def row(first: Any, second: Any) -> list[tuple[str, str, str]]:
        mine, theirs = (SimpleNamespace(verdict=SimpleNamespace(decides=one)) for one in (first, second))
        return list(compare._decides(mine, theirs))  # pyright: ignore[reportArgumentType]

    point = judged("2", 0.25).decides
    assert row(point, None) == [("decides", "1 from an answer of 0.25 on", "answers alone")]
    assert row(None, None) == []


@pytest.mark.parametrize("decision", ["shadow", "promote"])
def test_simpler_model_that_is_better_is_told_before_what_passed(decision):
    held = (("linear.not_shown", "Near."),) if decision == "shadow" else ()
    others = (("champion.first", "First."), ("gradient_boosting.worse", "Trees are better."), ("prior.better", "Good."))
    found = report_records.verdict("promote").model_copy(
        update={
            "decision": decision, "held_back_by": tuple(reason for _, reason in held),
            "codes": tuple(code for code, _ in (*held, *others)),
            "reasons": tuple(reason for _, reason in (*held, *others)),
        }
    )  # fmt: skip
    lines = show._why(found).splitlines()
    assert lines == [
        *(["held back by", "  - Near."] if held else []),
        "decides nothing, but worth knowing", "  - Trees are better.",
        "not held back by" if held else "promoted by", "  - First.", "  - Good.",
    ]  # fmt: skip
    without_codes = found.model_copy(update={"codes": ()})
    assert "  - Trees are better." in show._why(without_codes).splitlines()


def test_stopped_run_is_told_with_the_checks_that_did_not_pass_the_worst_first(kept, monkeypatch, capsys):
    monkeypatch.setattr(show, "judge_fix", lambda use_case, entries: "train it")
    records = report_records.stopped_at_pilot()
    unsure = CheckResult(name="finite", status="insufficient", required=True, evidence="No loss. Nothing was kept.")
    wrong = CheckResult(name="references", status="fail", evidence="No better than the prior. By 0.1.", fix="look")
    pilot = records["pilot"].model_copy(update={"checks": (unsure, wrong)})
    for record in {**records, "pilot": pilot}.values():
        kept.put(record, "run1")
    with pytest.raises(RecordError, match="stopped at pilot"):
        verdict_command.run(argparse.Namespace(use_case="flight_delays"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "checks that did not pass, the worst first",
        "  - pilot/references, failed, stops the run: No better than the prior.",
        "    more: trainworthy explain references",
        "  - snapshot/tailnum_null_share, failed, warning: " + lines[3].partition("warning: ")[2],
    ]
    assert lines[-2:] == [
        "  - pilot/finite, inconclusive, stops the run: No loss.", "    more: trainworthy explain finite",
    ]  # fmt: skip


def test_run_without_a_failed_check_tells_of_none(kept):
    passed: dict[Step, Record] = {
        step: record.model_copy(update={"checks": ()}) for step, record in report_records.experiment().items()
    }
    assert not_passed_text(passed) == ""
    for record in passed.values():
        kept.put(record, "run1")
    assert show.stop_text("flight_delays") == ""


def test_more_checks_than_a_terminal_shows_are_counted():
    checks = tuple(CheckResult(name=f"own.c{number}", status="fail", evidence="x") for number in range(11))
    records: dict[Step, Record] = {"preflight": report_records.preflight().model_copy(update={"checks": checks})}
    told = not_passed_text(records).splitlines()
    assert told[-1] == "  and 3 more, in the report"


def test_check_that_two_stages_found_is_told_of_the_later_one_and_what_only_one_found_of_that():
    found = CheckResult(name="inputs_reviewed", status="insufficient", evidence="3 of 3 inputs were never reviewed.")
    only = CheckResult(name="references", status="fail", severity="warning", evidence="Boosting is better.")
    records: dict[Step, Record] = {
        step: record.model_copy(update={"checks": {"pilot": (found, only), "full": (found,)}.get(step, ())})
        for step, record in report_records.experiment().items()
    }
    told = not_passed_text(records)
    assert [line.split(",")[0].strip() for line in told.splitlines() if line.startswith("  - ")] == [
        "- pilot/references", "- full/inputs_reviewed",
    ]  # fmt: skip


@pytest.mark.parametrize("answered", [True, False])
def test_what_preflight_left_open_is_told_unless_a_stage_answered_it(answered):
    trial = Trial(
        check="overfit.held_out", status="insufficient", evidence="few updates were tried", answered_by="references"
    )
    family = CheckResult(name="overfit", status="insufficient", details=(trial.model_dump(mode="json"),))
    asked = CheckResult(name="references", status="pass" if answered else "insufficient", evidence="few rows")
    records: dict[Step, Record] = {
        step: record.model_copy(update={"checks": {"preflight": (family,), "full": (asked,)}.get(step, ())})
        for step, record in report_records.experiment().items()
    }
    told = [line.split(",")[0] for line in not_passed_text(records).splitlines() if line.startswith("  - ")]
    assert told == ([] if answered else ["  - preflight/overfit.held_out", "  - full/references"])


def told_of_preflight(*trials: Trial) -> list[str]:
    """The checks that did not pass, in the order in which a terminal names them, of trials as a gate has them."""
    families = dict.fromkeys(trial.family for trial in trials)
    checks = tuple(
        CheckResult(
            name=family, status="fail",
            details=tuple(trial.model_dump(mode="json") for trial in trials if trial.family == family),
        )
        for family in families
    )  # fmt: skip
    records: dict[Step, Record] = {"preflight": report_records.preflight().model_copy(update={"checks": checks})}
    return [line.split("/")[1].split(",")[0] for line in not_passed_text(records).splitlines() if "preflight/" in line]


def test_inconclusive_check_of_a_family_that_failed_is_told_as_well():
    failed = Trial(check="wiring.rows_apart", status="fail", evidence="seen")
    unsure = Trial(check="wiring.modes", status="insufficient", evidence="nothing moved")
    assert told_of_preflight(failed, unsure) == ["wiring.rows_apart", "wiring.modes"]


def test_what_may_follow_from_a_failure_of_another_family_is_told_after_it():
    order = Trial(check="one_batch.predict", status="fail", evidence="seen", follows=("wiring.rows_apart",))
    mixed = Trial(check="wiring.rows_apart", status="fail", evidence="seen")
    assert told_of_preflight(order, mixed) == ["wiring.rows_apart", "one_batch.predict"]
