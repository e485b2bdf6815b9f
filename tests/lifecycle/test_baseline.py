"""Accepted warnings: told apart from new and worse ones, never a stop, and a file that is reviewed like code."""

import shutil
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from trainworthy.assets.metadata import check_result
from trainworthy.lifecycle.alert import About, AlertState, with_findings
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.gates.baseline import (
    FILE,
    Baseline,
    Finding,
    accepting,
    baseline_text,
    compared,
    findings_of,
    is_worse,
    read_baseline,
    with_accepted,
)
from trainworthy.lifecycle.gates.ci import github_annotations, junit, rows_of, summary, table
from trainworthy.lifecycle.protocol.checks import CheckResult, Severity, Status
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.pipeline.check import check_use_case
from trainworthy.pipeline.cli import main

GOLDEN = Path(__file__).parent / "golden_records"
TODAY = date(2026, 1, 2)


def warned(name="drift", observed: float = 0.3, details: tuple[dict[str, Any], ...] | None = None):
    detail = {"column": "price", "statistic": "psi", "status": "fail", "observed": observed, "threshold": 0.1}
    return CheckResult(name=name, status="fail", severity="warning", evidence="price moved", fix="look",
                       details=(detail,) if details is None else details)  # fmt: skip


def family(*checks: str, severity: Severity = "warning"):
    status: Status = "fail"
    trials = [Trial(check=name, status=status, severity=severity, evidence="seen", code=name) for name in checks]
    return CheckResult(name="wiring", status=status, severity=severity, evidence="seen", fix="look",
                       details=tuple(trial.model_dump(mode="json") for trial in trials))  # fmt: skip


def baseline_of(*checks, step="snapshot"):
    return accepting(Baseline(), compared(Baseline(), {step: checks}), "an old model", TODAY, "Ada")


@pytest.mark.parametrize(
    ("check", "names"),
    [
        (warned(), ["snapshot/drift (psi price)"]),
        (warned(details=()), ["snapshot/drift"]),
        (family("wiring.reach", "wiring.gradients"), ["snapshot/wiring.reach", "snapshot/wiring.gradients"]),
        (
            warned("leakage", details=({"family": "names", "columns": ["a", "b"], "status": "warning"},)),
            ["snapshot/leakage (names a, b)"],
        ),
        (
            CheckResult(name="contract", status="pass", details=(
                {"rule": "x.range", "kind": "range", "status": "fail", "severity": "warning", "columns": ["x"]},
                {"rule": "y.range", "kind": "range", "status": "pass", "severity": "warning", "columns": ["y"]},
            )),
            ["snapshot/contract (x.range range x)"],
        ),
        (
            warned("monitors", details=({"monitor": "loss_spike", "severity": "warning", "step": 3},) * 2),
            ["snapshot/monitors (loss_spike)"],
        ),
        (CheckResult(name="drift", status="insufficient", severity="warning"), []),
        (CheckResult(name="finite", status="fail", details=({"row_id": "1"},)), []),
        (family("wiring.reach", severity="error"), []),
        (CheckResult(name="drift", status="pass", severity="warning"), []),
    ],
)  # fmt: skip
def test_finding_is_a_warning_by_its_subject_and_never_what_stops_or_was_not_measured(check, names):
    assert [finding.name for finding in findings_of("snapshot", [check])] == names


def test_accepted_findings_survive_the_file_and_the_same_with_other_words_is_no_news(tmp_path):
    baseline = baseline_of(warned(), family("wiring.reach"))
    (tmp_path / FILE).write_text(baseline_text(baseline, "toy"))
    again = read_baseline(tmp_path)
    assert sorted(again.accepted, key=lambda one: one.key) == sorted(baseline.accepted, key=lambda one: one.key)
    assert "evidence" not in (tmp_path / FILE).read_text()
    found = compared(again, {"snapshot": [warned(observed=0.31).model_copy(update={"evidence": "other words"})]})
    assert (found.new, [one.name for one in found.accepted]) == ((), ["snapshot/drift (psi price)"])
    assert [one.name for one in found.stale] == ["snapshot/wiring.reach"]
    # A step that did not run says nothing of its findings.
    assert compared(again, {"pilot": []}).stale == ()


@pytest.mark.parametrize(
    ("later", "new"),
    [
        (warned(observed=0.31), False),
        (warned(observed=0.2), False),
        (warned(observed=0.5), True),
        (warned(observed=float("nan")), True),
        (warned(details=({"column": "price", "statistic": "psi", "status": "error"},)), True),
        (warned(details=({"column": "size", "statistic": "psi", "status": "fail"},)), True),
    ],
)
def test_finding_that_is_worse_or_another_is_new(later, new):
    baseline = baseline_of(warned())
    assert bool(compared(baseline, {"snapshot": [later]}).new) == new
    (shown,) = with_accepted("snapshot", [later], baseline)
    assert shown.severity == ("warning" if new else "info")
    if new and later.details[0]["column"] == "price":
        assert shown.evidence.startswith("worse than accepted")


