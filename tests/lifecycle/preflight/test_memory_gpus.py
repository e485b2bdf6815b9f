"""Into which GPU an update fits: what makes it fit, and what several processes and shards change."""

from dataclasses import replace

import pytest
from memory_subjects import (
    Of,
    deep,
    deep_checkpointed,
    forecast,
    subject,
)
from torch import nn

from trainworthy.lifecycle.engine.preflight.memory.fake_step import largest_bytes, trace_step
from trainworthy.lifecycle.engine.preflight.memory.forecast import state_copy_bytes, step_memory
from trainworthy.lifecycle.engine.preflight.memory.gpu_fit import gpu_fits


def test_gpu_that_is_too_small_names_what_makes_it_fit():
    of = subject(deep, (64,), batch=16_384)
    whole, small = gpu_fits(of, {"whole": 80.0, "small": 1.1})
    assert whole.fits
    assert not whole.ways
    assert whole.largest_rows == of.plan.rows
    assert not small.fits
    assert small.largest_rows is not None
    assert small.largest_rows < 16_384
    assert any(way.startswith("accumulate: ") for way in small.ways)
    assert "activation_checkpointing: [layers.*]" in small.ways
    # And that accumulation does fit, followed anew.
    rows = int(small.ways[0].split("(")[1].split()[0])
    again = trace_step(of, rows, accumulate=2, precision="fp32", round_to=512)
    assert again.peak * 1.2 + 1e9 <= 1.1e9


def test_machine_of_several_gpus_is_offered_one_or_a_replica_on_each_or_a_divided_model():
    of = subject(deep, (64,), batch=16_384)
    limits = {"enough": 80.0, "shared": 1.1, "alone": 1.1}
    enough, shared, alone = gpu_fits(of, limits, gpu_counts={"enough": 8, "shared": 8})
    assert "one GPU is enough, and processes on all 8 (DDP) are for speed alone" in enough.told
    (offered,) = (way for way in shared.ways if "DDP" in way)
    assert (alone.fits, shared.fits) == (False, False)
    assert not any("DDP" in way for way in alone.ways)
    # So many processes do fit, and one fewer does not.
    processes = int(offered.split("compute.processes: ")[1].split()[0])
    fit = [gpu_fits(replace(of, processes=many), {"shared": 1.1})[0].fits for many in (processes - 1, processes)]
    assert fit[1]
    assert processes == 2 or not fit[0]
    # What no replica fits into is divided, and a machine of too few GPUs is told.
    huge = subject(lambda: Of(nn.Sequential(nn.Linear(32, 25_000), *(nn.Linear(25_000, 25_000) for _ in range(12)))))
    (divided,) = gpu_fits(huge, {"l4": 24.0}, gpu_counts={"l4": 4})
    assert "FSDP over" in divided.told
    assert "(a machine has 4)" in divided.told


def test_activation_checkpointing_around_blocks_is_followed_as_if_it_were_written():
    asked = trace_step(subject(deep, (64,)), 64, accumulate=1, precision="fp32", blocks=True)
    written = trace_step(subject(deep_checkpointed, (64,)), 64, accumulate=1, precision="fp32")
    assert asked.peak == written.peak
    assert asked.blocks == ("layers.*",)
    declared = replace(subject(deep, (64,)), activation_checkpointing=asked.blocks)
    assert trace_step(declared, 64, accumulate=1, precision="fp32").peak == written.peak
    assert asked.peak < trace_step(subject(deep, (64,)), 64, accumulate=1, precision="fp32").peak


def test_several_processes_share_out_activations_and_hold_gradients_twice():
    of = subject(deep, (64,), batch=128)
    alone, one = forecast(of), forecast(replace(of, processes=2))
    half = forecast(subject(deep, (64,), batch=64))
    weights = sum(4 * parameter.numel() for parameter in deep().parameters())
    assert (one.rows, one.processes, alone.processes, one.kinds["buckets"]) == (64, 2, 1, weights)
    assert one.value == half.value + weights
    assert (one.low, one.high) == (half.low + weights, half.high + weights)
    assert "buckets" not in alone.kinds
    assert one.together == (2 * one.value, 2 * one.low, 2 * one.high)


