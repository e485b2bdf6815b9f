"""In which order a report lists checks: what failed stands above what was inconclusive, and that above what passed."""

import re

import pytest

from tests.lifecycle import report_records as example
from trainworthy.lifecycle.protocol.checks import CheckResult, Severity, Status, by_badness
from trainworthy.lifecycle.protocol.records import Record, Step
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.report import in_words, sections
from trainworthy.lifecycle.report.render import render

STATUSES: tuple[Status, ...] = ("pass", "insufficient", "fail")
SHOWN = ["Failed", "Inconclusive", "Passed"]


def checks(severity: Severity = "warning") -> tuple[CheckResult, ...]:
    return tuple(CheckResult(name=f"of_{status}", status=status, severity=severity) for status in STATUSES)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("fail", "warning"), ("insufficient", "error")),
        (("error", "error"), ("fail", "warning")),
        (("insufficient", "warning"), ("fail", "info")),
        (("fail", "info"), ("pass", "error")),
    ],
)
def test_worse_check_comes_first_in_either_order(
    first: tuple[Status, Severity], second: tuple[Status, Severity]
) -> None:
    pair = [CheckResult(name="a", status=status, severity=severity) for status, severity in (first, second)]
    assert by_badness(pair) == by_badness(pair[::-1]) == pair


def test_what_is_equally_bad_keeps_its_order() -> None:
    both = [CheckResult(name=name, status="pass", severity=s) for name, s in (("b", "info"), ("a", "error"))]  # pyright: ignore[reportArgumentType]
    assert by_badness(both) == both


def listed(page: str, section: str) -> list[str]:
    """The statuses of the rows of a section, in their order on the page."""
    part = page[page.index(f'id="{section}"') :].partition("</section>")[0]
    return [word for word in re.findall(r"\b(Failed|Inconclusive|Passed)\b", part.partition("<tbody>")[2])]


def test_report_lists_failed_checks_above_inconclusive_ones_in_every_table() -> None:
    trials = [Trial(check=f"inputs.{status}", status=status, severity="warning", evidence="x") for status in STATUSES]
    unsure = trials[1].model_copy(update={"check": "start.a"})
    families = (
        CheckResult(name="start", status="insufficient", details=(unsure.model_dump(),)),
        CheckResult(name="inputs", status="fail", severity="warning", details=tuple(t.model_dump() for t in trials)),
    )  # fmt: skip
    records = {"preflight": example.preflight().model_copy(update={"checks": families})}
    page = render(records, {})  # pyright: ignore[reportArgumentType]
    assert [family.name for family in sections.trial_families(records)] == ["inputs", "start"]  # pyright: ignore[reportArgumentType]
    assert listed(page, "preflight") == [*SHOWN, "Inconclusive"]
    records = {"preflight": example.preflight().model_copy(update={"checks": checks()})}
    assert listed(render(records, {}), "checks") == SHOWN  # pyright: ignore[reportArgumentType]


def test_rows_of_a_check_have_failed_ones_above_inconclusive_ones() -> None:
    rows = [{"status": status} for status in ("pass", "insufficient", "error", "fail")]
    assert [row["status"] for row in sections.failing_first(rows)] == ["error", "fail", "insufficient", "pass"]
    assert sections.failing_first([{"a": 1}, {"a": 2}]) == [{"a": 1}, {"a": 2}]


def test_stop_names_what_failed_before_what_was_not_tried_for_it() -> None:
    stops = tuple(check.model_copy(update={"required": True}) for check in checks("error"))
    record = example.preflight().model_copy(update={"checks": stops})
    assert [sentence.partition(".")[0] for sentence in in_words.reasons(record)] == ["Of fail", "Of insufficient"]


@pytest.mark.parametrize(("factor", "among_figures"), [(1.0, False), (1e5, True)])
def test_cost_below_a_dollar_is_one_line_beneath_the_figures_and_a_larger_one_a_figure(
    factor: float, among_figures: bool
) -> None:
    records: dict[Step, Record] = {
        step: record.model_copy(update={"cost": record.cost.model_copy(update={"usd": record.cost.usd * factor})})
        for step, record in example.experiment().items()
    }
    page = render(records, {})
    figures = page[page.index('<dl class="figures">') : page.index("</dl>")]
    assert ("Cost of the model" in figures) == ("Cost of training" in figures) == among_figures
    assert page.count("Cost of the model ") == (0 if among_figures else 1)
    assert "Cost of training" in page
