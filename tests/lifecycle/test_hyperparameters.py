"""A misspelled hyperparameter is told by its own name and the near one, whichever way model.py takes it."""

import json
from pathlib import Path
from typing import Any

import pytest
import toy_jobs

from trainworthy.lifecycle.engine.preflight.functions import try_functions
from trainworthy.lifecycle.hyperparameters import NoSuchHyperparameterError, likely_hyperparameters
from trainworthy.lifecycle.protocol.jobs import FunctionsJob, Rows
from trainworthy.lifecycle.protocol.results import TriedFunction
from trainworthy.lifecycle.task import error_line

READ = 'Network(hyperparameters["width"])'
SPREAD = "Network(**hyperparameters)"


def job(use_case: Path, out: Path, **hyperparameters: Any) -> FunctionsJob:
    rows = Rows(features=("shop", "x1", "x2"), label="positive", group="day")
    return FunctionsJob(
        use_case_folder=str(use_case), out=str(out), device="cpu", rows=rows, hyperparameters=hyperparameters,
        training=toy_jobs.SPEC.training, steps=250,
    )  # fmt: skip


def built(tmp_path: Path, call: str, **hyperparameters: Any) -> TriedFunction:
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (READ, call))
    tried = try_functions(job(use_case, tmp_path / "out", **hyperparameters)).functions
    return next(one for one in tried if one.name == "build_model")


@pytest.mark.parametrize("call", [READ, SPREAD])
def test_right_hyperparameter_is_well(tmp_path, call):
    assert built(tmp_path, call, width=8).faults == ()


def test_hyperparameter_that_is_read_under_another_name_is_told_with_the_near_one(tmp_path):
    (fault,) = built(tmp_path, READ, widht=8).faults
    assert fault.problem == "use_case.yaml has no hyperparameter 'width', which is read here; it has 'widht'"
    assert "rename it in use_case.yaml" in fault.fix


def test_hyperparameter_that_no_argument_takes_is_told_with_the_arguments_near_name(tmp_path):
    (fault,) = built(tmp_path, SPREAD, widht=8).faults
    assert fault.problem == "use_case.yaml has the hyperparameter 'widht', which model.py does not take"
    assert fault.fix == "did you mean 'width'?"


def test_other_errors_of_arguments_are_told_as_they_are(tmp_path):
    (fault,) = built(tmp_path, "Network(depth=3)", width=8).faults
    assert fault.problem.startswith("TypeError:")


def test_hyperparameters_of_a_job_are_a_dict_of_which_a_missing_name_says_what_there_is(tmp_path):
    given = job(tmp_path, tmp_path, widht=8, depth=2)
    assert json.loads(given.model_dump_json())["hyperparameters"] == {"widht": 8, "depth": 2}
    assert given.hyperparameters.get("width", 3) == 3
    assert "width" not in given.hyperparameters
    with pytest.raises(KeyError, match="it has widht, depth"):
        given.hyperparameters["rows"]


def test_hyperparameters_name_is_told_where_messages_of_rows_are_kept_back(tmp_path):
    name, value = (
        error_line(error, tmp_path, sensitive=True)
        for error in (raised(NoSuchHyperparameterError("no hyperparameter 'width'")), raised(KeyError("Smith")))
    )
    assert "no hyperparameter 'width'" in name
    assert "Smith" not in value


def raised(error: KeyError) -> KeyError:
    with pytest.raises(KeyError) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"width": "64"},
            'in use_case.yaml the hyperparameter width: "64" is a text: write it without quotes, width: 64',
        ),
        (
            {"width": -3, "depth": 2, "note": "a"},
            "in use_case.yaml that it may come from: width: -3 (a whole number); ",
        ),
        (
            {"width": "wide"},
            "that line, or the hyperparameters in use_case.yaml that it may come from: width: 'wide' (a text)",
        ),
    ],
)
def test_hyperparameter_that_build_model_cannot_use_is_named_with_its_value_and_type(tmp_path, values, told):
    (fault,) = built(tmp_path, READ, **values).faults
    assert told in fault.fix
    assert fault.where.startswith("model.py:")


@pytest.mark.parametrize(
    ("message", "values", "named"),
    [
        ("dropout probability has to be between 0 and 1, but got 1.5", {"width": 6, "dropout": 1.5}, ["dropout: 1.5"]),
        ("got 1.25", {"rate": 1.2, "width": 25}, ["rate: 1.2", "width: 25"]),
        ("unknown", {"a": True, "b": [1], "c": None}, ["a: True (true or false)", "b: [1] (a list)", "c: None"]),
    ],
)
def test_hyperparameters_that_a_message_names_are_told_alone(message, values, named):
    told = likely_hyperparameters(message, values, given=True)
    assert [name for name in values if f"{name}: " in told] == [text.partition(":")[0] for text in named]
    assert all(text in told for text in named)


def test_hyperparameters_are_not_told_of_a_function_that_is_given_none_but_for_texts_of_numbers():
    assert likely_hyperparameters("a", {"width": 64}, given=False) == "correct that line"
    assert likely_hyperparameters("a", {}, given=True) == "correct that line"
    assert "width: 64" in likely_hyperparameters("a", {"width": "64"}, given=False)
