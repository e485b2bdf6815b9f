"""Memory forecast: what the worker of the full stage will hold at its peak, before a model is built.

An update is followed on fake tensors (fake_step.py) in a fork (sandbox.py); only if that fits, real steps on a few rows
add what its kernels hold (step_memory.py). What the process holds already is measured; rows and tensors are
extrapolated from the sample.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from trainworthy.lifecycle.data.mapped import mapped_bytes
from trainworthy.lifecycle.engine.preflight.cpu_first import as_trained
from trainworthy.lifecycle.engine.preflight.memory.gpu_fit import gpu_fits, measured_fits, with_unfollowed
from trainworthy.lifecycle.engine.preflight.memory.sandbox import SandboxError, in_sandbox
from trainworthy.lifecycle.engine.preflight.memory.step_memory import (
    Followed,
    follow,
    from_trace,
    share_rows,
    with_real_steps,
)
from trainworthy.lifecycle.engine.preflight.sample import Sample
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.rows.loading import AHEAD
from trainworthy.lifecycle.memory_limit import value_in
from trainworthy.lifecycle.protocol.forecasts import GpuFit, MemoryForecast
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.sampling import evenly_spaced

# Of all but the update: measured on tabular networks, the worker's real peak lay between 0.8 and 1.3 of the forecast.
LOW, HIGH = 0.75, 1.4
# The process that starts several ones and waits for them, with torch imported.
LAUNCHER_BYTES = 250_000_000
# Rows by which the memory of fit_preprocessing is measured: enough that what it holds besides does not count.
FITTED = 200_000
# Rows whose making is looked at: few, and so many as make this many bytes of tensors, or take so many CPU seconds.
PASSED_FEW, PASSED_MOST, PASSED_BYTES, PASSED_SECONDS = 16, 1_024, 64_000_000, 15.0
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class StepMemory:
    """What an update holds, whether it fits each GPU, and what kept either from being told."""

    forecast: MemoryForecast | None
    gpus: tuple[GpuFit, ...] = ()
    problem: str = ""


def step_memory(
    subject: Subject,
    gpu_memory_gb: dict[str, float],
    describe: Callable[[BaseException], str],
    may_run: Callable[[MemoryForecast], bool],
    gpu_counts: dict[str, int] | None = None,
) -> StepMemory:
    """The update's memory. On a CPU real steps run only if `may_run` the forecast that allocates nothing.

    On a GPU they run at once: too much is an exception there and ends nothing, and a process in which CUDA has begun
    cannot be forked to follow a step.
    """
    subject = as_trained(subject)
    if subject.device != "cpu":
        try:
            measured = with_real_steps(subject, Followed(None))
            return StepMemory(measured, measured_fits(subject, gpu_memory_gb, measured))
        except Exception as error:
            return StepMemory(None, problem=describe(error))
    followed, gpus = _traced(subject, gpu_memory_gb, gpu_counts or {}, describe)
    problem = f"the model could not be followed on tensors without values: {followed.problem}" * (not followed.trusted)
    gpus = gpus if followed.trusted else ((), problem)
    forecast = from_trace(subject, followed, followed.timeline) if followed.timeline else None
    if forecast is not None and not may_run(forecast):
        return StepMemory(forecast, *gpus)
    try:
        measured = with_real_steps(subject, followed)
        if measured.source == "corrected" and forecast is not None:
            more = measured.value - forecast.value
            gpus = tuple(with_unfollowed(gpu, subject, measured.rows, more) for gpu in gpus[0]), gpus[1]
        return StepMemory(measured, *gpus)
    except Exception as error:
        # Whatever a use case's code raises; a real fault shows again in one_batch, with its part named.
        return StepMemory(forecast if followed.trusted else None, gpus[0], problem or describe(error))


def _traced(
    subject: Subject,
    gpu_memory_gb: dict[str, float],
    gpu_counts: dict[str, int],
    describe: Callable[[BaseException], str],
) -> tuple[Followed, tuple[tuple[GpuFit, ...], str]]:
    """All that fake tensors tell, apart from this process: what the model keeps of them must not meet real ones."""
    from pydantic import TypeAdapter

    # The trace imports it, and so will the export: here it is done once, which saves the fork a second.
    importlib.import_module("torch._dynamo")
    kind = TypeAdapter(tuple[Followed, tuple[tuple[GpuFit, ...], str]])

    def traced() -> str:
        followed = follow(subject, describe)
        gpus = _gpus(subject, gpu_memory_gb, gpu_counts, followed.scoring, describe) if followed.trusted else ((), "")
        return kind.dump_json((followed, gpus)).decode()

    try:
        return kind.validate_json(in_sandbox(traced))
    except SandboxError as error:
        return Followed(None, str(error)), ((), "")


def _gpus(
    subject: Subject, gpu_memory_gb: dict[str, float], gpu_counts: dict[str, int], scoring: int,
    describe: Callable[[BaseException], str],
) -> tuple[tuple[GpuFit, ...], str]:  # fmt: skip
    try:
        return gpu_fits(subject, gpu_memory_gb, scoring, gpu_counts), ""
    except Exception as error:
        return (), f"not estimated for GPUs: {describe(error)}"


def fits_here(memory: Forecast, step: MemoryForecast, limit_bytes: int, device: str) -> bool:
    """True if the upper end fits this machine: on CUDA, an update is held against what is free of that GPU."""
    if device != "cuda":
        return memory.high <= limit_bytes
    return memory.high - step.together[2] <= limit_bytes and step.peak[2] <= torch.cuda.mem_get_info()[0]


def forecast_memory(job: PreflightJob, sample: Sample, rows: pd.DataFrame, step: MemoryForecast) -> Forecast:
    """Peak bytes of the full stage's processes on a machine, an update or scoring among them wherever it is made.

    Each process has all rows and a whole replica, or its part of one, and a share of an update's activations; the first
    alone scores, and has a copy of the whole state for checkpoints. What rows take while their tensors are made is over
    before the first update, so that the larger of both counts.
    """
    import psutil

    # The kernel takes pages of mapped rows back when memory is short.
    loaded, processes = sample.subject.loaded, sample.subject.processes
    here = processes // sample.subject.nodes
    held = psutil.Process().memory_info().rss - (0 if loaded is None else mapped_bytes())
    # With loaders only the batches that are ready, and the one at work, are there.
    many = len(rows) if loaded is None else (loaded.loaders * AHEAD + 1) * share_rows(sample.subject)
    scale = many / len(sample.rows)
    tensors = sum(t.element_size() * t.numel() for t in sample.data.inputs.values()) * scale
    copied = prepared_bytes(job, sample, rows)
    scored = sample.subject.scored
    scores_stay = scored is not None and scored.kept
    scale = scored.rows / len(sample.subject.held_out.targets) if scored is not None and scores_stay else 0.0
    scores = sum(t.element_size() * t.numel() for t in sample.subject.held_out.inputs.values()) * scale
    other_bytes = here * (held + tensors + copied) + scores + (LAUNCHER_BYTES if processes > 1 else 0)
    state = state_copy_bytes(step, best_weights=scores_stay)
    value, low, high = step.together
    made = here * sample.passing * many
    return Forecast(
        name="memory", unit="bytes", value=float(other_bytes + max(state + value, made)),
        low=other_bytes * LOW + max(state + low, made * LOW),
        high=other_bytes * HIGH + max(state + high, made * HIGH),
    )  # fmt: skip


def passing_bytes(job: PreflightJob, sample: Sample) -> float:
    """Bytes that fit_preprocessing and to_tensors take for a row of files for a while, beside the row's tensors.

    By the peaks of a fork after some rows and after twice as many, so that what is taken for a piece of them counts
    once. A spectrogram of half a thousand numbers came of sounds of 8,000, by way of complex ones: the stage held 1.7
    GiB, where 1.1 were forecast without it. 0 for rows that are no files, of which a few thousand take less than a page
    or two, and where a fork could not tell.
    """
    if not job.rows.files:
        return 0.0
    tensors = sum(t.element_size() * t.numel() for t in sample.data.inputs.values()) / len(sample.rows)
    features = sample.rows[list(job.rows.features)]
    most = min(len(features), max(2 * PASSED_FEW, int(PASSED_BYTES / max(tensors, 1.0))), PASSED_MOST)

    def peak(count: int) -> int:
        some = features.iloc[:count]
        sample.task.fit_preprocessing(some, job.hyperparameters)
        sample.task.to_tensors(some, sample.preprocessing)
        return 1024 * (value_in(_STATUS, "VmHWM:") or 0)

    def peaks() -> str:
        began = time.process_time()
        peak(PASSED_FEW)
        # Files that take long to read: as many as there is time for.
        each = (time.process_time() - began) / PASSED_FEW
        half = min(most, int(PASSED_SECONDS / max(each, 1e-9))) // 2
        return f"{half} {peak(half)} {peak(2 * half)}" if half > PASSED_FEW else "1 0 0"

    try:
        half, few, more = map(int, in_sandbox(peaks).split())
    except SandboxError:
        return 0.0
    return max(0.0, (more - few) / half - tensors)


def prepared_bytes(job: PreflightJob, sample: Sample, rows: pd.DataFrame) -> float:
    """What preparing all the rows holds for a while beside their tensors.

    A copy of the feature columns; of rows on the disk what fit_preprocessing takes, from what it takes of FITTED of
    them in a fork. Of files it may read each, so that it is not asked.
    """
    features = rows[list(job.rows.features)]
    copied = float(features.memory_usage(deep=False).sum())
    if sample.subject.loaded is None or job.rows.files:
        return copied
    some = features.iloc[evenly_spaced(len(features), min(len(features), FITTED))]

    def fitted() -> str:
        before = value_in(_STATUS, "VmRSS:")
        sample.task.fit_preprocessing(some, job.hyperparameters)
        peak = value_in(_STATUS, "VmHWM:")
        return "" if before is None or peak is None else str(1024 * (peak - before))

    try:
        taken = in_sandbox(fitted).strip()
    except SandboxError:
        # It takes too long; what is wrong with it, a stage meets and tells.
        taken = ""
    return float(taken) * len(features) / len(some) if taken else copied


def state_copy_bytes(step: MemoryForecast, *, best_weights: bool = False) -> int:
    """What a checkpoint's copy of weights, optimizers and average takes; AdamW's if they were not followed.

    `best_weights`: early stopping holds those of its best evaluation on the host, which are copied as well.
    """
    if not step.kinds:
        return (3 + 2 * best_weights) * 4 * step.parameter_count
    # It is whole, wherever its parts are.
    parts = step.processes if step.sharding == "fsdp" else 1
    of = {name: parts * size for name, size in step.kinds.items()}
    return of.get("parameters", 0) * (1 + 2 * best_weights) + of.get("optimizer", 0) + of.get("average", 0)
