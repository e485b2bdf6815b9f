"""What a pull request is told: the table, GitHub's annotations, JUnit XML."""

from xml.etree import ElementTree

import pytest

from trainworthy.lifecycle.gates.ci import WIDTH, github_annotations, junit, rows_of, summary, table
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.trial import Trial

EVIL = 'a%b\r\nc: d, e ::error:: <b>&"\x00\x1b[31m\x08\ud800 é漢 ]]>'
PASSED = Trial(check="wiring.batch", status="pass", evidence="rows are apart", seconds=0.25, device="cpu")
FAILED = Trial(
    check="wiring.uses_labels", status="fail", evidence="the loss ignores the labels (model.py:12 in loss_fn)",
    symptom="the loss falls, and the metric stays", cause="targets are not used", fix="use the targets in loss_fn",
    seconds=0.5, device="cpu",
)  # fmt: skip
WARNED = FAILED.model_copy(update={"check": "configuration.precision", "severity": "warning", "evidence": "it is slow"})
CAPPED = FAILED.model_copy(update={"check": "start.loss", "status": "insufficient", "evidence": "too few rows"})
UNTRIED = Trial(
    check="overfit.ten_batches",
    status="insufficient",
    required=True,
    evidence="not tried, since X failed",
    code="untried",
)
FILES = ("model.py", "use_case.yaml", "layers/mlp.py")
LEFT_OUT = Trial(check="own.order", status="not_applicable", evidence="declared: not sorted", code="declared")


def rows(*trials: Trial, step: str = "preflight"):
    families: dict[str, list[Trial]] = {}
    for trial in trials:
        families.setdefault(trial.family, []).append(trial)
    checks = [
        CheckResult(name=name, status="fail", details=tuple(trial.model_dump(mode="json") for trial in found))
        for name, found in families.items()
    ]
    return rows_of(step, checks)


def parsed(*trials: Trial) -> ElementTree.Element:
    return ElementTree.fromstring(junit("toy", rows(*trials), "2026-01-01T00:00:00+00:00", {"run": "1"}))


def test_table_tells_what_stops_first_with_evidence_and_fix():
    text = table(rows(PASSED, CAPPED, WARNED, FAILED, UNTRIED, LEFT_OUT))
    lines = text.splitlines()
    assert lines[0].startswith("  fail          wiring.uses_labels")
    assert "cause: targets are not used" in text
    assert "fix: use the targets in loss_fn" in text
    assert "  warning       configuration.precision" in text
    assert "  insufficient  start.loss" in text
    assert lines[-1] == "  1 more were not tried, since X failed"
    assert "wiring.batch" not in text
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("evidence", ["word " * 90, "x" * 400, EVIL])
def test_table_stays_in_its_width_for_any_text(evidence):
    long = FAILED.model_copy(update={"check": "configuration." + "very_long_" * 6 + "name", "evidence": evidence})
    text = table(rows(long, FAILED))
    assert all(len(line) <= WIDTH + 2 for line in text.splitlines() if "very_long" not in line)
    assert "\x1b" not in text


def test_table_of_untried_checks_alone_is_not_empty():
    assert "overfit.ten_batches" in table(rows(UNTRIED))


def test_summary_counts_every_outcome():
    told = summary(rows(PASSED, CAPPED, WARNED, FAILED, UNTRIED, LEFT_OUT))
    first, reason = told.splitlines()
    assert first == "6 checks of preflight in 1.8 s: 1 passed, 2 failed, 2 insufficient, 1 not applicable"
    assert reason == "  not applicable: own.order, declared: not sorted"
    before = rows_of("snapshot", [CheckResult(name="contract", status="pass")])
    assert summary([*before, *rows(PASSED)]) == "2 checks of snapshot, preflight in 0.2 s: 2 passed"


def test_summary_prints_no_reason_that_steers_a_terminal_or_ci():
    reason = "declared: of age\n::stop-commands::x\x1b[2J"
    told = summary(rows(LEFT_OUT.model_copy(update={"evidence": reason})))
    assert [line[:2] for line in told.splitlines()[1:]] == ["  "]
    assert "\x1b" not in told


