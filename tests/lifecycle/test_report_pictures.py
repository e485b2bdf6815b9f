"""The report's pictures: drawn of what there is, and in words where there is nothing."""

from __future__ import annotations

import io
import math

import pytest
import report_records as example
from PIL import Image
from report_page import Page

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import (
    Estimate,
)
from trainworthy.lifecycle.protocol.records import EvaluationReport
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report import (
    figures,
    outcome,
    pictures,
    render,
)

pytestmark = pytest.mark.usefixtures("pictures_drawn")


def test_pictures_are_png_that_fit_into_metadata() -> None:
    stages = outcome.stages_of(example.experiment())
    report = example.evaluation()
    many = report.model_copy(update={"metrics": report.metrics * 9})
    drawn = {
        "learning": pictures.learning_curve(stages),
        "one stage": pictures.learning_curve(stages[:1]),
        "reliability": pictures.reliability_curve(report),
        "slices": pictures.slice_chart(report),
        "many slices": pictures.slice_chart(many),
        "comparison": pictures.comparison_chart(report.comparisons, Words()),
    }
    for name, png in drawn.items():
        # Base64 makes four bytes of three; the data URI must stay below 100 kB.
        assert len(png) < 74_000, name
        picture = Image.open(io.BytesIO(png)).convert("RGB")
        assert picture.getpixel((0, 0)) == (255, 255, 255)
        assert len(picture.getcolors(1 << 20) or []) > 8, f"{name} is empty"


def test_pictures_without_data_say_so_in_words() -> None:
    empty = example.evaluation().model_copy(update={"metrics": (), "comparisons": (), "reliability": ()})
    blank = example.stage("smoke", 1_870, 24, 0.5).model_copy(update={"metrics": {}, "curve": ()})
    for png in (
        pictures.slice_chart(empty),
        pictures.reliability_curve(empty),
        pictures.comparison_chart((), Words()),
        pictures.learning_curve([blank]),
        pictures.learning_curve([]),
    ):
        assert Image.open(io.BytesIO(png)).width > 300


def test_pictures_of_values_that_are_not_finite_are_drawn_and_count_as_worst() -> None:
    report = example.evaluation()
    first = pictures.slice_metrics(report)[0]
    broken = first.model_copy(
        update={
            "slice": "$x_{$ broken",
            "estimate": Estimate(value=math.nan, low=math.nan, high=math.nan, standard_error=math.nan, groups=3),
        }
    )
    changed = report.model_copy(update={"metrics": (*report.metrics, broken)})
    assert pictures.worst_first(pictures.slice_metrics(changed))[0] is broken
    assert pictures.slice_chart(changed)
    assert "not a number" in Page(render.render({**example.judged(), "evaluation": changed}, {})).text
    stage = example.stage("smoke", 1_870, 24, math.nan)
    assert pictures.learning_curve([stage])


def test_range_of_learning_rates_is_drawn_with_the_declared_one_and_those_worth_trying():
    trial = {"check": "learning_rate.range", "curve": [[1e-4, 0.7], [3e-3, 0.5], [0.1, 2.0]], "observed": 0.001}
    check = CheckResult(name="learning_rate", status="pass", details=(trial,))
    records = example.judged("shadow")
    assert "rates" not in figures.figures(records)
    records["preflight"] = records["preflight"].model_copy(update={"checks": (check,)})
    drawn = figures.figures(records)["rates"]
    assert drawn.alt == "Loss by learning rate: worth trying 0.0001 to 0.001, declared 0.001"


def test_reliability_of_numbers_spans_what_they_span_and_of_probabilities_ends_at_one() -> None:
    numbers, classes = (
        outcome.record_of(made(), "evaluation", EvaluationReport) for made in (example.of_numbers, example.of_classes)
    )
    assert numbers is not None
    assert classes is not None
    low, top = pictures._range(numbers)
    assert (low, top) == pytest.approx((-15.64 - 0.08 * 77.77, 62.13 + 0.08 * 77.77), abs=0.01)
    assert pictures._range(classes) == pytest.approx((0.0, 0.972))
