"""The sample that preflight works on: a stratified draw of training rows, prepared as a stage prepares them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.data.rows import read_rows
from lifecycle.jobs import PreflightJob
from lifecycle.preflight.subject import Subject
from lifecycle.task import Task, fit_preprocessing, load_task
from lifecycle.training.loop import TrainData
from lifecycle.training.plan import make_plan, rows_of_stage, stage_rows
from lifecycle.training.prepare import loaded_rows, seed_everything, to_train_data
from lifecycle.training.recipe import make_optimizers, make_recipe
from lifecycle.training.rows.weights import row_weights

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import nn

SAMPLE_ROWS = 20_000
# Rows worth a loader take about a millisecond to decode each.
SAMPLE_OF_LOADED = 2_000


@dataclass(frozen=True)
class Sample:
    """Training rows of the sample, their fitted preprocessing, and the subject that is made of them."""

    task: Task
    rows: pd.DataFrame
    preprocessing: dict[str, Any]
    subject: Subject

    @property
    def data(self) -> TrainData:
        return self.subject.training


def draw_sample(job: PreflightJob, rows: pd.DataFrame, device: str) -> Sample:
    """At most about SAMPLE_ROWS rows, or SAMPLE_OF_LOADED, stratified by label.

    Errors of model.py pass through with their line. `rows` are all of training; the held-out ones of the subject are of
    the validation split.
    """
    import torch

    task, per_batch = load_task(Path(job.use_case_folder)), job.training.tensors == "per_batch"
    drawn, held_out = _drawn(job, rows), _drawn(job, read_rows(job.validation_file, job.rows))
    seed_everything(job.training.seed)
    preprocessing = fit_preprocessing(task, drawn[list(job.rows.features)], job.hyperparameters)

    def build() -> nn.Module:
        seed_everything(job.training.seed)
        return task.build_model(preprocessing, job.hyperparameters)

    plan = make_plan(rows_of_stage(len(rows), job.training, job.stages, "full"), job.training, job.stages, "full")
    recipe = make_recipe(task, job.training, plan.horizon_steps)
    loaded = loaded_rows(task, drawn, preprocessing, job, device).in_loaders(recipe)[0] if per_batch else None
    training = to_train_data(task, drawn, preprocessing, job, device)
    given = drawn[job.rows.weight].to_numpy() if job.rows.weight else None
    weights = row_weights(drawn[job.rows.label].to_numpy(), job.training.class_weights, given)
    if weights is not None:
        training = replace(training, weights=torch.tensor(weights, dtype=torch.float32, device=device))
    subject = Subject(
        build=build,
        optimizers=lambda model: make_optimizers(task, model, job.training.optimizer),
        recipe=recipe,
        training=training,
        held_out=to_train_data(task, held_out, preprocessing, job, device),
        plan=plan,
        predict=task.predict,
        groups=held_out[job.rows.group].to_numpy(),
        labels=rows[job.rows.label].to_numpy(),
        loaded=loaded,
        claims=job.claims,
        device=device,
    )
    return Sample(task, drawn, preprocessing, subject)


def _drawn(job: PreflightJob, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.iloc[drawn_rows(job, rows)].reset_index(drop=True)


def drawn_rows(job: PreflightJob, rows: pd.DataFrame) -> np.ndarray:
    """Numbers of the sample's rows."""
    most = SAMPLE_OF_LOADED if job.training.tensors == "per_batch" else SAMPLE_ROWS
    fraction = min(1.0, most / len(rows))
    return stage_rows(rows[job.rows.label].to_numpy(), fraction, job.training.seed)
