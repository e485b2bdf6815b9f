"""Published files are read without being run, and a program goes through the handle and the battery's subject."""

from pathlib import Path

import pytest
import torch

from benchmarks import published_examples
from benchmarks.published_episodes import Pole
from benchmarks.published_examples import ALL, subject, watched
from benchmarks.published_programs import Program, Rows, definitions, mnist
from benchmarks.published_rows import graph, reversed_words, words

# As a published file is: it wants a package that is not here, and what it does when it is run would raise.
FILE = """
import torch.nn as nn
import a_package_that_nobody_has
from another_one import datasets

WIDTH = 8
raise SystemExit("it was run")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(784, width), nn.Linear(width, 10)

    def forward(self, x):
        return self.last(self.first(x.flatten(1)).relu()).log_softmax(1)


class Told(nn.Module):
    data: "datasets.MNIST"
"""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "main.py").write_text(FILE.replace("width", "16"))
    return tmp_path


def test_definitions_are_had_without_running_the_file_and_with_names_that_are_given(tmp_path):
    (tmp_path / "main.py").write_text(FILE)
    found = definitions(tmp_path / "main.py", width=3)
    assert found.Net().first.out_features == 3
    assert not hasattr(found, "WIDTH")
    assert found.__name__.endswith("_main")


def test_program_makes_its_updates_through_the_handle_and_learns(examples):
    program = mnist(examples)
    assert program.rows is not None
    seen = watched("mnist", examples, Program(program.train, program.rows, updates=60))
    assert (seen.made, len(seen.losses), seen.planned) == (60, 60, 60)
    assert seen.losses[-1] < 0.7 * seen.losses[0]
    assert [alarm for alarm in seen.alarms if alarm.severity == "critical"] == []


def test_program_whose_loss_is_lost_is_told_by_the_handle(examples, monkeypatch):
    def broken(folder):
        program = mnist(folder)
        assert program.rows is not None

        def loss(outputs, targets):
            return torch.full((len(targets),), float(outputs.detach().mean()), requires_grad=True)

        rows = Rows(program.rows.network, loss, program.rows.optimizer, program.rows.training, program.rows.held_out)
        return Program(rows.train, rows, updates=40)

    monkeypatch.setitem(published_examples.ALL, "mnist", broken)
    seen = watched("mnist", examples, broken(examples))
    assert "no_gradient_at_all" in {alarm.monitor for alarm in seen.alarms if alarm.severity == "critical"}


def test_battery_is_given_the_rates_and_the_clipping_of_the_program(examples):
    rows = mnist(examples).rows
    assert rows is not None
    made = subject(rows, 60)
    assert [made.recipe.learning_rate(step) for step in (0, 22, 23)] == pytest.approx([1.0, 1.0, 0.7])
    assert made.plan.last_step == 60
    assert torch.isfinite(made.recipe.loss_fn(made.model()(made.training.take(torch.arange(4)).inputs),
                                              made.training.targets[:4])).all()  # fmt: skip


def test_every_program_has_a_name_of_its_own():
    assert len(ALL) == 19
    assert all(make.__name__ == name for name, make in ALL.items())


def test_rows_are_what_they_say():
    training, _ = reversed_words()
    source, target = training.inputs["source"][0], training.targets[0]
    length = int((source > 3).sum())
    assert source[1 : 1 + length].flip(0).tolist() == target[:length].tolist()
    assert target[length] == 3
    tokens, _ = words()
    assert torch.equal(tokens.inputs["tokens"][:, 1:], tokens.targets[:, :-1])
    _, labels, neighbours = graph(sparse=False)
    same = labels[:, None] == labels
    assert neighbours[same].mean() > 3 * neighbours[~same].mean()
    assert torch.equal(neighbours, neighbours.T)


def test_pole_that_is_pushed_one_way_falls_and_by_turns_stands_longer():
    import numpy as np

    def pushes(choose):
        pole = Pole(np.random.default_rng(0))
        while not pole.push(choose(pole)):
            pass
        return pole.pushes

    assert pushes(lambda pole: True) < 15
    assert pushes(lambda pole: pole.state[2] > 0) > 2 * pushes(lambda pole: True)
