"""How often a reference is fitted: once where the stage's rows show as much, several times where they show less."""

import numpy as np
import pandas as pd
import pytest
from gated import FALLING, moved

from trainworthy.lifecycle.engine.training.judging.references import (
    REFITS,
    Asking,
    OwnRows,
    ReferenceRows,
    ask_references,
    measure_references,
)
from trainworthy.lifecycle.engine.training.judging.rise import Judge
from trainworthy.lifecycle.engine.training.validate import _tells_within
from trainworthy.lifecycle.gates.references_check import references_check
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.protocol.results import LINEAR, Arm
from trainworthy.lifecycle.tasks.labels import kind_of_rows

ROWS = Rows(features=("x", "shop"), label="late", group="day")


def drawn_rows(count, seed):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=count)
    late = generator.random(count) < 1 / (1 + np.exp(-2 * x))
    days = generator.integers(0, 30, count)
    return pd.DataFrame({"x": x, "shop": generator.choice(["a", "b"], count), "late": late.astype(int), "day": days})


def arms_of(stage, compare_network=True):
    validation = drawn_rows(1200, seed=1)
    judge = Judge(kind_of_rows(ROWS), validation["late"].to_numpy(), validation["day"].to_numpy(), seed=0)
    network = np.full(len(validation), 0.5)
    asking = Asking(judge, network, ReferenceRows(stage, validation, ROWS), 600, lambda: None)
    ask_references(asking, nonlinear=True, compare_network=compare_network)
    return asking


def linear_of(asking, fitted_on) -> Arm:
    arm = asking.measured(LINEAR, "columns", fitted_on)
    assert arm is not None
    return arm


def test_rows_that_show_as_much_are_fitted_once():
    arm = linear_of(arms_of(drawn_rows(3000, seed=2)), "stage")
    assert arm.draws == 1
    assert arm.rise.low > 0
    assert arm.behind is not None
    assert arm.behind.low > 0


def other_codes(rows):
    """What `x` means is turned round, as by another unit or code."""
    return rows.assign(x=-rows["x"])


def other_labels(rows):
    return rows.assign(late=np.random.default_rng(4).permutation(rows["late"].to_numpy()))


@pytest.mark.parametrize(("made", "code", "told"), [(other_labels, "rows", False), (other_codes, "shift", True)])
def test_rows_that_tell_nothing_of_validation_are_asked_of_themselves(made, code, told):
    asking = arms_of(made(drawn_rows(3000, seed=2)))
    arm = linear_of(asking, "stage")
    assert arm.of_itself is not None
    assert (arm.of_itself.low > 0) == told
    judge, network = asking.judge, np.full(1200, 0.5)
    measured = measure_references(asking, network, np.asarray(0.5), OwnRows(), nonlinear=True, compare_network=True)
    check = references_check(measured, moved(0.2), "cpu", FALLING, "smoke")
    assert (check.status, check.code, check.stops) == ("fail", code, True)
    assert ("tell something" in check.evidence) == told
    assert judge.within_groups


@pytest.mark.parametrize("compare_network", [True, False])
def test_rows_that_show_less_are_drawn_several_times_and_keep_their_loss(compare_network):
    stage = drawn_rows(3000, seed=2)
    stage["late"] = np.random.default_rng(3).permutation(stage["late"].to_numpy())
    asking = arms_of(stage, compare_network)
    arm, there = (linear_of(asking, rows) for rows in ("stage", "validation"))
    assert arm.draws == REFITS
    assert arm.rise.value < there.rise.value
    assert (arm.loss is None) == (not compare_network)
    assert len([other for other in asking.arms if other.reference == LINEAR]) == 2


@pytest.mark.parametrize("within", [True, False])
def test_rows_are_asked_within_groups_where_these_tell_something_and_else_among_all(within):
    """Rows of a customer that differ by `x`, or customers that differ by it and whose rows are alike."""
    rows = drawn_rows(1200, seed=1).assign(day=np.arange(1200) // 40)
    if not within:
        rows["x"] = np.repeat(np.random.default_rng(5).uniform(-1, 1, 30), 40)
        chance = 1 / (1 + np.exp(-2 * rows["x"]))
        rows["late"] = (np.random.default_rng(6).random(1200) < chance).astype(int)
    judge = Judge(kind_of_rows(ROWS), rows["late"].to_numpy(), rows["day"].to_numpy(), seed=0)
    asking = Asking(judge, np.full(1200, 0.5), ReferenceRows(rows, rows, ROWS), 600, lambda: None)
    assert _tells_within(asking) == within
