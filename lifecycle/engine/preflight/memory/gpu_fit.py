"""Does the training fit a GPU, and if not, what would make it fit: told for each GPU of prices.yaml.

One GPU is preferred to several, and a whole replica on each (DDP) to a divided one (FSDP): what is simpler and holds.

Followed on fake CPU tensors: what CUDA's kernels take for themselves is not seen, so it is an assumption here, and the
upper end decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from trainworthy.lifecycle.engine.preflight.memory.fake_step import Timeline, TraceError, trace_step
from trainworthy.lifecycle.engine.preflight.memory.step_memory import (
    block_bytes,
    bucket_bytes,
    line,
    part_rows,
    share_rows,
)
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.protocol.forecasts import GpuFit, MemoryForecast
from trainworthy.lifecycle.spec.training import Precision

# CUDA's caching allocator gives out blocks of 512 bytes.
BLOCK_BYTES = 512
# Assumptions, not measured here: the CUDA context with the libraries' code and cuBLAS's workspace, and blocks that
# lie free between others or that cuDNN takes while it runs.
CONTEXT_BYTES = 1_000_000_000
FREE_BETWEEN = 0.20


@dataclass(frozen=True)
class Curve:
    """What a step needs on a GPU, by the rows of a part: each operation on a straight line through two traces.

    `data_bytes` are those of the rows, and of the buckets that several processes exchange gradients in.
    """

    fewer: Timeline
    more: Timeline
    data_bytes: int
    scoring: int = 0

    def held(self, rows: int) -> int:
        """Bytes of tensors, rounded as CUDA does: of an update, or of scoring where that needs more."""
        return max(self._of_an_update(rows), self.scoring) + self.data_bytes

    def _of_an_update(self, rows: int) -> int:
        """Of many operations the one that needs most at these rows."""
        fewer, more = self.fewer, self.more
        if fewer.operations != more.operations or fewer.rows == more.rows:
            return round(line(((fewer.rows, fewer.peak), (more.rows, more.peak)), rows))
        lines = zip((fewer.before, *fewer.held), (more.before, *more.held), strict=True)
        share = (rows - fewer.rows) / (more.rows - fewer.rows)
        return round(max(low + (high - low) * share for low, high in lines))

    def high(self, rows: int) -> int:
        return _high(self.held(rows))

    def largest(self, limit: float, most: int) -> int | None:
        """The most rows up to `most` that fit, by bisection; None if one row does not."""
        if self.high(1) > limit:
            return None
        low, above = 1, most + 1
        while above - low > 1:
            middle = (low + above) // 2
            low, above = (middle, above) if self.high(middle) <= limit else (low, middle)
        return low


def gpu_fits(
    subject: Subject, gpu_memory_gb: Mapping[str, float], scoring: int = 0, gpu_counts: Mapping[str, int] | None = None
) -> tuple[GpuFit, ...]:
    """An answer for each GPU, by SKU; `scoring` are the bytes held then, `gpu_counts` the GPUs of a machine, else 1.

    Raises what following the step raises.
    """
    counts = gpu_counts or {}
    curve = cache(lambda accumulate, precision, blocks: _curve(subject, accumulate, precision, blocks, scoring))
    return tuple(_fit(subject, sku, gb, counts.get(sku, 1), curve) for sku, gb in gpu_memory_gb.items())


def measured_fits(
    subject: Subject, gpu_memory_gb: Mapping[str, float], forecast: MemoryForecast
) -> tuple[GpuFit, ...]:  # fmt: skip
    """An answer for each GPU by an update that was measured on the one here; how it is with other rows is not told."""
    rows, each = part_rows(subject), _of_processes(subject)
    high = _high(forecast.value + _data_bytes(subject))
    answers = []
    for sku, gb in gpu_memory_gb.items():
        fits = high <= gb * 1e9
        message = f"{sku}: at most {high / 1e9:.1f} of {gb:g} GB{each}, as an update measured on the GPU here: "
        message += "fits" if fits else "does not fit"
        answers.append(
            GpuFit(
                sku=sku, gpu_memory_gb=gb, fits=fits, high_bytes=high, largest_rows=rows if fits else None, told=message
            )
        )  # fmt: skip
    return tuple(answers)


def _high(held: int) -> int:
    return round(held * (1 + FREE_BETWEEN)) + CONTEXT_BYTES


def with_unfollowed(gpu: GpuFit, subject: Subject, rows: int, more_bytes: int) -> GpuFit:
    """The fit where operations keep more here than was followed: as much is assumed on the GPU.

    How that goes on with other rows is not known, so that neither more rows nor ways are told.
    """
    each, high = _of_processes(subject), gpu.high_bytes + round((1 + FREE_BETWEEN) * more_bytes)
    fits = high <= gpu.gpu_memory_gb * 1e9
    message = f"{gpu.sku}: at most {high / 1e9:.1f} of {gpu.gpu_memory_gb:g} GB{each}"
    message += f": {'fits' if fits else 'does not fit'}"
    message += ", if operations keep there as much as here"
    changed = {"high_bytes": high, "fits": fits, "largest_rows": rows if fits else None, "ways": (), "told": message}
    return gpu.model_copy(update=changed)


def _curve(subject: Subject, accumulate: int, precision: Precision, blocks: bool, scoring: int) -> Curve:
    rows = part_rows(subject)
    sizes = (max(1, rows // 2), max(2, rows))
    fewer, more = (
        trace_step(subject, size, accumulate=accumulate, precision=precision, blocks=blocks, round_to=BLOCK_BYTES)
        for size in sizes
    )
    return Curve(fewer, more, data_bytes=_data_bytes(subject) + _of_exchange(subject, more), scoring=scoring)


def _of_exchange(subject: Subject, timeline: Timeline) -> int:
    """What a process holds over one that trains alone: the buckets of DDP; of FSDP a block, and less of the state.

    Of the gradients those count that are held at the peak.
    """
    if subject.sharding == "none":
        return bucket_bytes(subject, timeline)
    held = timeline.state - timeline.trained + timeline.kinds.get("gradients", 0)
    return block_bytes(timeline) - round((1 - 1 / subject.processes) * held)


def _data_bytes(subject: Subject) -> int:
    """All training rows: the loop keeps them on the device. With early stopping those of validation as well."""
    data, rows = subject.training, subject.plan.rows
    if subject.scored is not None and subject.scored.kept:
        rows += subject.scored.rows
    tensors = [*data.inputs.values(), data.targets, *([] if data.weights is None else [data.weights])]
    return sum(tensor.element_size() * math.prod(tensor.shape[1:]) * rows for tensor in tensors)


def _fit(subject: Subject, sku: str, gb: float, count: int, curve: Callable[..., Curve]) -> GpuFit:
    recipe, rows, limit = subject.recipe, part_rows(subject), gb * 1e9
    declared: Curve = curve(min(2, recipe.accumulate), recipe.precision, False)
    high, largest = declared.high(rows), declared.largest(limit, subject.plan.rows)
    fits = high <= limit
    ways = () if fits else (*_ways(subject, limit, curve), *_replicas(subject, limit, count, declared))
    start = f"{sku}: at most {high / 1e9:.1f} of {gb:g} GB{_of_processes(subject)}"
    if declared.high(0) > limit and declared.scoring:
        message = f"{start}: does not fit, since scoring the validation split takes {declared.scoring / 1e9:.1f} GB"
    elif fits:
        message = f"{start}: fits; up to {largest} rows a forward pass do"
        if count > 1 and subject.processes == 1:
            message += f"; one GPU is enough, and processes on all {count} (DDP) are for speed alone"
    elif ways:
        message = f"{start}: does not fit; it does with {', or with '.join(ways)}"
    else:
        message = f"{start}: does not fit; {_sharded(subject, limit, count, curve)}"
    return GpuFit(
        sku=sku, gpu_memory_gb=gb, fits=fits, high_bytes=high, largest_rows=largest, ways=ways, told=message
    )  # fmt: skip


def _of_processes(subject: Subject) -> str:
    """Each process has a GPU of its own, and is told by its share."""
    if subject.processes == 1:
        return ""
    share = f"{share_rows(subject)} of an update's {subject.plan.batch_size} rows"
    return f" in each of {subject.processes} processes, with {share}"


def _ways(subject: Subject, limit: float, curve: Callable[..., Curve]) -> tuple[str, ...]:
    """What makes it fit: each change alone, and if none does, the three together."""
    rows, batch = part_rows(subject), share_rows(subject)
    recipe = subject.recipe
    ways = []
    largest = curve(2, recipe.precision, False).largest(limit, rows)
    if largest:
        ways.append(f"accumulate: {math.ceil(batch / largest)} ({largest} rows a forward pass)")
    parts = min(2, recipe.accumulate)
    if recipe.precision == "fp32" and curve(parts, "bf16", False).high(rows) <= limit:
        ways.append("precision: bf16")
    blocks = _blocks(curve, parts, recipe.precision)
    if blocks and blocks.high(rows) <= limit:
        ways.append(_declared(blocks))
    if not ways and (together := _blocks(curve, 2, "bf16") or curve(2, "bf16", False)):
        largest = together.largest(limit, rows)
        named = f"precision: bf16, {_declared(blocks)} and " if blocks else "precision: bf16 and "
        ways += [f"{named}accumulate: {math.ceil(batch / largest)} together"] if largest else []
    return tuple(ways)


def _replicas(subject: Subject, limit: float, count: int, declared: Curve) -> tuple[str, ...]:
    """The fewest GPUs of the machine that fit a whole replica each, with its share of an update's rows."""
    if subject.processes > 1:
        return ()
    # DistributedDataParallel holds each gradient once more.
    curve = replace(declared, data_bytes=declared.data_bytes + declared.more.trained)
    batch = subject.plan.batch_size
    for processes in range(2, min(count, batch) + 1):
        share = math.ceil(batch / processes)
        if curve.high(math.ceil(share / subject.recipe.accumulate)) <= limit:
            named = f"compute.processes: {processes} and gpus: {processes}"
            how = f"DDP, {share} of an update's {batch} rows on each; launcher: torchrun in place of local"
            return (f"{named} ({how})",)
    return ()