def test_annotation_names_the_line_and_escapes_every_text():
    failed = FAILED.model_copy(update={"fix": "100 %, at: once"})
    error, warning = github_annotations(rows(failed, WARNED, UNTRIED, PASSED, LEFT_OUT), "use_cases/to:y,x%", FILES)
    assert error == (
        "::error file=use_cases/to%3Ay%2Cx%25/model.py,line=12,title=wiring.uses_labels::"
        "the loss ignores the labels (model.py:12 in loss_fn)%0ACause: targets are not used%0AFix: 100 %25, at: once"
    )
    place = "file=use_cases/to%3Ay%2Cx%25/use_case.yaml,line=1,title=configuration.precision"
    assert warning.startswith(f"::warning {place}::")
    (evil,) = github_annotations(
        rows(FAILED.model_copy(update={"evidence": EVIL, "fix": EVIL})), "use_cases/toy", FILES
    )
    assert "\x1b" not in evil
    assert "\n" not in evil
    assert "\r" not in evil
    assert "a%25b%0D%0Ac: d" in evil


@pytest.mark.parametrize(
    ("evidence", "place"),
    [
        ("ValueError: see layers/mlp.py:3 (model.py:12 in forward)", "model.py,line=12"),
        ("it is 8 wide (layers/mlp.py:7 in check_width)", "layers/mlp.py,line=7"),
        ("RuntimeError: no shape (functional.py:123 in linear)", "model.py,line=1"),
    ],
)
def test_annotation_goes_to_the_last_place_that_the_use_case_has(evidence, place):
    (told,) = github_annotations(rows(FAILED.model_copy(update={"evidence": evidence})), "use_cases/toy", FILES)
    assert told.startswith(f"::error file=use_cases/toy/{place},title=")


def test_annotation_of_a_step_before_preflight_points_to_its_file():
    check = CheckResult(name="contract", status="fail", evidence="unknown shop", fix="mend the rows")
    (told,) = github_annotations(rows_of("snapshot", [check]), "use_cases/toy", FILES)
    assert told.startswith("::error file=use_cases/toy/contract.yaml,line=1,title=contract::unknown shop")


def test_junit_has_a_case_a_check_with_its_words():
    suite = parsed(PASSED, FAILED, WARNED, CAPPED, UNTRIED, LEFT_OUT).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "6", "failures": "1", "errors": "0", "skipped": "3", "time": "1.750",
    }  # fmt: skip
    cases = {f"{case.get('classname')}.{case.get('name')}": case for case in suite.iter("testcase")}
    failure = cases["toy.wiring.uses_labels"].find("failure")
    assert failure is not None
    assert failure.get("message") == FAILED.evidence
    assert "fix: use the targets in loss_fn" in (failure.text or "")
    assert "symptom: the loss falls" in (failure.text or "")
    assert cases["toy.wiring.uses_labels"].get("time") == "0.500"
    for skipped in ("toy.start.loss", "toy.overfit.ten_batches", "toy.own.order"):
        assert cases[skipped].find("skipped") is not None
    # A warning stops nothing: it passes, with its words.
    assert cases["toy.configuration.precision"].find("failure") is None
    assert "warning" in (cases["toy.configuration.precision"].findtext("system-out") or "")


def test_junit_is_never_green_where_the_run_stops():
    suite = parsed(PASSED, UNTRIED).find("testsuite")
    assert suite is not None
    assert (suite.get("errors"), suite.get("skipped")) == ("1", "0")


def test_junit_is_well_formed_for_any_text():
    evil = FAILED.model_copy(update={"evidence": EVIL, "fix": EVIL, "symptom": EVIL})
    failure = parsed(evil).find(".//failure")
    assert failure is not None
    assert "<b>&" in (failure.text or "")
    assert "\x00" not in (failure.text or "")
