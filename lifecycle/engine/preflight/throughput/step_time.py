"""How long an update takes on this machine, and where the time goes."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from trainworthy.lifecycle.cost.meter import joules
from trainworthy.lifecycle.engine.preflight.cpu_first import as_trained
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.throughput.work import Work, counted
from trainworthy.lifecycle.engine.training.checkpoints.writer import Writer
from trainworthy.lifecycle.engine.training.loop import backward, train_step
from trainworthy.lifecycle.engine.training.rows.loading import AHEAD, LoadedRows
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.engine.training.techniques.compiled import compile_updates, uncompiled
from trainworthy.lifecycle.engine.training.techniques.parts import move_average
from trainworthy.lifecycle.plan import step_seed
from trainworthy.lifecycle.processor import usable_cores
from trainworthy.lifecycle.progress import Progress
from trainworthy.lifecycle.protocol.forecasts import StepTime
from trainworthy.lifecycle.protocol.training_figures import CurvePoint
from trainworthy.lifecycle.storage.durable.place import trial_store
from trainworthy.lifecycle.storage.metrics_file import FILE_NAME, MetricsFile

# Updates that are told; few, since a terminal that is slow is slow at once.
LOGGED = 20
# An update of several optimizers is as many of their steps, and the fewer updates are timed.
WARM_UP, TIMED_STEPS, FEWEST_STEPS = 3, 12, 4


def measure_step(subject: Subject) -> StepTime:
    """Median over updates on random rows of the sample, as a stage draws them: TIMED_STEPS optimizer steps."""
    subject = as_trained(subject)
    state = subject.state()
    if subject.compiled:
        # As a stage's worker, which traces the model anew and finds on disk what was compiled before.
        torch.compiler.reset()
        compile_updates(state.model)
    state.model.train()
    timed_steps = max(FEWEST_STEPS, TIMED_STEPS // max(1, len(state.optimizers)))
    batches = _batches(subject, WARM_UP + timed_steps)

    def update(rows: Tensor) -> None:
        train_step(state, subject.training, rows, subject.recipe)
        move_average(state)

    began = time.perf_counter()
    for rows in batches[:WARM_UP]:
        update(rows)
    warm_seconds = time.perf_counter() - began
    timed = batches[WARM_UP:]
    before, busy, cpu, wall = joules(), _machine_seconds(), time.process_time(), time.perf_counter()
    # train_step reads its loss, so that the device has finished.
    seconds = _median(update, timed)
    cpu, wall, after = time.process_time() - cpu, time.perf_counter() - wall, joules()
    busy, parts = _machine_seconds() - busy, _Parts(seconds, _median(lambda rows: _taken(subject, rows), timed))
    if subject.loaded is None:
        parts = parts._replace(augmenting=_augment_seconds(subject, timed))
    else:
        parts = _with_loaders(subject, subject.loaded, state)
    uncompiled(state.model)
    logging_seconds = _logging_seconds(subject)
    checkpoint_seconds, write_seconds = _checkpoint_seconds(state, subject.durable)
    flops, operations = _counted(subject, state, batches[0])
    return StepTime(
        seconds=parts.update + logging_seconds,
        logging_seconds=logging_seconds,
        read_share=None if subject.made is None else subject.made.share,
        compile_seconds=max(0.0, warm_seconds - WARM_UP * parts.update) if subject.compiled else 0.0,
        rows_seconds=parts.rows,
        augment_seconds=parts.augmenting,
        loaders=subject.loaded.loaders if subject.loaded else 0,
        checkpoint_seconds=checkpoint_seconds,
        write_seconds=write_seconds,
        cores_busy=cpu / wall,
        others_busy=max(0.0, (busy - cpu) / wall),
        cores=usable_cores(),
        flops=flops,
        operations=operations,
        joules=None if before is None or after is None else (after - before) / len(timed),
        device=subject.device,
    )


class _Parts(NamedTuple):
    """Seconds of an update, of its rows and of their augmentation."""

    update: float
    rows: float
    augmenting: float = 0.0


def _with_loaders(subject: Subject, loaded: LoadedRows, state: TrainState) -> _Parts:
    """An update and its wait, with real loaders, once the batches that they had ready are used up.

    The mean, since a loader gives several batches at once and then none.
    """
    ready, size = loaded.loaders * AHEAD, min(subject.plan.batch_size, len(loaded.targets))
    # More steps than are waited for: a loader that has nothing left to do would leave its core to the update.
    first, steps = WARM_UP + ready, WARM_UP + TIMED_STEPS + 2 * ready
    plan = subject.plan.model_copy(
        update={"rows": len(loaded.targets), "batch_size": size, "steps_per_epoch": len(loaded.targets) // size,
                "first_step": 0, "last_step": steps, "oversampled": None},
    )  # fmt: skip
    recipe, waited, took = replace(subject.recipe, augment=None), 0.0, 0.0
    with contextlib.closing(loaded.batches(plan, 0)) as batches:
        for step in range(first + TIMED_STEPS):
            began = time.perf_counter()
            data, rows = next(batches)
            come = time.perf_counter()
            train_step(state, data, rows, recipe)
            move_average(state)
            if step >= first:
                waited, took = waited + come - began, took + time.perf_counter() - began
    return _Parts(took / TIMED_STEPS, waited / TIMED_STEPS)


def _machine_seconds() -> float:
    """CPU seconds that all processes of this machine have used."""
    import psutil

    times = psutil.cpu_times()
    return times.user + times.system + getattr(times, "nice", 0.0)


def _batches(subject: Subject, count: int) -> list[Tensor]:
    total = len(subject.training.targets)
    size = min(subject.plan.batch_size, total)
    generator = torch.Generator().manual_seed(subject.plan.seed)
    return [torch.randperm(total, generator=generator)[:size].to(subject.device) for _ in range(count)]


def _median(run: Callable[[Tensor], object], batches: Sequence[Tensor]) -> float:
    times = []
    for rows in batches:
        started = time.perf_counter()
        run(rows)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _taken(subject: Subject, rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    return {name: tensor[rows] for name, tensor in subject.training.inputs.items()}, subject.training.targets[rows]


def _augment_seconds(subject: Subject, batches: Sequence[Tensor]) -> float:
    augment = subject.recipe.augment
    if augment is None:
        return 0.0
    taken = {id(rows): _taken(subject, rows) for rows in batches}
    generator = torch.Generator().manual_seed(step_seed(subject.recipe.seed, 0))
    return _median(lambda rows: augment(*taken[id(rows)], generator), batches)


def _logging_seconds(subject: Subject) -> float:
    """Seconds an update that progress and the metrics of a stage take, as StepHooks writes them."""
    window = subject.plan.window
    point = CurvePoint(step=1, rows=1, loss=0.5, standard_error=0.1, learning_rate=0.1)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_until:
        progress = Progress("preflight: an update", 2 * LOGGED)
        open_until.callback(progress.close)
        metrics = MetricsFile(Path(folder) / FILE_NAME)
        open_until.callback(metrics.close)
        # A window's line at least once, and no oftener than windows close.
        lines = max(1, LOGGED // window)
        started = time.perf_counter()
        for _ in range(LOGGED):
            progress.advance(f"loss {point.loss:.4f}")
        progress_seconds = (time.perf_counter() - started) / LOGGED
        started = time.perf_counter()
        for _ in range(lines):
            metrics.write([point])
        written = (time.perf_counter() - started) / lines
    return progress_seconds + written / window


def _checkpoint_seconds(state: TrainState, durable: str | None) -> tuple[float, float]:
    """Seconds that a second checkpoint blocks, and that its writing takes: the first one's copy also makes buffers.

    Written where stages write: to this machine's disk, and its copy to the storage that outlives the machine.
    """
    durable_store = contextlib.nullcontext(None) if durable is None else trial_store(durable)
    with tempfile.TemporaryDirectory() as folder, durable_store as copies:
        writer = Writer(Path(folder), "preflight", copies)
        try:
            writer.begin(state)
            writer.finish()
            blocked, stored = writer.begin(state), writer.finish()
        finally:
            writer.close()
    assert stored is not None
    return blocked, stored.seconds


def _counted(subject: Subject, state: TrainState, rows: Tensor) -> Work:
    """Floating-point operations, and calls that start a kernel, of the forward and backward passes of one update."""
    # Else each gradient is added to the one before.
    state.model.zero_grad()
    recipe, generator = subject.recipe, torch.Generator().manual_seed(subject.recipe.seed)

    def passes() -> None:
        for part in rows.tensor_split(min(recipe.accumulate, len(rows))):
            backward(state.model, subject.training, part, recipe, generator, of=len(rows))

    return counted(passes)
