"""How values are written in the report: their unit, their digits, and in which direction a metric is better."""

from __future__ import annotations

import math

import pytest
import report_records as example

from trainworthy.lifecycle.protocol.figures import (
    Metric,
)
from trainworthy.lifecycle.protocol.records import EvaluationReport
from trainworthy.lifecycle.report import (
    formatting,
    outcome,
    sections,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 USD"),
        (0.0000321, "0.000032 USD"),
        (0.00289, "0.0029 USD"),
        (0.5, "0.5000 USD"),
        (1234.5, "1,234.50 USD"),
        (-0.25, "−0.2500 USD"),
        (math.nan, "not a number"),
    ],
)
def test_usd_keeps_the_digits_that_matter(value: float, shown: str) -> None:
    assert formatting.usd(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 s"),
        (0.00213, "2.13 ms"),
        (1.234, "1.23 s"),
        (61.04, "61.0 s"),
        (173, "2 min 53 s"),
        (7_260, "2 h 1 min"),
        (math.inf, "not a number"),
    ],
)
def test_seconds_change_unit_with_size(value: float, shown: str) -> None:
    assert formatting.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (336_776, "336,776"),
        (-3, "−3"),
        (0.5, "0.5"),
        (123.4567, "123.46"),
        (-1e-9, "−1e−09"),
        (1e-5, "0.00001"),
        (math.nan, "not a number"),
        ("inf", "inf"),
        ({"b": 1}, "b 1"),
        (["year", 2], "year, 2"),
        ([], "–"),
    ],
)
def test_plain_shows_values_of_every_type(value: object, shown: str) -> None:
    assert formatting.plain(value) == shown


def test_estimate_shows_two_digits_of_its_standard_error() -> None:
    assert formatting.estimate(example.estimate(0.5, 0.01)) == "0.5000 [0.4800, 0.5200]"
    assert formatting.estimate(example.estimate(0.0000412, 0.000011), sign=True) == "+0.000041 [+0.000019, +0.000063]"
    assert formatting.estimate(example.estimate(-0.00001, 0.01), sign=True) == "0.0000 [−0.0200, +0.0200]"


def test_slices_whose_metric_is_higher_the_better_are_worst_where_it_is_lowest() -> None:
    report = outcome.record_of(example.of_classes(), "evaluation", EvaluationReport)
    assert report is not None
    recalls = tuple(
        Metric(model="candidate", metric="recall[late]", estimate=example.estimate(value, 0.01), rows=300, slice=name)
        for name, value in (("a", 0.7), ("b", 0.3), ("c", 0.5), (None, 0.6))
    )
    told = report.model_copy(update={"primary": "recall[late]", "metrics": recalls})
    assert [item.slice for item in sections.slices_shown(told)] == ["b", "c", "a"]
    assert sections.slices_in_words(told).startswith("2 of 3 slices lie below all rows in recall of late with their")
    assert "worst first: b (0.3000 [0.2800, 0.3200]), c" in sections.slices_in_words(told)


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("rmse", "lower is better"), ("r2", "higher is better"), ("recall[a b]", "higher is better"),
        ("pinball[0.9]", "lower is better"), ("coverage[0.9]", "best at 0.9"), ("interval_width", ""), ("own", ""),
    ],
)  # fmt: skip
def test_direction_of_a_metric_is_told_by_its_name(metric: str, told: str) -> None:
    assert sections.direction(metric) == told


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        (0.4987, 0.0043, "0.4987 [0.4901, 0.5073]"),
        (41.27, 0.91, "41.27 [39.45, 43.09]"),
        (41.27, 3.2, "41.3 [34.9, 47.7]"),
        (151_234.5, 812.0, "151,234 [149,610, 152,858]"),
        (3.1e-6, 4e-7, "0.00000310 [0.00000230, 0.00000390]"),
        (1 / 3, 2e-17, "0.3333 [0.3333, 0.3333]"),
        (1 / 3, 0.0, "0.3333 [0.3333, 0.3333]"),
    ],
)
def test_estimate_has_the_decimals_that_its_error_allows(value: float, error: float, told: str) -> None:
    assert formatting.estimate(example.estimate(value, error)) == told
