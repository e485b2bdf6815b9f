"""A use case that names its own training script: what is refused, and what it is a part of."""

import sys
from pathlib import Path

import own_trainers
import pytest
import toy_jobs
import yaml

from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.use_case import load_use_case

HAND = own_trainers.documented("hand")


@pytest.fixture
def folder(tmp_path) -> Path:
    return own_trainers.use_case(tmp_path / "toy", HAND)


def change(folder: Path, **sections) -> None:
    path = folder / "use_case.yaml"
    path.write_text(yaml.safe_dump(toy_jobs.merged(yaml.safe_load(path.read_text()), sections)))


def only_problem(folder: Path) -> str:
    with pytest.raises(UseCaseError) as caught:
        load_use_case(folder)
    (found,) = caught.value.problems
    assert found.fix
    return str(found)


def test_use_case_with_a_script_loads_and_needs_no_network_in_model_py(folder):
    assert load_use_case(folder).spec.trainer == "train.py"
    model = folder / "model.py"
    model.write_text(
        model.read_text().replace("def loss_fn(", "def own_loss(").replace("def build_model(", "def make(")
    )
    assert load_use_case(folder).spec.trainer == "train.py"
    model.write_text(model.read_text().replace("def predict(", "def predicts("))
    assert "the function predict is missing" in only_problem(folder)


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"training": {"ema": {"decay": 0.9}}}, "training.ema belong to Trainworthy's own loop"),
        ({"training": {"tensors": "per_batch"}}, "training.tensors"),
        ({"training": {"monitors": {"loss_spike": "roll_back"}}}, "training.monitors.loss_spike: roll_back"),
        ({"training": {"oversampling": {"positive": 2.0}}}, "training.oversampling"),
        ({"training": {"compile": True}}, "training.compile"),
        ({"training": {"monitors": {"hang": "stop"}}}, "training.monitors.hang: stop"),
        ({"stages": {"mode": "continue"}}, "stages.mode continue"),
        ({"trainer": "../train.py"}, "use_case.yaml: trainer"),
        ({"trainer": "trian.py"}, "no such file"),
    ],
)
def test_settings_that_a_script_leaves_without_effect_are_refused(folder, sections, told):
    change(folder, **sections)
    assert told in only_problem(folder)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("def train(session):", "def training(session):", "the function train is missing"),
        ("def train(session):", "def train():", "is given one argument"),
        ("def train(session):", "def train(session, more):", "is given one argument"),
        ("    return model\n", "", "train returns nothing"),
        ("        if session.should_stop:\n", "        if session.should_stop\n", "not valid Python"),
    ],
)
def test_script_that_cannot_be_one_is_told_by_its_text(folder, old, new, told):
    script = folder / "train.py"
    script.write_text(script.read_text().replace(old, new))
    assert told in only_problem(folder)


def test_script_and_its_framework_are_a_part_of_the_training_and_of_no_other_use_case(folder, monkeypatch):
    sections = declared_sections(load_use_case(folder), "smoke")
    assert sections["trainer"]["script"] == "train.py"
    plain = declared_sections(load_use_case(toy_jobs.TOY), "smoke")
    assert "trainer" not in plain
    assert {name: value for name, value in sections.items() if name != "trainer"} == plain
    monkeypatch.setattr("trainworthy.lifecycle.training_script.FRAMEWORKS", ("torch",))
    assert declared_sections(load_use_case(folder), "full")["trainer"]["packages"].keys() == {"torch"}


def test_name_of_before_the_session_is_the_same_class_with_a_warning():
    sys.modules.pop("trainworthy.lifecycle.trainers.flight", None)
    with pytest.warns(FutureWarning, match="TrainingSession"):
        from trainworthy.lifecycle.trainers.flight import Flight
    from trainworthy.lifecycle.trainers.session import TrainingSession

    assert Flight is TrainingSession
