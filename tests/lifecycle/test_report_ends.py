"""The report of runs that did not come to a verdict, or came to it by the steps of another one."""

from __future__ import annotations

import re

import pytest
import report_records as example
from report_page import LINKS, Page

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.leak import Leak, leakage_check
from trainworthy.lifecycle.protocol.records import ALONE, STEPS, Cost, Record, Step, StoppedStep
from trainworthy.lifecycle.protocol.training_figures import Attempt
from trainworthy.lifecycle.report import (
    outcome,
    pictures,
    render,
    sections,
)
from trainworthy.lifecycle.report.formatting import usd

pytestmark = pytest.mark.usefixtures("pictures_drawn")


PREFIXES = [STEPS[:length] for length in range(len(STEPS) + 1)]


@pytest.mark.parametrize("steps", PREFIXES, ids=lambda steps: steps[-1] if steps else "none")
def test_report_of_every_prefix_of_the_steps_renders(steps: tuple[str, ...]) -> None:
    records: dict[Step, Record] = {step: record for step, record in example.judged().items() if step in steps}
    page = Page(render.render(records, {}))
    assert len(page.tags("h1")) == 1
    assert ("Promote" in page.text) == ("promotion" in steps)


def test_report_of_run_that_crashed_without_record_says_where_it_stopped() -> None:
    records: dict[Step, Record] = {step: record for step, record in example.experiment().items() if step != "full"}
    text = Page(render.render(records, {}, stopped_at="full")).text
    assert "Stopped at full" in text
    assert "see the log of the run" in text


def test_report_of_step_that_ended_without_result_tells_its_error() -> None:
    for step in STEPS:
        reached = STEPS[: STEPS.index(step) + 1]
        records: dict[Step, Record] = {name: record for name, record in example.judged().items() if name in reached}
        base = {name: getattr(records[step], name) for name in Record.model_fields}
        records[step] = StoppedStep(**base, error="the file is gone\n  fix: restore <it>")
        page = Page(render.render(records, {}, stopped_at=step))
        assert f"Stopped at {step}" in page.text
        assert "the file is gone fix: restore <it>" in page.text


def test_report_of_missing_forecast_says_so_and_spares_nothing() -> None:
    records = example.stopped_at_pilot()
    records["preflight"] = example.preflight().model_copy(update={"cost_usd": None, "memory_bytes": None})
    text = Page(render.render(records, {}, stopped_at="pilot")).text
    assert text.count("could not be forecast") == 3
    assert "were not spent" not in text


def test_outcome_of_promote_verdict_over_a_closed_gate_is_stopped() -> None:
    records = example.judged()
    failed = CheckResult(name="planted", status="error", evidence="was never measured")
    records["evaluation"] = records["evaluation"].model_copy(update={"checks": (failed,)})
    assert outcome.outcome(records, None).label == "Stopped at evaluation"
    assert outcome.outcome(example.judged(), None).label == "Promote"


def test_controls_that_the_verdict_leaves_out_are_shown_as_insufficient() -> None:
    rows = sections.control_rows(example.judged(controls=()))
    assert [(row.name, row.status) for row in rows] == [(name, "insufficient") for name in outcome.CONTROLS]


def test_report_of_huge_findings_stays_below_two_megabytes() -> None:
    records = example.judged()
    report = example.evaluation()
    metric = pictures.slice_metrics(report)[0]
    slices = tuple(metric.model_copy(update={"slice": f"tailnum=N{i:05}"}) for i in range(5_000))
    rows = tuple({"key": i, "value": "x" * 5_000} for i in range(2_000))
    checks = tuple(CheckResult(name=f"check_{i}", status="fail", severity="warning", details=rows) for i in range(60))
    changes = {"metrics": (*report.metrics, *slices), "checks": checks}
    records["evaluation"] = report.model_copy(update=changes)
    html = render.render(records, {})
    assert len(html.encode()) < 2_000_000
    assert "1,980 more in the record" in Page(html).text


