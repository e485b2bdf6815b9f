import gc
import math
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from trainworthy.lifecycle import processor
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.throughput.blocked import Spent, spent
from trainworthy.lifecycle.engine.preflight.throughput.checks import MOST_WAITING, step_time, waits_little
from trainworthy.lifecycle.engine.preflight.throughput.step_time import measure_step
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.progress import Progress
from trainworthy.lifecycle.protocol import forecasts


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, inputs):
        return self.layer(inputs["x"]).squeeze(1)


def subject(steps: int = 100, augment=None) -> Subject:
    def build():
        torch.manual_seed(0)
        return Linear()

    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    data = TrainData({"x": x}, (x[:, 0] > 0).float())
    recipe = Recipe(
        lambda o, t: nn.functional.binary_cross_entropy_with_logits(o, t, reduction="none"),
        learning_rate=lambda step: 0.01, clip_norm=1.0, augment=augment,
    )  # fmt: skip
    plan = Plan(rows=64, batch_size=16, steps_per_epoch=4, horizon_steps=steps, first_step=0, last_step=steps, seed=0)
    return Subject(build, lambda model: (torch.optim.SGD(model.parameters(), lr=0.01),), recipe, data, data, plan)


def slow(inputs, targets, generator):
    # Longer than the update of such a network by far.
    time.sleep(0.05)
    return inputs, targets


def test_step_is_timed_with_its_parts_and_leaves_no_trace():
    found = measure_step(subject())
    assert 0 < found.rows_seconds < found.seconds
    assert found.augment_seconds == 0
    assert found.operations > 5
    # A product of (16, 8) and (8, 1), forward and for the weights' gradient; two operations each.
    assert found.flops == 2 * 2 * 16 * 8
    assert found.cores_busy > 0


class Slope(Linear):
    """Adds its derivative, so that the backward pass goes through a derivative."""

    def forward(self, inputs):
        x = inputs["x"].detach().requires_grad_()
        outputs = super().forward({"x": x})
        return outputs + torch.autograd.grad(outputs.sum(), x, create_graph=True)[0].square().sum(1)


def test_operations_of_a_derivative_in_forward_are_counted():
    found = measure_step(replace(subject(), build=Slope))
    # At least the product of (16, 8) and (8, 1), the weights' gradient, and the inputs' own.
    assert found.flops >= 3 * 2 * 16 * 8
    assert found.operations > 5


class Viewed(Linear):
    def forward(self, inputs):
        return super().forward({"x": inputs["x"].t().unsqueeze(0).squeeze(0).t()})


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """As on a machine without other work, whatever it has; beside some the answer is held back: test_other_work.py."""
    monkeypatch.setattr(forecasts, "OTHERS_BUSY", math.inf)


def test_operations_are_what_computes_in_both_passes_alone():
    given = subject()
    adam = replace(given, optimizers=lambda m: (torch.optim.Adam(m.parameters(), lr=0.01, foreach=False),))
    counts = {measure_step(one).operations for one in (given, adam, replace(given, build=Viewed))}
    assert len(counts) == 1, counts


def test_slow_augmentation_of_a_long_run_is_told_with_its_name():
    found = waits_little(subject(steps=100_000, augment=slow))
    assert found.status == "fail"
    assert float(found.observed or 0) > MOST_WAITING
    assert "augmentation" in found.cause
    assert "augment" in found.fix


@pytest.mark.parametrize("given", [subject(steps=100_000), subject(steps=100, augment=slow)], ids=["long", "short"])
def test_run_that_waits_little_in_all_passes(given):
    assert waits_little(given).status == "pass"


def test_step_is_timed_once_and_its_subject_is_let_go():
    given = subject()
    assert step_time(given) is step_time(given)
    gone = weakref.ref(given)
    del given
    gc.collect()
    assert gone() is None


def with_loaders(decode_seconds: float, steps: int = 10_000) -> Subject:
    """The subject with its batches made by one loader, each after a wait."""
    whole = subject(steps)

    def to_tensors(rows):
        time.sleep(decode_seconds)
        return {"x": torch.tensor(rows.to_numpy(), dtype=torch.float32)}

    features = pd.DataFrame(whole.training.inputs["x"].numpy())
    loaded = LoadedRows(to_tensors, Path("."), features, whole.training.targets, "cpu", loaders=1, seed=0)
    return replace(whole, loaded=loaded)


def test_loaders_that_decode_slower_than_the_network_computes_are_told_as_the_bottleneck():
    found = waits_little(with_loaders(0.05))
    assert found.status == "fail"
    assert found.observed > 0.9
    assert "waiting for 1 loader 9" in found.evidence
    assert "loaders that decode" in found.cause
    assert "compute.loaders" in found.fix


def test_loaders_of_a_short_training_are_no_bottleneck_worth_a_word():
    assert waits_little(with_loaders(0.01, steps=100)).status == "pass"


@pytest.mark.parametrize(
    ("made", "cores", "cause", "fix"),
    [
        (Spent(1.0, 0.9), 2, "loaders that read (disk or network)", "faster disk"),
        (Spent(1.0, 0.1), 2, "loaders that decode and augment", "decodes faster"),
        (Spent(1.0, 0.1), 8, "loaders (workers)", "raise compute.loaders: 1 of 8"),
        (None, 2, "or read: here that cannot be told apart", "decodes faster"),
    ],
    ids=["disk", "decode", "workers", "unknown"],
)
def test_loaders_that_are_waited_for_are_told_by_what_they_wait_for_themselves(monkeypatch, made, cores, cause, fix):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    found = waits_little(replace(with_loaders(0.05), made=made))
    assert found.status == "fail"
    assert cause in found.cause
    assert fix in found.fix


def test_telling_of_updates_that_takes_longer_than_they_do_is_the_bottleneck(monkeypatch):
    monkeypatch.setattr(Progress, "advance", lambda self, note: time.sleep(0.02))
    found = waits_little(subject(steps=100_000))
    assert found.status == "fail"
    assert "logging" in found.cause
    assert "logging 9" in found.evidence


def test_telling_of_updates_is_a_part_of_them():
    found = measure_step(subject())
    assert 0 < found.logging_seconds < found.seconds


def computed():
    product = torch.eye(200)
    for _ in range(100):
        product = product @ product
    return product


OTHER = ThreadPoolExecutor(1)


def elsewhere():
    """Computed by another thread, which this one waits for."""
    OTHER.submit(computed).result()


@pytest.mark.parametrize(
    ("work", "waits"), [(lambda: time.sleep(0.1), True), (computed, False), (elsewhere, False)],
    ids=["waiting", "computing", "another thread"],
)  # fmt: skip
def test_time_that_a_thread_neither_computes_nor_waits_for_a_core_is_told(work, waits):
    _, found = spent(work)
    assert found is not None
    assert (found.share > 0.5) == waits, found


def test_system_that_does_not_tell_of_its_threads_gives_no_share(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "TASKS", tmp_path / "none")
    assert spent(lambda: 3) == (3, None)
