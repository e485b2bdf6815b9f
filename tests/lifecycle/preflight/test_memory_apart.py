"""What the forecast of memory cannot follow, and what ends in the process apart in which it is followed."""

import os
import signal
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from memory_subjects import (
    Of,
    ReadsValues,
    allocated,
    forecast,
    mlp,
    subject,
)
from torch import nn

from trainworthy.lifecycle.engine.preflight.memory.forecast import step_memory
from trainworthy.lifecycle.engine.preflight.memory.sandbox import SandboxError, in_sandbox


class TakesSome(ReadsValues):
    def forward(self, inputs):
        x = self.layer(inputs["x"])
        return torch.where(x.amax(1) > 0, x[x[:, 0] > -100].mean(1), 0)


@pytest.mark.parametrize("network", [ReadsValues, TakesSome])
def test_model_that_reads_values_is_measured_on_two_small_batches(network):
    of = subject(network)
    found, real = forecast(of), allocated(of)
    assert found.source == "extrapolated"
    assert found.low <= real <= found.high


SCALES: dict[int, torch.Tensor] = {}


@lru_cache(maxsize=1)
def scale(width: int) -> torch.Tensor:
    return torch.linspace(0, 1, width)


class Keeps(ReadsValues):
    """Keeps a tensor in a cache, or in a dict of its module."""

    def kept(self) -> torch.Tensor:
        return scale(512)

    def forward(self, inputs):
        return (self.layer(inputs["x"]) * self.kept()).mean(1)


class KeepsInDict(Keeps):
    def kept(self) -> torch.Tensor:
        if 512 not in SCALES:
            SCALES[512] = torch.linspace(0, 1, 512)
        return SCALES[512]


@pytest.mark.parametrize("network", [Keeps, KeepsInDict])
def test_tensors_that_a_network_keeps_are_real_after_the_trace(network):
    # Full before: its size tells nothing of what came in.
    scale(5)
    found = step_memory(subject(network), {"l4": 24.0}, repr, lambda forecast: True)
    assert found.forecast is not None
    assert (found.forecast.source, found.problem, len(found.gpus)) == ("calibrated", "", 1)
    assert type(scale(512)) is torch.Tensor
    assert all(type(kept) is torch.Tensor for kept in SCALES.values())


def test_trace_that_kills_its_process_leaves_two_small_batches_to_measure():
    test = os.getpid()

    class Killed(ReadsValues):
        def forward(self, inputs):
            if os.getpid() != test:
                os.kill(os.getpid(), signal.SIGKILL)
            return self.layer(inputs["x"]).mean(1)

    found = step_memory(subject(Killed), {}, repr, lambda forecast: True)
    assert found.forecast is not None
    assert found.forecast.source == "extrapolated"
    assert "ended without an answer (exit code -9)" in found.problem


def test_work_apart_that_hangs_is_ended():
    with pytest.raises(SandboxError, match="more than 0 s"):
        in_sandbox(lambda: str(signal.pause()), wall_seconds=0.1)


def test_work_apart_that_loops_is_ended_after_its_cpu_seconds():
    def loops() -> str:
        while True:
            pass

    with pytest.raises(SandboxError, match="more than 1 CPU seconds"):
        in_sandbox(loops, cpu_seconds=1)


def test_model_that_may_not_run_is_told_from_the_trace_alone():
    built = []

    def huge():
        built.append(torch.empty(0))
        return Of(nn.Sequential(nn.Linear(32, 25_000), *(nn.Linear(25_000, 25_000) for _ in range(12))))

    found = step_memory(subject(huge), {"l4": 24.0, "h100": 80.0}, repr, lambda forecast: False)
    assert found.forecast is not None
    assert found.forecast.source == "traced"
    assert found.forecast.value > 4 * 4 * 12 * 25_000**2
    # Built only in the process apart, where a tensor has no storage.
    assert not built
    assert all("FSDP over" in gpu.told and "DDP does not help" in gpu.told for gpu in found.gpus)


def test_step_that_fails_leaves_memory_unmeasured_with_its_reason():
    def broken(outputs, targets):
        raise ValueError("no loss today")

    found = step_memory(subject(mlp, loss_fn=broken), {}, repr, lambda forecast: True)
    assert found.forecast is None
    assert "no loss today" in found.problem


def test_update_that_a_gpu_cannot_make_leaves_memory_unmeasured_with_its_reason():
    def broken(outputs, targets):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    of = replace(subject(mlp, loss_fn=broken), device="cpu:0")
    found = step_memory(of, {"whole": 80.0}, repr, lambda forecast: True)
    assert (found.forecast, found.gpus) == (None, ())
    assert "Tried to allocate 2.00 GiB" in found.problem
