"""Messages of the command line in the words of who reads them."""

from types import SimpleNamespace

import pytest
from pydantic import BaseModel, Field, ValidationError

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec_problems import spec_problem
from trainworthy.lifecycle.wording import about, counted
from trainworthy.pipeline import datasets
from trainworthy.pipeline.cli import with_durations
from trainworthy.pipeline.scaffold.request import _taken


class Form(BaseModel):
    rows: int = Field(default=1, ge=1, le=9)
    rate: float = Field(default=1.0, gt=0)
    on: bool = True
    name: str = "x"
    names: list[str] = Field(default=["a"], min_length=1)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rows", "many", "must be a whole number"),
        ("rows", 1.5, "must be a whole number"),
        ("rows", 0, "must be 1 or more"),
        ("rows", 10, "must be 9 or less"),
        ("rate", "fast", "must be a number"),
        ("rate", 0, "must be more than 0"),
        ("on", "maybe", "must be true or false"),
        ("name", 1, "must be a text; put it in quotes where it looks like a number"),
        ("names", "a", "must be a list"),
        ("names", [], "must hold at least 1"),
    ],
)
def test_value_that_is_refused_is_told_by_what_it_must_be(key, value, said):
    with pytest.raises(ValidationError) as caught:
        Form.model_validate({key: value})
    problem = spec_problem(caught.value.errors()[0], Form)
    assert problem.problem == said
    assert problem.where == f"use_case.yaml: {key}"
    assert "Input should" not in str(problem)


@pytest.mark.parametrize("parts", ["-1", "0", "two", "1.5", "true"])
def test_parts_that_are_no_count_are_refused_before_anything_is_built(parts):
    with pytest.raises(DatasetError, match="parts is no whole number from 1 on"):
        datasets.publish_dataset("rain", "v2", [f"parts={parts}"], "", "")


def test_duration_before_now_is_taken_with_a_space_as_with_a_sign():
    given = ["contract", "review", "x", "--known", "-PT1H", "--reason", "-PT1H"]
    assert with_durations(given) == ["contract", "review", "x", "--known=-PT1H", "--reason", "-PT1H"]
    assert with_durations(["--known", "later"]) == ["--known", "later"]


def test_name_of_a_use_case_that_is_there_is_the_one_problem(tmp_path):
    folder = tmp_path / "use_cases" / "shop"
    folder.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "shop.yaml").touch()
    request = SimpleNamespace(name="shop", source="data/shop_source")
    settings = SimpleNamespace(use_cases=(folder.parent,))
    (problem,) = _taken(request, settings, ["shop"])  # pyright: ignore[reportArgumentType]
    assert problem.problem == "there is a folder of this name already"
    folder.rmdir()
    (problem,) = _taken(request, settings, ())  # pyright: ignore[reportArgumentType]
    assert problem.value == "data/shop.yaml"


def test_counts_have_the_noun_that_belongs_to_them_and_estimates_are_round():
    assert [counted(1, "input"), counted(4_001, "input"), counted(2, "entry", "entries")] == [
        "1 input", "4,001 inputs", "2 entries",
    ]  # fmt: skip
    assert [about(7), about(60), about(183), about(4_001)] == ["about 7", "about 60", "about 190", "about 4,100"]
