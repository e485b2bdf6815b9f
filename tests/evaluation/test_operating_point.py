"""The operating point as it is frozen with a registered model, and as the registry's tags tell it."""

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.declarations import agreement_problems
from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.evaluation.decision import decision_metrics
from trainworthy.lifecycle.evaluation.operating_point import (
    MOST_TAG,
    content_of,
    frozen_threshold,
    operating_point,
    point_tags,
    read_point,
    registered_with,
    same_point,
    served,
)
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, DecisionSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.use_case import UseCase, load_use_case

TOY = Path(__file__).parents[2] / "tests" / "toy" / "use_cases" / "toy"
CHOSEN = 0.123456789012345678


def benchmark(decision: dict | None) -> BenchmarkSpec:
    return BenchmarkSpec.model_validate(
        {
            "primary": {"metric": "log_loss", "margin": 0.01}, "baselines": ["prior", "linear"], "decision": decision,
            "latency_ms": 1, "size_mb": 1,
        }
    )  # fmt: skip


def point(**decision) -> OperatingPoint:
    found = operating_point(benchmark(decision), {"candidate": CHOSEN, "linear": 0.5})
    assert found is not None
    return found


def before(spec: BenchmarkSpec, threshold: float) -> dict[str, str]:
    """The tags of a version that was registered before the operating point was a file."""
    assert spec.decision is not None
    return {"decision": json.dumps(spec.decision.model_dump(mode="json")), "threshold": json.dumps(threshold)}


def test_point_comes_back_from_its_file_to_the_last_bit(tmp_path):
    for one in (point(capacity=0.1), point(cost_matrix={"late": {"early": 10}})):
        (tmp_path / "decision.json").write_bytes(content_of(one))
        assert read_point(tmp_path / "decision.json") == one
    assert read_point(tmp_path / "none.json") is None
    assert operating_point(benchmark(None), {}) is None


@pytest.mark.parametrize("content", ["", "{}", '{"decision": {"capacity": 0.1}}', '{"decision": {"threshold": 0.1'])
def test_file_that_holds_no_operating_point_is_one_error_with_the_fix(tmp_path, content):
    (tmp_path / "decision.json").write_text(content)
    with pytest.raises(ChampionError, match="cannot be read") as caught:
        read_point(tmp_path / "decision.json")
    assert "restore" in caught.value.fix


@pytest.mark.parametrize("threshold", [None, float("nan"), float("inf")])
def test_point_without_a_threshold_that_its_decision_needs_is_refused(threshold):
    with pytest.raises(ValidationError):
        OperatingPoint(decision=DecisionSpec(capacity=0.1), threshold=threshold)


def test_threshold_above_every_probability_is_told_as_acting_on_none():
    values = {"decision": DecisionSpec(capacity=0.1)}
    told = [OperatingPoint(threshold=at, **values).told for at in (1.0, float(np.nextafter(1.0, 2.0)))]
    assert told == ["1 from an answer of 1 on", "0 for every row"]


def test_version_is_told_by_its_tags_from_one_of_another_decision_or_threshold():
    mine, other = point(capacity=0.1), point(capacity=0.2)
    moved = mine.model_copy(update={"threshold": CHOSEN + 1e-9})
    for one in (mine, None):
        tags = point_tags(one)
        assert [registered_with(tags, asked) for asked in (mine, moved, other, None)] == [
            asked == one for asked in (mine, moved, other, None)
        ]
    assert same_point(point_tags(mine), point_tags(mine))
    assert not same_point(point_tags(mine), point_tags(moved))
    assert not same_point(point_tags(mine), {})


