"""Limits of preflight on a machine that has other work: by clocks that the test moves, or by what is counted."""

from dataclasses import replace
from itertools import count

import pytest
import torch

from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.preflight.memory import fake_step
from trainworthy.lifecycle.engine.preflight.memory.fake_step import TraceError, trace_step
from trainworthy.lifecycle.engine.preflight.overfit import checks as overfit
from trainworthy.lifecycle.engine.preflight.overfit.fit import CPU_SECONDS, MOST_TIMES, fit
from trainworthy.lifecycle.engine.preflight.throughput import checks as throughput
from trainworthy.lifecycle.protocol.forecasts import StepTime

STEP = StepTime(
    seconds=0.1, rows_seconds=0.08, augment_seconds=0.0, checkpoint_seconds=0.0, cores_busy=0.5, others_busy=0.1,
    cores=2, flops=1.0, operations=1, joules=None, device="cpu",
)  # fmt: skip


def updates_made(seconds_of_update) -> tuple[int, bool]:
    """How many updates there were, each asked for its processor time by its number from 0, and whether they ran out."""
    subject = mlp(0, rows=100).subject()
    asked, time = count(), [0.0]

    def cpu() -> float:
        number = next(asked)
        # Asked at the beginning and end of each update.
        time[0] += seconds_of_update(number // 2) if number % 2 else 0.0
        return time[0]

    done = fit(subject, subject.training, [torch.arange(32)], lambda loss, updates: updates >= 100, every=100, cpu=cpu)
    return done.updates, done.late


def test_fit_makes_as_many_updates_beside_other_work_as_alone():
    alone = updates_made(lambda update: 0.3)
    assert alone == (int(CPU_SECONDS / 0.3) + 1, True)
    assert updates_made(lambda update: 0.3 if update == 5 else 0.4) == alone
    assert updates_made(lambda update: 0.01) == (100, False)


def test_fit_whose_updates_are_now_quick_and_now_slow_ends_all_the_same():
    updates, late = updates_made(lambda update: 0.001 if update == 0 else 2.0)
    assert (updates, late) == (int(MOST_TIMES * CPU_SECONDS / 2.0) + 1, True)


def test_network_whose_updates_run_out_is_not_called_unable_to_learn(monkeypatch):
    given = mlp(0, rows=400)
    frozen = replace(given, learning_rate=1e-12).subject()
    assert overfit.overfits(frozen).status == "fail"
    short = lambda *args, **more: replace(fit(*args, **more), late=True)
    monkeypatch.setattr(overfit, "fit", short)
    found = overfit.overfits(frozen)
    assert (found.status, found.required) == ("insufficient", True)
    assert "smaller size of the network" in found.fix
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
