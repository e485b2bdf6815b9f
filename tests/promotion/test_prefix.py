"""By how many processes a rerun makes the first updates: as many as made them, or it is not made."""

from types import SimpleNamespace
from typing import Any

import pytest

from trainworthy.lifecycle.promotion.controls import reproducibility_control
from trainworthy.lifecycle.promotion.prefix import made_by_several, processes_of_prefix, processes_of_rerun
from trainworthy.lifecycle.protocol.training_figures import MadeBy
from trainworthy.lifecycle.spec.use_case import ComputeSpec

ELASTIC = ComputeSpec(launcher="ray", processes=8, nodes=4, least_nodes=2, sku="local-2cpu")


def full(*made_by: tuple[int, int]) -> Any:
    """What is asked of a stage's record: who made it, and that the first 20 updates are made again."""
    parts = tuple(MadeBy(first_step=step, processes=processes) for step, processes in made_by)
    return SimpleNamespace(made_by=parts, prefix_steps=20)


@pytest.mark.parametrize(
    ("made_by", "numbers", "rerun"),
    [
        ([(1, 8)], (8,), 8),
        ([(1, 4)], (4,), 4),
        # What came after them is another question.
        ([(1, 6), (21, 8)], (6,), 6),
        # Of before it was recorded, or by a number that is declared no more.
        ([], (), 8),
        ([(1, 2)], (2,), 8),
    ],
)
def test_rerun_has_as_many_processes_as_made_the_first_updates(made_by, numbers, rerun):
    assert processes_of_prefix(full(*made_by)) == numbers
    assert processes_of_rerun(full(*made_by), ELASTIC) == rerun
    assert made_by_several(full(*made_by)) == ""
    fixed = ELASTIC.model_copy(update={"least_nodes": None})
    assert processes_of_rerun(full(*made_by), fixed) == 8


def test_first_updates_by_several_numbers_are_insufficient_and_no_failure():
    why = made_by_several(full((1, 8), (20, 4)))
    assert why.startswith("the first 20 updates were made by 8, then 4 processes")
    given: dict[str, Any] = {
        "git_commit": "a" * 40, "changed_files": (), "recorded_prefix_sha256": "b" * 64, "prefix_steps": 20,
    }  # fmt: skip
    control = reproducibility_control(**given, rerun_prefix_sha256=None, inexact_resume=why)
    assert control.status == "insufficient"
    assert why in control.reason
    assert reproducibility_control(**given, rerun_prefix_sha256="b" * 64).status == "pass"