def test_version_from_before_the_file_is_found_by_the_tags_that_it_has():
    spec = benchmark({"capacity": 0.1})
    tags = before(spec, CHOSEN)
    assert registered_with(tags, point(capacity=0.1))
    assert same_point(tags, point_tags(point(capacity=0.1)))
    assert not registered_with(tags, None)
    assert not registered_with(tags | {"threshold": "0.5"}, point(capacity=0.1))
    assert not registered_with(tags | {"decision": "of another form"}, point(capacity=0.1))
    assert frozen_threshold(spec, tags) == CHOSEN
    assert frozen_threshold(spec, point_tags(point(capacity=0.1))) == CHOSEN
    assert frozen_threshold(benchmark({"capacity": 0.2}), tags) is None
    assert frozen_threshold(spec, {}) is None
    assert frozen_threshold(benchmark(None), tags) is None
    costs = {"cost_matrix": {"late": {"early": 10}}}
    assert frozen_threshold(benchmark(costs), point_tags(point(**costs))) is None


def test_table_of_costs_that_is_too_long_for_a_tag_is_found_by_its_hash():
    matrix = {f"class {one}": {f"class {two}": 7.0 for two in range(20) if two != one} for one in range(20)}
    tags = point_tags(point(cost_matrix=matrix))
    assert max(map(len, tags.values())) <= MOST_TAG
    assert registered_with(tags, point(cost_matrix=matrix))
    # A version without any decision has no readable one either.
    assert [same_point(tags, tags), same_point(tags, {}), same_point({}, {})] == [True, False, True]
    old = before(benchmark({"threshold": 0.4}), CHOSEN)
    assert [same_point(old, point_tags(point(threshold=at))) for at in (0.4, 0.5)] == [True, False]
    matrix["class 0"]["class 1"] = 8.0
    assert not registered_with(tags, point(cost_matrix=matrix))


def test_served_decision_is_the_one_whose_cost_is_measured():
    found = served(BINARY, np.array([0.1, CHOSEN, np.nextafter(CHOSEN, 0), 0.9]), point(capacity=0.1))
    assert list(found) == ["probability", "decision"]
    assert found["decision"].tolist() == [0, 1, 0, 1]
    kind = Multiclass(("early", "late", "on time"))
    costs = {"late": {"early": 10, "on time": 4}}
    answers = np.random.default_rng(0).dirichlet(np.ones(3), 500)
    decided = served(kind, answers, point(cost_matrix=costs))["decision"]
    rows = decision_metrics(benchmark({"cost_matrix": costs}), kind)["decision_cost"].rows
    assert rows is not None
    table = {
        true: {said: costs.get(true, {}).get(said, float(true != said)) for said in kind.classes}
        for true in kind.classes
    }
    for place, true in enumerate(kind.classes):
        places = np.array([kind.classes.index(said) for said in decided])
        assert rows(np.full(500, place), places).tolist() == [table[true][said] for said in decided]
    assert set(decided) == set(kind.classes)
    assert decided != [kind.classes[place] for place in answers.argmax(axis=1)]


@pytest.mark.parametrize(("decision", "problems"), [({"cost_matrix": {"late": {"decision": 5}}}, 1), (None, 0)])
def test_class_that_has_the_name_of_the_served_decision_is_refused_where_classes_are_decided(decision, problems):
    contract = load_contract(TOY / "contract.yaml")
    label = Label(name="positive", version=1, column="score", type="class", classes=("late", "decision"))
    spec, declared = load_use_case(TOY).spec, benchmark(decision).decision
    values = spec.model_copy(
        update={
            "task": spec.task.model_copy(update={"kind": "multiclass"}),
            "benchmark": spec.benchmark.model_copy(update={"decision": declared, "behaviour": ()}),
        }
    )
    use_case = UseCase(spec=values, folder=TOY)
    found = [str(one) for one in agreement_problems(use_case, contract.model_copy(update={"label": label}))]
    assert len(found) == problems, found
    assert all("as the column decision, which is a class's name as well" in one for one in found)


