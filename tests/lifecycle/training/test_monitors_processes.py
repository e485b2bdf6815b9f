"""Hangs and replicas in real trainings; the other hosts are in benchmarks/planted_processes.py."""

from dataclasses import replace

import pytest

from benchmarks.monitored import monitored
from benchmarks.planted_processes import IN_STEP, PROCESSES, in_two_processes

STEPS = 81
pytestmark = pytest.mark.slow


def told(name: str) -> list[tuple[str, int, str]]:
    """Monitor, update and cause of each alarm of a shortened training."""
    planted = (PROCESSES.get(name) or IN_STEP).make("mlp", 3)
    subject = replace(planted.subject, plan=planted.subject.plan.model_copy(update={"last_step": STEPS}))
    seen = monitored(subject, before=planted.before, until=planted.found, hang_seconds=planted.hang_seconds)
    return [(one.monitor, one.step, one.rule) for one in seen.alarms]


@pytest.mark.parametrize("name", ["lock_is_held", "process_is_silent"])
def test_training_that_hangs_is_told_at_its_update(name):
    assert told(name) == [("hang", 47, "hang")]


def test_replicas_that_share_their_gradients_are_no_alarm():
    assert in_two_processes(told, "in step") == []


@pytest.mark.parametrize(("name", "step"), [("own_start", 0), ("no_longer_shared", 60)])
def test_replicas_that_are_not_equal_are_told_at_the_next_look(name, step):
    assert in_two_processes(told, name) == [("replicas_apart", step, "processes_apart")]
