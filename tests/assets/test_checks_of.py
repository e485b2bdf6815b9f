"""Which checks of a step Dagster shows: what a use case has none of is no check that succeeded."""

from types import SimpleNamespace
from typing import Any

import pytest

from trainworthy.assets.declare import checks_of


def use_case(folder: Any, source: str | None, *, decision: object = None, trainer: str | None = None) -> Any:
    if source is not None:
        (folder / "model.py").write_text(source)
    spec = SimpleNamespace(trainer=trainer, benchmark=SimpleNamespace(decision=decision))
    return SimpleNamespace(folder=folder, spec=spec)


@pytest.mark.parametrize(("source", "own"), [
    ("def check_shapes(subject): ...\n", True),
    ("from .checks import check_shapes\n", True),
    ("def build_model(): ...  # check_ functions are none\n", False),
    ("def (", False),
    (None, False),
])  # fmt: skip
def test_own_checks_are_shown_where_there_are_some(tmp_path, source, own):
    assert ("own" in checks_of(use_case(tmp_path, source), "preflight")) == own
    assert "wiring" in checks_of(use_case(tmp_path, source), "preflight")


@pytest.mark.parametrize("decision", [None, object()])
def test_decisions_are_a_check_of_evaluation_where_they_are_declared(tmp_path, decision):
    declared = use_case(tmp_path, "", decision=decision)
    assert ("decisions" in checks_of(declared, "evaluation")) == (decision is not None)
    assert "decisions" not in checks_of(declared, "promotion")


def test_training_script_is_a_check_before_and_while_it_trains(tmp_path):
    with_script = use_case(tmp_path, "", trainer="train.py")
    assert [step for step in ("dataset", "preflight", "smoke", "full", "evaluation")
            if "trainer" in checks_of(with_script, step)] == ["preflight", "smoke", "full"]  # fmt: skip