def bound_problems(**section) -> list[str]:
    use_case = load_use_case(TOY)
    spec = use_case.spec.model_dump(mode="json")
    spec["benchmark"] |= section
    changed = UseCase(folder=use_case.folder, spec=type(use_case.spec).model_validate(spec))
    return [str(one) for one in agreement_problems(changed, load_contract(use_case.contract_path))]


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ({"metric": "auc", "at_least": 0}, "no model breaks it: auc lies in [0, 1]"),
        ({"metric": "accuracy", "at_least": -1}, "no model breaks it: accuracy lies in [0, 1]"),
        ({"metric": "calibration_error", "at_most": 1}, "no model breaks it: calibration_error lies in [0, 1]"),
        ({"metric": "log_loss", "at_most": -1}, "no model keeps it: log_loss is never below 0"),
        ({"metric": "auc", "at_least": 1.2}, "no model keeps it: auc lies in [0, 1]"),
    ],
)
def test_bound_that_nothing_or_everything_breaks_is_refused_with_the_range(bound, told):
    (guardrail,) = bound_problems(guardrails=[bound])
    (part,) = bound_problems(slices=[{"column": "shop", **bound}])
    for found in (guardrail, part):
        assert told in found
        assert "write a bound" in found


@pytest.mark.parametrize(
    "bound",
    [
        {"metric": "auc", "at_least": 0.01}, {"metric": "auc", "at_least": 1}, {"metric": "log_loss", "at_most": 100},
        {"metric": "calibration_error", "at_most": 0.1},
    ],
)  # fmt: skip
def test_bound_within_the_range_however_generous_is_taken(bound):
    assert bound_problems(guardrails=[bound], slices=[{"column": "shop", **bound}]) == []


SOME_MAY = "arguments: {validValues: [north, south, west]}, unit: percent, mustBeLessOrEqualTo: "


@pytest.mark.parametrize("bound", ["mustBe: 0", "5", "60", "warning"])
def test_condition_for_a_value_that_the_contract_does_not_list_is_refused_where_few_rows_may_have_others(
    tmp_path, bound
):
    text = (TOY / "contract.yaml").read_text()
    listed = "arguments: {validValues: [north, south, west]}, mustBe: 0"
    assert listed in text
    known: dict[str, str] = {"mustBe: 0": listed, "warning": f"{listed}, severity: warning"}
    written = known[bound] if bound in known else SOME_MAY + bound
    (tmp_path / "contract.yaml").write_text(text.replace(listed, written))
    use_case = load_use_case(TOY)
    for where, refused in (('shop == "Nord"', True), ('shop == "north"', False)):
        spec = use_case.spec.model_dump(mode="json")
        spec["benchmark"]["slices"] = [{"where": where, "at_most": 1.0}]
        changed = UseCase(folder=TOY, spec=type(use_case.spec).model_validate(spec))
        found = [str(one) for one in agreement_problems(changed, load_contract(tmp_path / "contract.yaml"))]
        assert len(found) == (refused and bound in ("mustBe: 0", "5")), found
        assert all("asks for values of shop that contract.yaml does not list" in one for one in found)


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ("x1 > 5 and x1 < 2", "> 5 and < 2"),
        ("x1 > 2 and (x2 < 9 and x1 <= 2)", "> 2 and <= 2"),
        ("x1 == 3 and x1 > 3", "== 3 and > 3"),
        ('shop == "west" or 5 < x1 < 2', "> 5 and < 2"),
        ("x1 > 2 and x1 < 5", None),
        ("x1 >= 2 and x1 <= 2", None),
        ("x1 > 5 or x1 < 2", None),
        ("x1 > 5 and x2 < 2", None),
        ("not (x1 > 5 and x1 < 7)", None),
    ],
)
def test_condition_on_a_range_that_holds_no_number_is_refused(where, asked):
    found = bound_problems(slices=[{"where": where, "at_most": 1.0}])
    assert len(found) == (asked is not None)
    assert asked is None or f"no number of x1 is {asked}, so no row is in it" in found[0]
