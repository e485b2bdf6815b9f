"""What the report tells of the model: slices, calibration, fairness, residuals, serving, decisions, changed inputs."""

from __future__ import annotations

import re

import pytest
import report_records as example
from known import known
from report_page import LINKS, Page

from trainworthy.lifecycle.protocol.figures import (
    Autocorrelation,
    BehaviourResult,
    BlindSpot,
    Calibration,
    ChangedInputs,
    Dependence,
    DependencePoint,
    Disparity,
    Estimate,
    Importance,
    LossAxis,
    LossPart,
    Perturbation,
    RateOfValue,
    Residuals,
    SliceResult,
    Standing,
    WorstRow,
)
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.protocol.records import EvaluationReport, Record, Step
from trainworthy.lifecycle.protocol.serving import ServingFigure
from trainworthy.lifecycle.protocol.suite import Suite
from trainworthy.lifecycle.report import (
    figures,
    model_tables,
    pictures,
    render,
)
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, DecisionSpec, SliceSpec

pytestmark = pytest.mark.usefixtures("pictures_drawn")


def test_report_tells_how_each_slice_that_decides_stands() -> None:
    """What is broken comes first; before a verdict nothing is said of how they stand."""
    measured = Estimate(value=0.7, low=0.65, high=0.75, standard_error=0.025, groups=30)
    standings: tuple[tuple[str, Standing], ...] = (("a", "kept"), ("b", "broken"), ("c", "not_shown"))
    results = tuple(
        SliceResult(
            slice=name, declared=SliceSpec(where="wind > 1", at_most=0.6), rows=300, groups=30, metric="log_loss",
            estimate=measured, bound=bound,
        )
        for name, bound in standings
    )  # fmt: skip
    records = example.judged()
    judged: dict[Step, Record] = {**records, "promotion": records["promotion"].model_copy(update={"slices": results})}
    page = render.render(judged, LINKS)
    table = page[page.index("Slices that decide") :].partition("</table>")[0]
    assert re.findall(r'<th scope="row">(.)</th><td>bound: ([a-z ]+)</td>', table) == [
        ("b", "broken"), ("c", "not shown"), ("a", "kept"),
    ]  # fmt: skip
    assert "log loss at most 0.6 (wind &gt; 1)" in table
    plain = tuple(result.model_copy(update={"bound": "not_asked"}) for result in results)
    waiting: dict[Step, Record] = {"evaluation": records["evaluation"].model_copy(update={"slices": plain})}
    assert {model_tables.slice_standing(item) for item in model_tables.deciding_slices(waiting)} == {"not judged"}


def test_report_tells_calibration_fairness_and_where_the_loss_lies() -> None:
    records = example.judged()
    report = records["evaluation"]
    assert isinstance(report, EvaluationReport)
    rate, far = example.estimate(0.3, 0.02), example.estimate(-0.02, 0.004)
    value = RateOfValue(value="region=a", rows=900, groups=61, rate=rate)
    small = RateOfValue(value="region=<b>", rows=40, groups=20, reason="40 rows, fewer than 100")
    part = LossPart(name="wind > 20", rows=400, groups=60, loss=rate, gain=far)
    told = report.model_copy(
        update={
            "calibration": (
                Calibration(
                    model="candidate", claim="label 1", rows=900, groups=61, slope=rate, reasons=("error: too few",)
                ),
            ),
            "fairness": (
                Disparity(
                    model="candidate", column="region", claim="label 1", rate="selection_rate", values=(value, small),
                    other_values=3, other_rows=12, highest="region=a", reason="1 values of region can be measured",
                ),
            ),
            "residuals": Residuals(
                loss="log_loss", baseline="linear", axes=(LossAxis(by="wind", parts=(part,)),),
                autocorrelation=Autocorrelation(lag_one=0.5, factor=1.73, gain=rate, widened=rate),
                worst=(WorstRow(row=1234, loss=9.0),), other_features=7,
            ),
            "blind_spots": (
                BlindSpot(
                    rule='origin == "EWR" and wind > 30', rows=640, groups=50, share=0.02, excess=rate, expected=0.02,
                    champion=far, p=0.001, confirmed=True, examples=(4711, 12),
                ),
            ),
        }
    )  # fmt: skip
    page = render.render({**records, "evaluation": told}, LINKS)
    for name in (
        "wind &gt; 20",
        "error: too few",
        "3 more values of 12 rows",
        "1234",
        "region=&lt;b&gt; (40 rows",
        "wind &gt; 30",
        "4711, 12",
    ):
        assert name in page
    assert model_tables.worst_parts(known(told.residuals))[0] == ("wind", part)
    # Records of before these were measured tell none of them.
    assert "Blind spots" not in render.render(records, LINKS)
    assert "Rates by protected column" not in render.render(records, LINKS)


def test_report_says_how_an_interval_was_made_where_it_is_not_the_usual_one():
    exact, usual = "Clopper–Pearson, 37 effective of 80 rows", "t by group"
    report = example.evaluation()
    others = tuple(
        one.model_copy(update={"estimate": one.estimate.model_copy(update={"method": "exact", "made": exact})})
        if one.model == "candidate" and one.slice is None
        else one
        for one in report.metrics
    )
    page = render.render({"evaluation": report.model_copy(update={"metrics": others})}, {})
    assert f'<br><span class="soft small wraps">{exact}</span>' in page
    plain = render.render({"evaluation": report}, {})
    assert exact not in plain
    assert usual not in plain