def test_value_beyond_one_that_was_accepted_at_its_threshold_is_worse():
    accepted = Finding(step="pilot", check="a", observed=0.1, threshold=0.1)
    assert is_worse(accepted.model_copy(update={"observed": 50.0}), accepted)
    assert not is_worse(accepted, accepted)
    unmeasured = accepted.model_copy(update={"observed": float("nan")})
    assert not is_worse(unmeasured, unmeasured)


def test_accepting_again_replaces_what_is_worse_keeps_other_reasons_and_drops_what_is_gone():
    first = baseline_of(warned(), family("wiring.reach"))
    found = compared(first, {"snapshot": [warned(observed=0.9), warned("history", details=())]})
    second = accepting(first, found, "since then", TODAY, "")
    assert {(one.check, one.observed, one.reason) for one in second.accepted} == {
        ("drift", 0.9, "since then"), ("history", None, "since then"),
    }  # fmt: skip
    assert compared(second, {"snapshot": [warned(observed=0.9), warned("history", details=())]}).new == ()


def test_accepted_warning_is_no_annotation_no_alert_and_passes_with_its_reason_in_junit_and_dagster():
    checks = [family("wiring.reach"), warned()]
    shown = with_accepted("snapshot", checks, baseline_of(*checks))
    rows = rows_of("snapshot", shown)
    assert github_annotations(rows, "toy", ()) == ()
    assert table(rows) == ""
    assert "2 accepted by baseline.yaml" in summary(rows)
    cases = ElementTree.fromstring(junit("toy", rows, "", {})).iter("system-out")
    assert ["accepted (2026-01-02, an old model)" in (case.text or "") for case in cases] == [True, True]
    about = About(use_case="toy", subject="data", dataset="rows@v1", step="snapshot", run_id="r")
    assert with_findings(AlertState(), about, shown) == AlertState()
    assert with_findings(AlertState(), about, checks) != AlertState()
    assert "accepted (2026-01-02, an old model)" in (check_result(shown[1]).description or "")


def test_family_of_an_accepted_and_a_new_warning_tells_the_new_one():
    both = family("wiring.reach", "wiring.padding")
    shown = with_accepted("snapshot", [both], baseline_of(family("wiring.reach")))
    (line,) = github_annotations(rows_of("snapshot", shown), "toy", ())
    assert line.startswith("::warning")
    assert "wiring.padding" in line


def test_stop_is_never_hidden_by_an_entry_for_it():
    baseline = baseline_of(family("wiring.reach"))
    broken = family("wiring.reach", severity="error")
    assert with_accepted("snapshot", [broken], baseline) == (broken,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("accepted: [", "is no YAML"),
        ("accepted: [{step: a}]", "accepted.0.check"),
        ("known: []", "baseline.yaml: known"),
        ("accepted:\n" + 2 * "- {step: a, check: b, reason: c, accepted_on: 2026-01-02}\n", "stands twice"),
        ("accepted:\n- {step: a, check: b, reason: ' ', accepted_on: 2026-01-02}\n", "has no reason"),
        ("- a", "baseline.yaml: "),
    ],
)
def test_file_that_is_no_baseline_is_one_clear_error(tmp_path, text, told):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UseCaseError) as caught:
        read_baseline(tmp_path)
    assert told in str(caught.value)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy use case with records of a whole run."""
    shutil.copytree(GOLDEN / "records", tmp_path / "state" / "records")
    project = shutil.copytree(Path(__file__).parents[1] / "toy", tmp_path / "project")
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(project / "use_cases"))
    return project / "use_cases" / "toy"


def test_command_names_what_is_new_writes_it_with_the_reason_and_then_nothing_is_new(toy, capsys):
    code = main(["baseline", "toy"])
    out = capsys.readouterr().out
    new = out.count("new: ")
    assert ("trainworthy baseline toy --reason TEXT" in out) == bool(new)
    assert code == int(bool(new))
    assert not (toy / FILE).exists()
    assert main(["baseline", "toy", "--reason", "the model  is old"]) == 0
    assert [one.reason for one in read_baseline(toy).accepted] == ["the model is old"] * new
    assert main(["baseline", "toy"]) == 0
    assert main(["baseline", "toy", "--reason", " "]) == 1


def test_check_names_a_broken_baseline_among_the_use_case_s_files(toy):
    (toy / FILE).write_text("accepted: [")
    (part,) = [part for part in check_use_case("toy") if part.name == FILE]
    assert not part.well


@pytest.mark.parametrize("name", ["learned", "beyond_linear"])
def test_accepted_warning_of_a_check_with_an_earlier_name_counts_for_todays(tmp_path, name):
    entry = f"{{step: pilot, check: {name}, observed: 0.001, threshold: 0.0, reason: old, accepted_on: 2026-01-02}}"
    (tmp_path / FILE).write_text(f"accepted:\n- {entry}\n")
    read = read_baseline(tmp_path)
    behind = CheckResult(name="references", status="fail", severity="warning", code="less", observed=0.3, threshold=0.1)
    (shown,) = with_accepted("pilot", (behind,), read)
    assert shown.severity == "info"
    lost = behind.model_copy(update={"code": "less_inputs"})
    assert with_accepted("pilot", (lost,), read) == (lost,)
