"""record.json: its form is what the benchmarks write, its ids are known, and its counts are whole."""

import pytest

from benchmarks import go_no_go, leakage
from benchmarks.record import FaultRun, HealthyRun, keep, of_faults, of_healthy
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.check_record import FILE, Counts, Part, parts, record_of, written
from trainworthy.lifecycle.gates.monitor_words import CAUSES, MONITORS
from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.leak import Leak

KEPT = parts()
FAULTS = [FaultRun({"a", "b"}, {"a", "c"}, 0.2), FaultRun({"a", "b"}, {"b"}, 0.4), FaultRun({"a"}, {"c"})]


def part(**counts: Counts) -> Part:
    return Part(command="c", commit="1", date="2026-01-01T00:00+00:00", hardware="h, load 1", runs=3, checks=counts)


def test_record_names_known_checks_and_causes_alone():
    known = {one.id for one in (*CATALOGUE, *MONITORS, *STAGE_CHECKS)}
    assert {name for one in KEPT.values() for name in one.checks} - known == set()
    assert {name for one in KEPT.values() for name in one.causes} - {one.id for one in CAUSES} == set()


def test_record_is_in_the_form_that_the_benchmarks_write(tmp_path):
    written(KEPT, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == FILE.read_text()


def test_record_has_a_planted_and_a_healthy_part_of_preflight_with_where_they_are_from():
    assert {"preflight planted", "preflight healthy"} <= set(KEPT)
    for name, one in KEPT.items():
        # Of a bench with parts its command names the part; of another both its parts come of one command.
        assert one.command.startswith((f"python -m benchmarks.{name} ", f"python -m benchmarks.{name.split()[0]} --"))
        assert "--record" in one.command
        assert one.commit != "unknown"


def test_record_counts_no_more_than_there_were():
    for one in KEPT.values():
        for counts in (*one.checks.values(), *one.causes.values()):
            assert counts.found + counts.by_others <= counts.named <= one.runs
            assert max(counts.alarms, counts.warnings) <= counts.looked <= one.runs


def test_of_faults_a_fault_is_told_by_the_check_by_another_or_by_none():
    assert of_faults(FAULTS) == {
        "a": Counts(named=3, found=1, by_others=1, share=0.2),
        "b": Counts(named=2, found=1, by_others=1, share=0.4),
    }


def test_of_healthy_a_check_that_did_not_look_is_not_counted():
    runs = [HealthyRun({"a", "b"}, {"a"}), HealthyRun({"b"}, warnings={"b"})]
    assert of_healthy(runs) == {"a": Counts(looked=1, alarms=1), "b": Counts(looked=2, warnings=1)}


def test_record_of_sums_the_parts_and_says_where_they_are_from():
    known = {
        "x planted": part(a=Counts(named=3, found=1, by_others=1, share=0.25)),
        "x healthy": part(a=Counts(looked=3)),
    }
    record = record_of("a", "checks", known)
    assert record is not None
    assert record.counts == Counts(named=3, found=1, by_others=1, share=0.25, looked=3)
    detection, false_alarms = record.in_words()
    assert "of 3 planted faults" in detection
    assert "after 25.0% of the run" in detection
    assert "0 false alarms and 0 warnings in 3 " in false_alarms
    assert list(record.sources()) == ["benchmarks x planted (3 runs), x healthy (3 runs): commit 1, 2026-01-01, h"]


@pytest.mark.parametrize(("name", "of"), [("b", "checks"), ("a", "causes")])
def test_record_of_what_no_part_has_counts_of_is_none(name, of):
    assert record_of(name, of, {"x planted": part(a=Counts(named=3))}) is None


def test_keep_puts_a_part_in_the_place_of_what_it_had_and_leaves_the_others(tmp_path, monkeypatch):
    file = tmp_path / "record.json"
    monkeypatch.setattr("benchmarks.record.FILE", file)
    monkeypatch.setattr("sys.argv", ["x.py", "planted", "--record"])
    written({"x healthy": part(a=Counts(looked=3)), "x planted": part(a=Counts(named=9))}, file)
    keep("x", "planted", 3, of_faults(FAULTS))
    now = parts(file)
    assert now["x healthy"].checks == {"a": Counts(looked=3)}
    assert now["x planted"].checks == of_faults(FAULTS)
    assert (now["x planted"].command, now["x planted"].runs) == ("python -m benchmarks.x planted --record", 3)


def test_counts_of_stages_and_leakage_are_kept_by_ids_that_explain_knows():
    kept = {leakage.CHECK, *(name for names in go_no_go.NAMED.values() for name in names)}
    assert kept <= {check.id for check in STAGE_CHECKS}


@pytest.mark.parametrize(
    ("checks", "alarms", "warnings"),
    [
        ((CheckResult(name="references", status="pass"),), (), ()),
        ((CheckResult(name="references", status="fail"),), ("stage.references",), ()),
        ((CheckResult(name="references", status="fail", severity="warning"),), (), ("stage.references",)),
    ],
)
def test_healthy_pilot_counts_what_stops_it_as_an_alarm_and_the_rest_as_a_warning(checks, alarms, warnings):
    assert go_no_go.as_healthy(checks) == HealthyRun(("stage.references",), alarms, warnings)


@pytest.mark.parametrize(("status", "alarms", "warnings"), [("fail", 1, 0), ("warning", 0, 1)])
def test_healthy_table_counts_a_leak_that_stops_as_an_alarm_and_a_suspicion_as_a_warning(status, alarms, warnings):
    run = leakage.as_healthy([Leak(taxon="L2", family="single_feature", status=status, evidence="x")])
    assert (len(run.alarms), len(run.warnings)) == (alarms, warnings)