def test_shards_hold_a_part_of_the_state_and_a_block_whole():
    of = subject(deep, (64,), batch=128)
    alone = forecast(subject(deep, (64,), batch=32))
    (replica, shard) = (forecast(replace(of, processes=4, sharding=how)) for how in ("none", "fsdp"))
    weights = sum(4 * parameter.numel() for parameter in deep().parameters())
    block = 4 * largest_bytes(deep())
    assert 0 < block < 4 * weights
    state = ("parameters", "gradients", "optimizer")
    assert shard.kinds["blocks"] == block
    assert "buckets" not in shard.kinds
    assert sum(shard.kinds.values()) == shard.value
    for kind in state:
        assert shard.kinds[kind] == pytest.approx(alone.kinds[kind] / 4, abs=1)
    assert shard.value == pytest.approx(alone.value - 0.75 * sum(alone.kinds[kind] for kind in state) + block, abs=2)
    # Which gradients are there at another peak is not known.
    assert shard.high == pytest.approx(alone.high - 0.75 * (weights + alone.kinds["optimizer"]) + block, abs=2)
    assert shard.value < replica.value
    # A checkpoint's copy is whole.
    assert state_copy_bytes(shard) == pytest.approx(state_copy_bytes(replica), abs=8)


def test_a_gpu_that_is_too_small_for_a_replica_may_have_a_shard():
    def large():
        return Of(nn.Sequential(nn.Linear(32, 2_800), *(nn.Linear(2_800, 2_800) for _ in range(12))))

    class OneBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(32, 14_000), nn.Linear(14_000, 14_000)

        def forward(self, inputs):
            return self.second(self.first(inputs["x"])).mean(1)

    of = subject(large, batch=64)
    (alone,) = gpu_fits(of, {"small": 2.0}, gpu_counts={"small": 8})
    assert "compute.sharding: fsdp, processes: " in alone.told
    processes = int(alone.told.split("processes: ")[1].split()[0])
    assert not gpu_fits(replace(of, processes=processes), {"small": 2.0})[0].fits
    assert gpu_fits(replace(of, processes=processes, sharding="fsdp"), {"small": 2.0})[0].fits
    # Of one block there is nothing to divide.
    (one_block,) = gpu_fits(subject(OneBlock, batch=64), {"larger": 4.0})
    assert "its largest block takes" in one_block.told


def test_frozen_parameters_are_in_no_bucket():
    def frozen():
        network = deep()
        network.layers[0].requires_grad_(False)
        return network

    trained = sum(4 * one.numel() for one in frozen().parameters() if one.requires_grad)
    one = forecast(replace(subject(frozen, (64,)), processes=2))
    assert one.kinds["buckets"] == trained > 0


def test_only_the_first_of_several_processes_scores():
    one = forecast(replace(subject(deep, (64,)), processes=3)).model_copy(update={"scoring": 10**9})
    assert one.together[0] == 10**9 + 2 * one.value


def test_memory_together_is_that_of_the_first_of_several_nodes():
    one = forecast(replace(subject(deep, (64,)), processes=4, nodes=2)).model_copy(update={"scoring": 10**9})
    assert one.nodes == 2
    assert one.together[0] == 10**9 + one.value


def test_a_gpu_is_told_the_rows_of_one_process():
    of = subject(deep, (64,), batch=4096)
    (alone,), (shared,) = gpu_fits(of, {"small": 2.0}), gpu_fits(replace(of, processes=4), {"small": 2.0})
    assert shared.high_bytes < alone.high_bytes
    assert "in each of 4 processes, with 1024 of an update's 4096 rows" in shared.told
    assert "processes" not in alone.told
    (short,) = gpu_fits(replace(of, processes=4), {"tiny": 1.001})
    assert not short.fits


def test_on_a_gpu_an_update_is_measured_and_nothing_is_followed():
    # A CPU by another name: with any device but the plain "cpu" no fork follows the step.
    of = replace(subject(deep, (64,), batch=16_384), device="cpu:0")
    asked = []
    found = step_memory(of, {"whole": 80.0, "small": 1.1}, repr, lambda forecast: bool(asked.append(forecast)))
    assert found.forecast is not None
    assert (found.forecast.source, found.problem, asked) == ("extrapolated", "", [])
    whole, small = found.gpus
    assert (whole.fits, small.fits) == (True, False)
    assert whole.largest_rows == 16_384
    (followed,) = gpu_fits(replace(of, device="cpu"), {"whole": 80.0})
    assert whole.high_bytes == pytest.approx(followed.high_bytes, rel=0.05)
    assert "measured on the GPU here: does not fit" in small.told
