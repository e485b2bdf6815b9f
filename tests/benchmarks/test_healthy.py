"""The set-ups that preflight is measured on: each runs, each healthy one learns, and each planted fault is another."""

from __future__ import annotations

import pytest

from benchmarks.healthy import CONSTANTS, HEALTHY
from benchmarks.learned import constant_loss, held_out_loss, trained
from benchmarks.planted import PLANTED
from benchmarks.planted_held_back import HELD_BACK
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.loop import train_step

# In `make test`, so that no change breaks all of them unseen; the others run in the slow lane (tests/slow.md).
FAST = ("mlp", "lora", "classes_from_one", "one_nan")
RAISES = "classes_from_one"
NOT_FINITE = ("one_nan", "nan_targets")


FAULTS = PLANTED | HELD_BACK
LANES = {name: pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in (*HEALTHY, *FAULTS)}


def one_update(subject: Subject) -> float:
    state = subject.state()
    loss, _, norm, *_ = train_step(state, subject.training, subject.plan.batch(0), subject.recipe)
    return loss + norm


@pytest.mark.parametrize("name", [LANES[name] for name in HEALTHY])
def test_healthy_set_up_makes_an_update_from_equal_weights(name):
    subject = HEALTHY[name](0)
    assert 100 <= len(subject.training.targets) <= 4000
    assert len(subject.held_out.targets) >= 40
    assert abs(one_update(subject)) < float("inf")
    assert parameters_sha256(subject.build()) == parameters_sha256(subject.build())


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_set_up_beats_the_best_constant_after_its_plan(name):
    subject = HEALTHY[name](0)
    reached = held_out_loss(subject, trained(subject).model)
    assert reached < 0.95 * CONSTANTS.get(name, constant_loss)(subject)


@pytest.mark.parametrize("name", [LANES[name] for name in FAULTS])
def test_planted_fault_runs_as_far_as_a_long_training_would(name):
    make, ids = FAULTS[name]
    assert ids
    if name == RAISES:
        with pytest.raises(IndexError):
            one_update(make(0))
    else:
        assert (abs(one_update(make(0))) < float("inf")) == (name not in NOT_FINITE)


def test_planted_faults_known_and_held_back_are_apart():
    assert not set(PLANTED) & set(HELD_BACK)
    assert len(PLANTED) + len(HELD_BACK) >= 40
    assert set(FAST) <= LANES.keys()
