"""What split names, held against the contract before any row is read."""

from pathlib import Path

import pytest
from split_specs import CONTRACT, KINDS, spec
from toy_jobs import SPEC, TOY

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.declarations import agreement_problems
from trainworthy.lifecycle.spec.benchmark import FairnessSpec
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.use_case import UseCase


def told(by: str, contract: Contract = CONTRACT, prediction_time: str | None = "when", **changes) -> list[str]:
    values = SPEC.model_copy(update={"split": spec(by, **changes), "prediction_time": prediction_time})
    return [str(problem) for problem in agreement_problems(UseCase(spec=values, folder=Path(TOY)), contract)]


def other(**columns: dict) -> Contract:
    changed = tuple(c.model_copy(update=columns.get(c.name, {})) for c in CONTRACT.columns)
    return CONTRACT.model_copy(update={"columns": changed})


@pytest.mark.parametrize("by", ["time", "hash", "stratified"])
def test_split_of_columns_of_the_contract_agrees(by):
    assert told(by) == []


@pytest.mark.parametrize("by", KINDS)
def test_column_that_the_contract_lacks_is_told_with_its_key(by):
    found = told(by, resample_by="dya")
    assert any("use_case.yaml: split.resample_by" in line and "did you mean 'day'?" in line for line in found)


@pytest.mark.parametrize(
    ("by", "changes", "key"),
    [
        ("time", {"column": "whne"}, "split.column"),
        ("group", {"group": "customer"}, "split.group"),
        ("time_and_group", {"group": "customer"}, "split.group"),
        ("hash", {"columns": ["row_id", "shpo"]}, "split.columns.1"),
        ("stratified", {"strata": ["shpo"]}, "split.strata.0"),
    ],
)
def test_each_named_column_is_looked_for(by, changes, key):
    assert any(line.startswith(f"use_case.yaml: {key}: not a column") for line in told(by, **changes))


@pytest.mark.parametrize("by", ["hash", "stratified"])
def test_split_by_a_key_that_is_not_there_is_told(by):
    assert "needs a primary key" in told(by, CONTRACT.model_copy(update={"primary_key": ()}))[0]
    assert told("hash", CONTRACT.model_copy(update={"primary_key": ()}), columns=["shop"]) == []


def test_prediction_time_that_is_no_time_is_told_where_the_split_has_none():
    assert "prediction_time: is no column of dates or timestamps" in told("hash", prediction_time="shop")[0]
    assert told("time", prediction_time="shop") == []


def test_rows_without_times_need_no_prediction_time_unless_time_splits_them():
    assert told("hash", prediction_time=None) == []
    values = SPEC.model_dump(mode="json", by_alias=True) | {"prediction_time": None}
    with pytest.raises(ValueError, match=r"prediction_time is missing, and split\.by: time needs it"):
        UseCaseSpec.model_validate(values)


def test_two_weight_columns_are_told():
    assert told("time", other(x2={"role": "weight"})) == []
    assert other(x2={"role": "weight"}).weight_column == "x2"
    assert (
        "more than one column has the role weight"
        in told("time", other(row_id={"role": "weight"}, x2={"role": "weight"}))[0]
    )


def test_protected_columns_are_looked_for_and_are_no_times():
    def found(*columns: str) -> list[str]:
        benchmark = SPEC.benchmark.model_copy(update={"fairness": FairnessSpec(columns=columns)})
        values = SPEC.model_copy(update={"split": spec("time"), "prediction_time": "when", "benchmark": benchmark})
        return [str(problem) for problem in agreement_problems(UseCase(spec=values, folder=Path(TOY)), CONTRACT)]

    assert found("shop") == []
    assert [line.split(": ")[1] for line in found("shpo", "when")] == [
        "benchmark.fairness.columns.0", "benchmark.fairness.columns.1",
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [{"selection_rate": 1.0}, {"selection_rate": 0.0}, {"auc": 0.1}])
def test_limit_of_fairness_that_no_model_could_break_or_keep_is_refused(limit):
    with pytest.raises(ValueError, match="at_most_difference"):
        FairnessSpec.model_validate({"columns": ["shop"], "at_most_difference": limit})
