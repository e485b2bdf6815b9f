"""Values of use_case.yaml are of their key's type: no text in quotes is a number, and what is refused says the form."""

import re

import pytest
import toy_jobs

from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.use_case import load_use_case


@pytest.fixture
def folder(tmp_path):
    return toy_jobs.changed_use_case(tmp_path / "toy")


def write(folder, key, value):
    """The value of the first such key, as it would be written by hand."""
    path = folder / "use_case.yaml"
    text, count = re.subn(rf"\b{key}: [^,}}\n]+", lambda _: f"{key}: {value}", path.read_text(), count=1)
    assert count == 1
    path.write_text(text)


def told(folder):
    with pytest.raises(UseCaseError) as caught:
        load_use_case(folder)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("key", "value", "where", "problem", "fix"),
    [
        ("epochs", '"6"', "training.epochs", "in quotes it is a text", "without quotes: epochs: 6"),
        ("epochs", "true", "training.epochs", "true and false are none", "write the number: epochs: 1"),
        ("learning_rate", "'1e-3'", "training.optimizer.learning_rate", "in quotes", "quotes: learning_rate: 1e-3"),
        ("learning_rate", '"0"', "training.optimizer.learning_rate", "in quotes", "quotes: learning_rate: 0"),
        ("run_usd", '"0.5"', "budget.run_usd", "in quotes it is a text", "without quotes: run_usd: 0.5"),
        ("metric: calibration_error, at_most", '"0.1"', "benchmark.guardrails.0.at_most", "in quotes", "at_most: 0.1"),
    ],
)
def test_value_of_another_type_is_refused_once_and_told_how_it_is_written(folder, key, value, where, problem, fix):
    write(folder, key, value)
    found = told(folder)
    assert found.where == f"use_case.yaml: {where}"
    assert problem in found.problem
    assert found.fix.endswith(fix)


def test_number_with_an_exponent_and_no_quotes_is_a_number(folder):
    write(folder, "learning_rate", "1e-3")
    assert load_use_case(folder).spec.training.optimizer.learning_rate == 0.001


@pytest.mark.parametrize("value", ['"true"', "y", "1"])
def test_truth_that_is_a_text_or_a_number_is_refused(folder, value):
    path = folder / "use_case.yaml"
    path.write_text(re.sub(r"(?m)^compute: \{", f"compute: {{spot: {value}, ", path.read_text()))
    found = told(folder)
    assert found.where == "use_case.yaml: compute.spot"
    assert found.fix.endswith("spot: true")


def test_mistake_of_type_is_told_beside_others(folder):
    write(folder, "epochs", '"6"')
    write(folder, "owner", "me")
    with pytest.raises(UseCaseError) as caught:
        load_use_case(folder)
    assert [problem.where for problem in caught.value.problems] == [
        "use_case.yaml: training.epochs", "use_case.yaml: owner",
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["47", '"47"'])
def test_duration_without_a_unit_is_told_the_form_at_once(folder, value):
    write(folder, "validation", value)
    assert "for example 14d or 36h" in told(folder).problem


def test_number_for_a_name_is_told_the_form_that_quotes_alone_would_not_give(folder):
    write(folder, "version", "9")
    assert told(folder).problem.startswith("must look like ^[a-z]")


@pytest.mark.parametrize("value", ["01/03/2015", "5", "soon", "'2015-02-30'"])
def test_day_in_another_form_is_told_the_form_with_an_example(folder, value):
    write(folder, "roll", f"pinned, start: {value}")
    found = told(folder)
    assert found.where == "use_case.yaml: split.benchmark.start"
    assert found.problem == "must be a date, written year-month-day, for example 2015-03-01"


def test_day_that_the_calendar_does_not_have_is_told_with_its_line(folder):
    write(folder, "roll", "pinned, start: 2015-02-30")
    found = told(folder)
    assert "2015-02-30 is no date or time" in found.problem
    assert re.fullmatch(r"use_case.yaml:\d+", found.where)
