"""The sample that preflight works on: a stratified draw of training rows, prepared as a stage prepares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.inputs.axes import reshaped
from trainworthy.lifecycle.engine.preflight.subject import Scored, Subject
from trainworthy.lifecycle.engine.preflight.throughput.blocked import spent
from trainworthy.lifecycle.engine.training.prepare import loaded_rows, seed_everything, to_train_data
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.rows.weights import row_weights
from trainworthy.lifecycle.engine.training.state import Stateful, TrainData
from trainworthy.lifecycle.engine.training.techniques.parts import make_parts
from trainworthy.lifecycle.engine.training.validate import loss_of
from trainworthy.lifecycle.oversampling import oversample
from trainworthy.lifecycle.plan import make_plan, rows_of_stage, stage_rows
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.sampling import evenly_spaced
from trainworthy.lifecycle.scoring import chunk_rows
from trainworthy.lifecycle.spec.training import TrainingSpec
from trainworthy.lifecycle.task import Task, fit_preprocessing, load_task
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of

SAMPLE_ROWS = 20_000
# Rows worth a loader take about a millisecond to decode each.
SAMPLE_OF_LOADED = 2_000
# Inputs and targets of the training rows, and of the held-out ones: fewer rows where one is large, such as a mask, but
# no fewer than LEAST_ROWS and an update's. overfit.held_out needs 225 held-out rows to see that something was learned.
SAMPLE_BYTES, LEAST_ROWS = 512 * 2**20, 256
# A text's tensors may be as long as the longest among them, so that one row does not tell.
MEASURED_ROWS = 8
# Held-out rows that early stopping evaluates in a trial: whether it goes through and comes back, not what it costs.
EVALUATED_ROWS = 256


@dataclass(frozen=True)
class Sample:
    """Training rows of the sample, their fitted preprocessing, and the subject that is made of them.

    `passing` are the bytes that a row takes for a while beside its tensors (memory/forecast.passing_bytes).
    """

    task: Task
    rows: pd.DataFrame
    preprocessing: dict[str, Any]
    subject: Subject
    passing: float = 0.0

    @property
    def data(self) -> TrainData:
        return self.subject.training


def draw_sample(job: PreflightJob, rows: pd.DataFrame, device: str, most: int | None = None) -> Sample:
    """At most about `most` rows, SAMPLE_ROWS or SAMPLE_OF_LOADED without it, or SAMPLE_BYTES, stratified by label.

    Errors of model.py pass through with their line. `rows` are all of training; the held-out ones of the subject are of
    the validation split.
    """
    task, per_batch = load_task(Path(job.use_case_folder)), job.training.tensors == "per_batch"
    validation, most = read_rows(job.validation_file, job.rows), most or _most(job)
    drawn = _drawn(job, rows, most)
    seed_everything(job.training.seed)
    kind = kind_of_rows(job.rows)
    target = kind.target_state(labels_of(job.rows, drawn))
    preprocessing = fit_preprocessing(task, drawn[list(job.rows.features)], job.hyperparameters, target)
    fitting = _fitting_rows(job, task, drawn, preprocessing)
    drawn, held_out = _drawn(job, drawn, fitting), _drawn(job, validation, min(most, fitting))

    def build() -> nn.Module:
        seed_everything(job.training.seed)
        return task.build_model(preprocessing, job.hyperparameters)

    count, labels = rows_of_stage(len(rows), job.training, job.stages, "full"), labels_of(job.rows, rows)
    # Of a reserve no more is known here than that it is stratified.
    oversampled = oversample(labels[:count], job.training.oversampling)
    plan = make_plan(count, job.training, job.stages, "full", oversampled)
    recipe = make_recipe(task, job.training, plan.horizon_steps)
    loaded = loaded_rows(task, drawn, preprocessing, job, device).in_loaders(recipe)[0] if per_batch else None
    # The first time that these rows are read: files that were read before may come from memory.
    training, made = spent(lambda: to_train_data(task, drawn, preprocessing, job, device))
    given = drawn[job.rows.weight].to_numpy() if job.rows.weight else None
    weights = _weights(labels_of(job.rows, drawn), job.training, given, kind.row_classes)
    if weights is not None:
        training = replace(training, weights=torch.tensor(weights, dtype=torch.float32, device=device))
    held_out_data = to_train_data(task, held_out, preprocessing, job, device)
    subject = Subject(
        build=build,
        optimizers=lambda model: make_optimizers(task, model, job.training.optimizer),
        recipe=recipe,
        training=training,
        held_out=held_out_data,
        plan=plan,
        predict=task.predict,
        kind=kind,
        groups=held_out[job.rows.group].to_numpy(),
        split_by_time=job.rows.split_by_time,
        labels=labels,
        loaded=loaded,
        parts=_parts(job, task, held_out_data),
        scored=Scored(len(validation), chunk_rows(held_out_data.inputs), job.training.early_stopping is not None),
        durable=job.durable,
        made=made,
        activation_checkpointing=job.training.activation_checkpointing,
        compiled=job.training.compile,
        fewest_rows=fewest_rows(job, len(rows)),
        processes=job.processes,
        sharding=job.sharding,
        nodes=job.nodes,
        reshaped=tuple(reshaped(drawn, training.valued)),
        least_nodes=job.least_nodes,
        claims=job.claims,
        device=device,
    )
    return Sample(task, drawn, preprocessing, subject)


def fewest_rows(job: PreflightJob, rows: int) -> int:
    """Rows of the smallest update of any stage; drawing rows again only adds to them."""
    counts = (rows_of_stage(rows, job.training, job.stages, stage) for stage in ("smoke", "pilot", "full"))
    return max(1, min(job.training.batch_size * job.training.accumulate, *counts))


def _parts(job: PreflightJob, task: Task, held_out: TrainData) -> Callable[[nn.Module], dict[str, Stateful]]:
    """What the training has beside model and optimizers, as a stage makes it; early stopping looks at every update."""
    stopping = job.training.early_stopping
    training = job.training.model_copy(update={"early_stopping": stopping and stopping.model_copy(update={"every": 1})})
    # Taken here, and the loss made when it is asked for: on fake tensors both would count as the model's.
    few = held_out.take(spread_rows(held_out, EVALUATED_ROWS).to(held_out.device))

    def parts(model: nn.Module) -> dict[str, Stateful]:
        def loss() -> float:
            on = few.to(next(model.parameters()).device)
            return loss_of(task, model, on, kind_of_rows(job.rows), gamma=training.focal_gamma)()

        return make_parts(training, model, lambda: loss)

    return parts


def _weights(labels: np.ndarray, training: TrainingSpec, given: np.ndarray | None, classes: int) -> np.ndarray | None:
    """A stage's weights. Rows that it draws more often count as much more here: the sample's batches draw each once."""
    oversampled = oversample(labels, training.oversampling)
    weights = row_weights(labels, training.class_weights, given, oversampled, classes)
    if oversampled is None:
        return weights
    drawn = oversampled.draws_of(len(labels)) * (np.ones(len(labels)) if weights is None else weights)
    return drawn / drawn.mean()


def _fitting_rows(job: PreflightJob, task: Task, rows: pd.DataFrame, preprocessing: dict[str, Any]) -> int:
    """How many rows like these, as tensors, have SAMPLE_BYTES; LEAST_ROWS or an update's if that is more."""
    few = rows.iloc[evenly_spaced(len(rows), MEASURED_ROWS)]
    try:
        # What to_tensors draws here must not move what it draws for the sample.
        with random_kept():
            made = to_train_data(task, few, preprocessing, job, "cpu")
    except Exception:
        # The sample itself, or a check of few rows, meets the error and tells it.
        return _most(job)
    held = sum(tensor.nbytes for tensor in (*made.inputs.values(), made.targets))
    update = job.training.batch_size * job.training.accumulate
    return max(LEAST_ROWS, update, SAMPLE_BYTES * len(few) // max(1, held))


def _drawn(job: PreflightJob, rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """About so many of the rows, stratified by label; in the order that they have."""
    return rows.iloc[_numbers(job, rows, most)].reset_index(drop=True)


def drawn_rows(job: PreflightJob, rows: pd.DataFrame) -> np.ndarray:
    """Numbers of the sample's rows, as far as their count alone is bounded."""
    return _numbers(job, rows, _most(job))


def _most(job: PreflightJob) -> int:
    return SAMPLE_OF_LOADED if job.training.tensors == "per_batch" else SAMPLE_ROWS


def _numbers(job: PreflightJob, rows: pd.DataFrame, most: int) -> np.ndarray:
    strata, fraction = kind_of_rows(job.rows).strata(labels_of(job.rows, rows)), min(1.0, most / len(rows))
    return stage_rows(strata, fraction, job.training.seed)
