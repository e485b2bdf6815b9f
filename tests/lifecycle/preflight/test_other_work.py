"""Limits of preflight on a machine that has other work: by clocks that the test moves, or by what is counted."""

from dataclasses import replace
from itertools import count

import pytest
import torch

from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.preflight.memory import fake_step
from trainworthy.lifecycle.engine.preflight.memory.fake_step import TraceError, trace_step
from trainworthy.lifecycle.engine.preflight.overfit import checks as overfit
from trainworthy.lifecycle.engine.preflight.overfit import fit as fitting
from trainworthy.lifecycle.engine.preflight.overfit.fit import (
    A_START,
    CPU_SECONDS,
    MOST_WORK,
    fit,
    updates_within,
)
from trainworthy.lifecycle.engine.preflight.throughput import checks as throughput
from trainworthy.lifecycle.engine.preflight.throughput.work import Work, counted
from trainworthy.lifecycle.protocol.forecasts import StepTime

STEP = StepTime(
    seconds=0.1, rows_seconds=0.08, augment_seconds=0.0, checkpoint_seconds=0.0, cores_busy=0.5, others_busy=0.1,
    cores=2, flops=1.0, operations=1, joules=None, device="cpu",
)  # fmt: skip


def fitted(cpu=lambda: 0.0, most=100):
    subject = mlp(0, rows=100).subject()
    return fit(subject, subject.training, [torch.arange(32)], lambda loss, done: done >= most, every=most, cpu=cpu)


def test_fit_makes_as_many_updates_as_its_work_allows_whatever_they_take(monkeypatch):
    assert (fitted().updates, fitted().ended) == (100, "")
    monkeypatch.setattr(fitting, "updates_within", lambda work: 7 if work.flops and work.operations else 0)
    for seconds in (1.0, 0.001):
        found = fitted(clock_of(seconds))
        assert (found.updates, found.ended) == (7, "work")


def test_work_is_counted_and_not_timed():
    assert updates_within(Work(MOST_WORK / 100, 0)) == updates_within(Work(0.0, int(MOST_WORK / A_START / 100))) == 100
    assert updates_within(Work(10 * MOST_WORK, 1)) == 1
    square = torch.ones(4, 4)
    assert counted(lambda: square @ square) == (2 * 4**3, 1)


def clock_of(seconds):
    """Processor time that each look at it moves on."""
    looks = count()
    return lambda: seconds * next(looks)


def test_fit_whose_work_is_not_counted_ends_by_processor_time():
    found = fitted(clock_of(CPU_SECONDS / 10))
    assert (found.updates, found.ended) == (11, "processor_time")


@pytest.mark.parametrize(("ended", "status"), [("work", "fail"), ("processor_time", "insufficient")])
def test_network_that_processor_time_ends_is_not_called_unable_to_learn(monkeypatch, ended, status):
    given = mlp(0, rows=400)
    frozen = replace(given, learning_rate=1e-12).subject()
    assert overfit.overfits(frozen).status == "fail"
    short = lambda *args, **more: replace(fit(*args, **more), ended=ended)
    monkeypatch.setattr(overfit, "fit", short)
    found = overfit.overfits(frozen)
    assert (found.status, found.required) == (status, False)
    assert ("smaller size of the network" in found.fix) == (status == "insufficient")
    assert overfit.overfits(given.subject()).status == "pass"


def test_trace_is_limited_by_operations_whatever_they_take(monkeypatch):
    subject = mlp(0, rows=100).subject()
    assert trace_step(subject, 32, accumulate=1, precision="fp32").operations
    monkeypatch.setattr(fake_step, "MOST_OPERATIONS", 5)
    with pytest.raises(TraceError, match="more than 5 operations: too many to follow"):
        trace_step(subject, 32, accumulate=1, precision="fp32")


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, "fail"),
        ({"loaders": 1}, "fail"),
        ({"loaders": 1, "others_busy": 1.8}, "insufficient"),
        # Files that are slow are so whatever the cores do; and one process takes as much longer in every part.
        ({"loaders": 1, "others_busy": 1.8, "read_share": 0.9}, "fail"),
        ({"others_busy": 1.8}, "fail"),
        ({"loaders": 1, "others_busy": 1.8, "rows_seconds": 0.01}, "pass"),
    ],
)
def test_loaders_that_other_work_may_slow_down_are_not_called_slow(monkeypatch, changed, status):
    monkeypatch.setattr(throughput, "step_time", lambda subject: STEP.model_copy(update=changed))
    subject = replace(mlp(0, rows=4000), epochs=100).subject()
    found = throughput.waits_little(subject)
    assert found.status == status
    assert ("run preflight again" in found.fix) == (status == "insufficient")
