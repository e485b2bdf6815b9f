"""No feature may be known only after the prediction time."""

import pytest

from trainworthy.lifecycle.contract.availability import availability_check, duration_seconds
from trainworthy.lifecycle.contract.model import Column, Contract, Label


def contract(**available_at):
    columns = [
        Column(name=name, logical_type="number", role="feature", available_at=value)
        for name, value in available_at.items()
    ]
    source = Column(name="y", logical_type="number", role="target_source", available_at="PT2H")
    return Contract(
        name="t",
        version="1",
        columns=(*columns, source),
        rules=(),
        label=Label(name="late", version=1, column="y", greater_than=1.0),
        primary_key=("id",),
        timeline=("booking", "prediction", "landing"),
    )


def test_availability_columns_known_by_prediction_pass_with_their_instants():
    check = availability_check(contract(a="PT0S", b="-PT1H", c="booking", d="prediction", e="-P1W"), tuple("abcde"))
    assert check.status == "pass"
    assert [item["available_at"] for item in check.details] == ["PT0S", "-PT1H", "booking", "prediction", "-P1W"]


def test_availability_that_is_a_drafts_guess_passes_and_is_called_so():
    made = contract(a="PT0S", b="PT0S", c="PT0S")
    guessed = (made.columns[0], *(column.model_copy(update={"reviewed": False}) for column in made.columns[1:]))
    check = availability_check(made.model_copy(update={"columns": guessed}), ("a", "b"))
    assert check.status == "pass"
    assert "of 1 of them that is the guess of a draft, which nobody has reviewed" in check.evidence
    assert "guess" not in availability_check(made, ("a", "b")).evidence


@pytest.mark.parametrize(
    ("available_at", "reason"),
    [("PT0.1S", "after the prediction time"), ("landing", "after the prediction time"), (None, "declares no")],
)
def test_availability_late_or_undeclared_column_fails_by_name(available_at, reason):
    check = availability_check(contract(a="PT0S", late=available_at), ("a", "late"))
    assert check.stops
    assert check.observed == 1
    assert f"late: {reason}" in check.evidence.replace(f"known only at {available_at}, ", "")


@pytest.mark.parametrize("name", ["y", "unknown"])
def test_availability_column_that_is_no_declared_feature_fails(name):
    assert availability_check(contract(a="PT0S"), ("a", name)).status == "fail"


def test_availability_without_columns_is_an_error():
    assert availability_check(contract(a="PT0S"), ()).status == "error"


def test_duration_seconds_counts_each_unit_and_the_sign():
    assert duration_seconds("-P1W2DT3H4M5.5S") == -(604_800 + 2 * 86_400 + 3 * 3_600 + 4 * 60 + 5.5)
    for wrong in ("", "P", "PT", "P1Y", "1H", "PT1H ", "-P1DT"):
        with pytest.raises(ValueError, match="not an ISO 8601 duration"):
            duration_seconds(wrong)
