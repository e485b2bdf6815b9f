"""The sample that preflight works on: a stratified draw of training rows, prepared as a stage prepares them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.jobs import PreflightJob
from lifecycle.task import Task, fit_preprocessing, load_task
from lifecycle.training.loop import TrainData, TrainState, make_optimizer
from lifecycle.training.plan import stage_rows
from lifecycle.training.stage import seed_everything, to_train_data

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class Sample:
    """Rows of the sample, its fitted preprocessing, and its tensors on the device."""

    task: Task
    rows: pd.DataFrame
    preprocessing: dict[str, Any]
    data: TrainData


def draw_sample(job: PreflightJob, rows: pd.DataFrame, device: str) -> Sample:
    """At most about SAMPLE_ROWS rows, stratified by label. Errors of model.py pass through with their line."""
    fraction = min(1.0, SAMPLE_ROWS / len(rows))
    chosen = stage_rows(rows[job.rows.label].to_numpy(), fraction, job.training.seed)
    drawn = rows.iloc[chosen].reset_index(drop=True)
    task = load_task(Path(job.use_case_folder))
    seed_everything(job.training.seed)
    preprocessing = fit_preprocessing(task, drawn[list(job.rows.features)], job.hyperparameters)
    return Sample(task, drawn, preprocessing, to_train_data(task, drawn, preprocessing, job, device))


def fresh_state(job: PreflightJob, sample: Sample, device: str) -> TrainState:
    """An untrained model and its optimizer, as a stage would make them."""
    seed_everything(job.training.seed)
    model = sample.task.build_model(sample.preprocessing, job.hyperparameters).to(device)
    return TrainState(model, make_optimizer(model, job.training.optimizer))