def _declared(blocks: Curve) -> str:
    return f"activation_checkpointing: [{', '.join(blocks.more.blocks)}]"


def _blocks(curve: Callable[..., Curve], accumulate: int, precision: Precision) -> Curve | None:
    """With activation checkpointing; None where the model has no repeated blocks to put it around."""
    try:
        return curve(accumulate, precision, True)
    except TraceError:
        return None


def _sharded(subject: Subject, limit: float, available: int, curve: Callable[..., Curve]) -> str:
    """What only splitting the model helps: one row a part, and the weights' state divided."""
    recipe = subject.recipe
    smallest = _blocks(curve, 2, recipe.precision) or curve(2, recipe.precision, False)
    state = smallest.more.state
    # Beside the state a process holds what a row takes, and the block that is whole.
    other = smallest.high(1) - (1 + FREE_BETWEEN) * (state + _of_exchange(subject, smallest.more))
    rest = other + (1 + FREE_BETWEEN) * block_bytes(smallest.more)
    if other >= limit:
        return (
            f"not even divided over GPUs, since one row takes {other / 1e9:.1f} GB beside the weights: cut the inputs"
        )
    if rest >= limit:
        return (
            f"not even divided over GPUs, since its largest block takes {(rest - other) / 1e9:.1f} GB while it "
            "computes: build it of smaller ones, as members of a ModuleList or Sequential"
        )
    count = math.ceil((1 + FREE_BETWEEN) * state / (limit - rest))
    short = f" (a machine has {available})" if count > available > 1 else ""
    how = f"compute.sharding: fsdp, processes: {count} and gpus: {count}"
    if subject.sharding == "fsdp":
        return f"FSDP over {count} does ({how}){short}"
    return (
        f"DDP does not help, since each GPU holds all {state / 1e9:.1f} GB of weights, gradients and optimizer state; "
        f"FSDP over {count} does, which divides them ({how}){short}"
    )
