"""What needs the use case's code or a model: the declared check `leakage_in_training`, in preflight's worker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.data.rows import read_rows
from lifecycle.jobs import PreflightJob
from lifecycle.leakage.finding import Finding
from lifecycle.leakage.own_rows import own_rows
from lifecycle.leakage.rows_apart import rows_apart
from lifecycle.leakage.split_gap import split_gap
from lifecycle.preflight.sample import Sample, fresh_state
from lifecycle.training.stage import seed_everything

if TYPE_CHECKING:
    import pandas as pd

FITTED_ROWS = 5_000


def leakage_in_training(job: PreflightJob, sample: Sample, device: str) -> tuple[Finding, ...]:
    """Findings on the code of model.py, then what a random split would claim."""
    features = sample.rows[list(job.rows.features)]

    def seed() -> None:
        seed_everything(job.training.seed)

    model = fresh_state(job, sample, device).model
    rows = read_rows(job.training_file, job.rows, extra=(job.prediction_time,))
    return (
        *own_rows(
            Path(job.use_case_folder), features.head(FITTED_ROWS), job.hyperparameters, seed,
            [Path(folder) for folder in job.data_folders], Path(job.training_file),
        ),
        rows_apart(sample.task, features, sample.preprocessing, model, seed),
        _gap(job, rows),
    )  # fmt: skip


def _gap(job: PreflightJob, rows: pd.DataFrame) -> Finding:
    return split_gap(
        rows, job.rows.features, job.rows.label, job.rows.group, job.prediction_time, job.training.seed,
        by_time=job.split.by == "time",
    )  # fmt: skip
