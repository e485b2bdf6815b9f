"""The cost of a model is one total, the sum of its steps, in all places where it is told."""

import pytest
import report_records as example

from trainworthy.assets.metadata import model_cost_metadata
from trainworthy.lifecycle.cost.parts import PARTS, cost_parts
from trainworthy.lifecycle.protocol.records import STEPS, Cost, Record, Step, Verdict
from trainworthy.lifecycle.report import outcome, render
from trainworthy.lifecycle.report.formatting import paid_by_run, usd
from trainworthy.pipeline.show import cost_text


def judged() -> tuple[dict[Step, Record], Verdict]:
    records = example.judged()
    verdict = records["promotion"]
    assert isinstance(verdict, Verdict)
    return records, verdict


def test_each_step_is_in_one_part_and_the_parts_are_the_total():
    steps = [step for own in PARTS.values() for step in own]
    assert sorted(steps) == sorted(STEPS)
    costs: dict[Step, Cost] = {step: Cost(usd=number + 1.0) for number, step in enumerate(STEPS)}
    assert sum(part.usd for part in cost_parts(costs).values()) == sum(cost.usd for cost in costs.values())
    assert list(cost_parts({"smoke": Cost(usd=1.0)})) == ["training"]


def test_report_terminal_and_metadata_tell_one_total():
    records, verdict = judged()
    total = verdict.total_cost.usd
    assert outcome.total_cost(records).usd == pytest.approx(total)
    assert model_cost_metadata(verdict) == {"cost/model_usd": total}
    text = cost_text(verdict, {step: record.cost for step, record in records.items()})
    assert text.startswith(f"{usd(total)} for the model: data and preflight ")
    assert "; all of it in this run, " in text


def test_what_earlier_runs_paid_is_told_beside_the_total_and_parts_that_do_not_make_it_up_are_not():
    records, verdict = judged()
    reused = verdict.model_copy(update={"step_costs": verdict.step_costs | {"full": Cost()}})
    costs: dict[Step, Cost] = {step: record.cost for step, record in records.items()}
    own = verdict.total_cost.usd - records["full"].cost.usd
    assert f"; in this run {usd(own)}, the rest was reused, " in cost_text(reused, costs)
    del costs["full"]
    assert cost_text(reused, costs).startswith(f"{usd(verdict.total_cost.usd)} for the model; in this run ")


def test_sum_in_another_order_is_still_all_of_it_in_the_report_and_the_terminal():
    own, total = 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1
    assert own != total
    assert paid_by_run(own, total) == "all of it in this run"
    assert "all of it in this run" in render.render(judged()[0], {})
    assert paid_by_run(0.3, 0.6) == f"in this run {usd(0.3)}, the rest was reused"
