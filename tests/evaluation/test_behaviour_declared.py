"""What can never be asked of a declared test is told with its place, before any row is read."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.rule import NO_ROW, NOT_EVERY_ROW, Rule, make_rule
from trainworthy.lifecycle.declarations import agreement_problems
from trainworthy.lifecycle.evaluation.input_columns import changed_inputs_job, input_column
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, BenchmarkSpec
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.tasks.declared import kind_problems
from trainworthy.lifecycle.use_case import UseCase, load_use_case

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "toy" / "use_cases" / "toy"
CONTRACT = load_contract(TOY / "contract.yaml")
NULLABLE = CONTRACT.model_copy(update={"rules": tuple(rule for rule in CONTRACT.rules if rule.kind != "nulls")})


def told(*tests: dict[str, Any], contract: Contract = CONTRACT) -> list[str]:
    spec = load_use_case(TOY).spec
    declared = tuple(BehaviourSpec.model_validate({"at_most": 0.05} | test) for test in tests)
    spec = spec.model_copy(update={"benchmark": spec.benchmark.model_copy(update={"behaviour": declared})})
    return [str(problem) for problem in agreement_problems(UseCase(spec=spec, folder=TOY), contract)]


def test_tests_that_can_be_asked_are_agreed_on():
    asked = (
        {"column": "shop", "invariant_to": "swapped"},
        {"column": "x1", "direction": "rises"},
        {"column": "x2", "direction": "falls", "claim": "label 1"},
        {"column": "x1", "invariant_to": "jitter"},
    )
    assert told(*asked) == []
    assert told({"column": "x1", "invariant_to": "missing"}, contract=NULLABLE) == []


def test_condition_on_a_value_that_no_row_may_have_is_told_with_the_nearest():
    known = make_rule("shops", "allowed", ("shop",), values=["north", "south"], bound=NO_ROW)
    some = make_rule("shops", "allowed", ("shop",), values=["north", "south"], bound=NOT_EVERY_ROW)
    # One that is only left out, and a list of which some are there, ask for nothing that is not.
    where = 'shop == "nroth" or shop in ["east"] or shop != "gone" or not shop == "gone" or shop in ["south", "west"]'
    spec = load_use_case(TOY).spec
    benchmark = BenchmarkSpec.model_validate(spec.benchmark.model_dump(mode="json") | {"slices": [{"where": where}]})
    use_case = UseCase(spec=spec.model_copy(update={"benchmark": benchmark}), folder=TOY)

    def found(*rules: Rule) -> list[str]:
        return [str(one) for one in agreement_problems(use_case, CONTRACT.model_copy(update={"rules": rules}))]

    wrong, other = found(known)
    assert wrong.startswith("use_case.yaml: benchmark.slices.0.where: asks for values of shop that contract.yaml does")
    assert ("north" in wrong, "nroth" in wrong, "east" in other) == (True, True, True)
    # Of values that are only rare, or of none that are listed, nothing is known.
    assert (found(some), found()) == ([], [])


@pytest.mark.parametrize(
    ("test", "place", "problem"),
    [
        ({"column": "shpo", "invariant_to": "swapped"}, "column", "not a column of contract.yaml"),
        ({"column": "day", "invariant_to": "swapped"}, "column", "is no feature"),
        ({"column": "shop", "direction": "rises"}, "direction", "only numbers rise"),
        ({"column": "shop", "invariant_to": "jitter"}, "invariant_to", "only numbers have jitter"),
        ({"column": "x1", "invariant_to": "missing"}, "invariant_to", "the contract refuses a missing value"),
        ({"column": "x1", "direction": "rises", "claim": "label 2"}, "claim", "is nothing that is answered"),
        ({"column": "x1", "direction": "rises", "at_most": 1.0}, "at_most", "is no limit of a share of rows"),
        ({"column": "shop", "invariant_to": "swapped", "at_most": 7}, "at_most", "is no limit of a share of rows"),
    ],
)
def test_test_that_could_never_be_asked_is_told_with_its_place(test, place, problem):
    (found,) = told(test)
    assert found.startswith(f"use_case.yaml: benchmark.behaviour.0.{place}: {problem}")


def test_all_mistakes_are_told_at_once():
    found = told({"column": "shpo", "direction": "rises", "at_most": 2}, {"column": "day", "invariant_to": "jitter"})
    assert [line.split(": ")[1] for line in found] == [
        "benchmark.behaviour.0.column", "benchmark.behaviour.0.at_most", "benchmark.behaviour.1.column",
    ]  # fmt: skip


@pytest.mark.parametrize(("use_case", "problems"), [("scenes", 1), ("docstrings", 1), ("digits", 0)])
def test_kind_that_answers_many_places_a_row_has_no_tests(use_case, problems):
    values = yaml.safe_load((ROOT / "use_cases" / use_case / "use_case.yaml").read_text())
    values["benchmark"]["behaviour"] = [{"column": "a", "invariant_to": "swapped", "at_most": 0.1}]
    found = kind_problems(UseCaseSpec.model_validate(values))
    assert [one.where for one in found] == ["use_case.yaml: benchmark.behaviour"] * problems


def test_direction_of_several_claims_has_to_say_which():
    grades = Label(name="positive", version=1, column="score", type="class", classes=(0, 1, 2))
    spec = load_use_case(TOY).spec
    test = BehaviourSpec(column="x1", direction="rises", at_most=0.1)
    values = spec.model_copy(
        update={
            "task": spec.task.model_copy(update={"kind": "multiclass"}),
            "benchmark": spec.benchmark.model_copy(update={"behaviour": (test,)}),
        }
    )
    contract = CONTRACT.model_copy(update={"label": grades})
    (found,) = map(str, agreement_problems(UseCase(spec=values, folder=TOY), contract))
    assert found.startswith("use_case.yaml: benchmark.behaviour.0.direction: the answer holds several probabilities")
    assert "claim: class 0" in found


def test_same_test_twice_is_refused():
    values = yaml.safe_load((TOY / "use_case.yaml").read_text())
    test = {"column": "x1", "direction": "rises", "at_most": 0.1}
    values["benchmark"]["behaviour"] = [test, test | {"at_most": 0.2}]
    with pytest.raises(ValueError, match="declared twice: the answer rises as x1 rises"):
        UseCaseSpec.model_validate(values)


def test_features_have_what_the_contract_says_at_every_single_row():
    columns = {
        "wind": Column(name="wind", logical_type="integer", role="feature"),
        "shop": Column(name="shop", logical_type="string", role="feature", sensitive=True),
        "code": Column(name="code", logical_type="string", role="feature"),
        "text": Column(name="text", logical_type="string", role="feature"),
        "picture": Column(name="picture", logical_type="string", role="feature", file="picture"),
    }
    rules = (
        make_rule("a", "range", ("wind",), bound=NO_ROW, minimum=0, exclusive_maximum=80),
        make_rule("b", "range", ("wind",), bound=NO_ROW, minimum=-5),
        # A warning refuses nothing, and neither does a rule that lets a share of rows through.
        make_rule("c", "range", ("wind",), "warning", bound=NO_ROW, maximum=40),
        make_rule("d", "nulls", ("wind",), bound=NOT_EVERY_ROW),
        make_rule("e", "nulls", ("shop",), bound=NO_ROW),
        make_rule("f", "allowed", ("shop",), bound=NO_ROW, values=["a", "b"]),
        make_rule("g", "pattern", ("code",), bound=NO_ROW, pattern="^[A-Z]{3}$"),
        make_rule("h", "less_or_equal", ("wind", "code"), bound=NO_ROW),
    )
    wind, shop, code = (input_column(columns[name], rules) for name in ("wind", "shop", "code"))
    assert (wind.nullable, wind.limits, wind.closed) == (True, {"minimum": 0.0, "exclusive_maximum": 80.0}, False)
    assert (shop.nullable, shop.allowed, shop.closed, shop.sensitive) == (False, ("a", "b"), True, True)
    assert (code.nullable, code.allowed, code.closed) == (True, (), True)
    label = Label(name="text", version=1, column="text", type="text")
    contract = Contract(
        name="c", version="1", columns=tuple(columns.values()), rules=rules, label=label, primary_key=()
    )
    job = changed_inputs_job(contract, tuple(columns), ())
    assert [one.name for one in job.columns] == ["wind", "shop", "code"]
    assert job.left_out == ("text: it is input and label at once", "picture: its values are files")
    assert job.reason.startswith("the model reads files (picture)")