def test_report_of_reused_steps_counts_them_at_zero_for_the_run() -> None:
    records = example.experiment()
    for step in ("dataset", "snapshot", "preflight", "smoke"):
        earlier = records[step].provenance.model_copy(update={"run_id": "an-earlier-run"})
        records[step] = records[step].model_copy(update={"provenance": earlier})
    costs = outcome.costs_of_run(records)
    assert costs["smoke"] == Cost()
    assert costs["full"] == records["full"].cost
    text = Page(render.render(records, {})).text
    assert "reused: an earlier run paid" in text
    # One total, that of the rows above it, and what of it this run paid.
    total = sum(record.cost.usd for record in records.values())
    own = sum(cost.usd for cost in costs.values())
    assert own < total
    assert f"Cost of the model {usd(total)} {usd(own)}" in text
    assert f"Cost of the model {usd(total)}, in this run {usd(own)}, the rest was reused" in text


def test_report_tells_an_input_that_is_suspicious_and_not_shown_to_be_a_leak() -> None:
    records = example.judged()
    alone = Leak(taxon="L2", family="single_feature", status="pass", evidence="no", suspicion="late alone has AUC 0.9")
    words = "Suspicious, not shown to be a leak: late alone has AUC 0.9"
    assert words not in Page(render.render(records, LINKS)).text
    checks = (*records["snapshot"].checks, leakage_check("leakage", [alone]))
    records["snapshot"] = records["snapshot"].model_copy(update={"checks": checks})
    assert words in Page(render.render(records, LINKS)).text


def test_report_of_uncommitted_code_says_so() -> None:
    records = example.experiment()
    for dirty, words in ((True, "with uncommitted changes"), (None, "state unknown")):
        origin = records["full"].provenance.model_copy(update={"git_dirty": dirty})
        changed: dict[Step, Record] = {**records, "full": records["full"].model_copy(update={"provenance": origin})}
        assert words in Page(render.render(changed, {})).text


def test_report_names_the_ends_that_a_stage_went_on_after_and_what_it_waited():
    records = example.judged()
    killed = Attempt(cause="out_of_memory", told="<b>killed</b>", from_step=0, to_step=1200, seconds=61.0)
    cost = Cost(wall_seconds=5.0, usd=0.1, queue_seconds=90.0)
    records["full"] = records["full"].model_copy(update={"attempts": (killed,), "cost": cost})
    text = Page(render.render(records, LINKS)).text
    assert re.search(r"out of memory after .{1,8}, at step 1,200", text)
    assert re.search(r"waited .{1,12} for an equal run, at no cost", text)
    before = Page(render.render(example.judged(), LINKS)).text
    assert "for an equal run" not in before


def test_outcome_names_what_failed_before_what_was_not_tried_for_it() -> None:
    records = example.judged()
    why = "not tried, since one batch failed"
    untried = CheckResult(name="configuration", status="insufficient", required=True, evidence=why)
    failed = CheckResult(name="one_batch", status="fail", evidence="the same rows get other answers")
    records["preflight"] = records["preflight"].model_copy(update={"checks": (untried, failed)})
    found = outcome.outcome(records, None)
    assert found.why == "One batch: the same rows get other answers."
    assert found.reasons == ("Configuration: not tried, since one batch failed.",)


def test_outcome_says_of_a_lesser_reason_only_what_it_lacks() -> None:
    """A reason that says itself what to do, and would have allowed more, changes nothing alone."""
    reasons = ("Worse than ridge.", "2 inputs were never reviewed, the strongest: x; review them.", "May be worse.")
    told = (reasons[0], f"{reasons[1][:-1]}; {ALONE}.", f"May be worse; more rows would show it; {ALONE}.")
    judged = example.verdict("reject").model_copy(update={"reasons": reasons, "held_back_by": told, "codes": ()})
    assert outcome.outcome({**example.judged(), "promotion": judged}, None).changes == (
        "May be worse: more rows would show it",
    )