def test_report_shows_what_the_model_takes_beside_the_champion_with_each_limit() -> None:
    serving = (
        ServingFigure(
            quantity="batch_latency", candidate=12.0, champion=10.0, ratio=1.2, low=1.1, high=1.31, rounds=9, rows=256,
            limit=1.25,
        ),
        ServingFigure(quantity="size", candidate=2.0, champion=1.0, ratio=2.0, low=2.0, high=2.0),
        ServingFigure(quantity="memory", told="the champion <could> not be served", limit=1.5),
    )  # fmt: skip
    text = Page(render.render(example.judged("shadow", serving=serving), {})).text
    assert "Latency of a batch of 256 rows 12 ms 10 ms 1.2 [1.1 to 1.31] 1.25: not shown" in text
    assert "Size 2 MB 1 MB 2 no limit" in text
    assert "Memory not measured not measured the champion <could> not be served 1.5: not shown" in text
    assert "measured in turns" not in Page(render.render(example.judged("shadow"), {})).text


def test_report_says_what_a_served_model_decides_and_that_it_is_the_champion_under_another_decision() -> None:
    costs = DecisionSpec.model_validate({"costs": {"false_positive": 1, "false_negative": 4}})
    point = OperatingPoint(decision=costs, threshold=0.2)
    text = Page(render.render(example.judged("promote", decides=point, champion="3"), {})).text
    assert "Version 4 decides where it is served: it gives 1 from an answer of 0.2 on." in text
    assert "Version 4 is the champion, version 3, under another decision" in text
    plain = Page(render.render(example.judged("promote"), {})).text
    assert "decides where it is served" not in plain
    assert "under another decision" not in plain


def changed_inputs_told() -> tuple[ChangedInputs, tuple[BehaviourResult, ...]]:
    """What is told of two features, one of them not used, and two declared tests, one of them not measured."""
    rise, none = example.estimate(0.3, 0.02), example.estimate(0.001, 0.004)
    points = tuple(
        DependencePoint(value=str(at), at=at, answer=example.estimate(at / 10, 0.01)) for at in (1.0, 2.0, 3.0)
    )
    shops = tuple(DependencePoint(value=name, answer=rise) for name in ("<b>", "$x$"))
    found = ChangedInputs(
        rows=4000, groups=61, loss="log_loss", measure="flip_rate", left_out=("photo: its values are files",),
        importance=(Importance(column="wind", loss=rise), Importance(column="$shop", loss=none)),
        dependence=(
            Dependence(column="wind", claim="label 1", points=points),
            Dependence(column="$shop", claim="label 1", points=shops),
        ),
        perturbations=(
            Perturbation(column="wind", change="jitter", refused=0.0, moved=none, loss=none),
            Perturbation(column="wind", change="thousandfold", refused=0.25, moved=rise, loss=rise),
            Perturbation(column="wind", change="missing", refused=1.0, reason="the contract refuses it"),
            Perturbation(column="$shop", change="unknown", refused=0.0, reason="model.py raised KeyError"),
            Perturbation(column="$shop", change="swapped", refused=0.0, asked=False, reason="no other value"),
        ),
    )  # fmt: skip
    declared = BehaviourSpec(column="wind", direction="rises", at_most=0.05)
    result = BehaviourResult(declared=declared, measure="violation_rate", rows=900, estimate=rise)
    unmeasured = result.model_copy(update={"estimate": None, "told": "training rows have no two values"})
    return found, (result, unmeasured)


def test_report_tells_what_is_answered_if_inputs_change() -> None:
    records = example.judged()
    found, results = changed_inputs_told()
    told = records["evaluation"].model_copy(update={"changed_inputs": found, "behaviour": results})
    page = render.render({**records, "evaluation": told}, LINKS)
    assert "Not shown to be used: $shop." in page
    assert "Left out: photo: its values are files." in page
    assert "not measured: training rows have no two values" in page
    table = page[page.index("One feature changed in all rows") :].partition("</table>")[0]
    # What does most harm first, and what was not asked last.
    assert re.findall(r"<td>(moved by|a thousand times|missing|a value|swapped)", table) == [
        "a thousand times", "moved by", "missing", "a value", "swapped",
    ]  # fmt: skip
    assert "25.0 % of rows" in table
    assert "Share of decisions that flip" in table
    unanswered = page[page.index("the model has no answer to") :].partition("</table>")[0]
    assert unanswered.count('<th scope="row">') == 1
    assert "model.py raised KeyError" in unanswered
    assert {"importance", "dependence"} <= figures.figures({**records, "evaluation": told}).keys()
    assert isinstance(told, EvaluationReport)
    for picture in (pictures.importance_chart(told), pictures.dependence_chart(told)):
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 100_000
    # Records of before it was asked, and models that have nothing to change.
    assert "if its inputs change" not in render.render(records, LINKS)
    nothing = told.model_copy(update={"changed_inputs": ChangedInputs(reason="no feature has values"), "behaviour": ()})
    page = render.render({**records, "evaluation": nothing}, LINKS)
    assert "Not measured: no feature has values." in page
    assert "Permutation importance" not in page


def test_what_decisions_cost_is_told_with_its_column_and_the_threshold():
    records = example.judged()
    report = records["evaluation"]
    assert isinstance(report, EvaluationReport)
    suite = Suite(
        name="flights", version=1, rows="", label="", code="", files={}, sha256="",
        declared={"decision": {"costs": {"false_positive": 5.0, "false_negative": "a<b>mount"}}},
    )  # fmt: skip
    told = report.model_copy(update={"suite": suite, "thresholds": {"candidate": 0.0663, "linear": 0.2}})
    page = render.render({**records, "evaluation": told}, LINKS)
    assert "a<b>mount" not in page
    assert (
        "Decision cost is a row's mean: acting on a row of label 0 costs 5, not acting on a row of label 1 costs what "
        "its column a<b>mount says. The candidate acts from 0.0663 on."
    ) in Page(page).text
    assert "Decision cost is" not in Page(render.render(records, LINKS)).text
