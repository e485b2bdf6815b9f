"""What needs the use case's code or a model: the declared check `leakage_in_training`, in preflight's worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.engine.preflight.sample import Sample
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.leakage.battery import follows_time
from trainworthy.lifecycle.leakage.preprocessing_leak import FILES, own_rows
from trainworthy.lifecycle.leakage.row_independence import FAMILY as APART
from trainworthy.lifecycle.leakage.row_independence import row_independence
from trainworthy.lifecycle.leakage.split_gap import FAMILY as GAP
from trainworthy.lifecycle.leakage.split_gap import split_gap
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.protocol.leak import Leak, Taxon
from trainworthy.lifecycle.task import TARGET_STATE, Task, error_line
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of


def leakage_in_training(job: PreflightJob, sample: Sample, rows: pd.DataFrame) -> tuple[Leak, ...]:
    """Findings on the code of model.py, then what a random split would claim. `rows` are all of training."""
    return leakage_of_code(job, sample.task, sample.rows, sample.preprocessing, sample.subject.model, rows)


def leakage_of_code(
    job: PreflightJob, task: Task, drawn: pd.DataFrame, preprocessing: dict[str, Any],
    build: Callable[[], nn.Module] | None, rows: pd.DataFrame,
) -> tuple[Leak, ...]:  # fmt: skip
    """The same by its parts: `drawn` are the sample's rows, `build` is None where model.py knows no network."""
    features, folder = drawn[list(job.rows.features)], Path(job.use_case_folder)

    def seed() -> None:
        seed_everything(job.training.seed)

    def watch() -> list[Leak]:
        watched = [Path(data) for data in job.data_folders]
        target = preprocessing.get(TARGET_STATE)
        return own_rows(folder, features, job.hyperparameters, seed, watched, Path(job.training_file), target)

    def part() -> list[Leak]:
        return [row_independence(task, features, preprocessing, None if build is None else build(), seed)]

    own = "let model.py take any values that contract.yaml allows, a row alone or many"
    return (
        *_tried(job, "L1.2", FILES, own, watch),
        *_tried(job, "L1.2", APART, own, part),
        *_tried(job, "L3.1", GAP, "only the gap is missing; look at the training rows of this dataset version",
                lambda: [_gap(job, rows)]),
    )  # fmt: skip


def _tried(job: PreflightJob, taxon: Taxon, family: str, fix: str, look: Callable[[], list[Leak]]) -> list[Leak]:
    """The findings; where something raises, model.py on valid values or we, that nothing could be seen, and where."""
    try:
        return look()
    except (Exception, SystemExit) as error:
        evidence = error_line(error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features))[:500]
        return [Leak(taxon=taxon, family=family, status="insufficient", evidence=evidence, fix=fix)]


def _gap(job: PreflightJob, rows: pd.DataFrame) -> Leak:
    time = job.prediction_time
    if time is None:
        evidence = "the rows hold no times (no prediction_time), so there is no later"
        return Leak(taxon="L3.1", family=GAP, status="not_applicable", evidence=evidence)
    times = pd.read_parquet(job.training_file, columns=[time])[time]
    labels = labels_of(job.rows, rows)
    event = kind_of_rows(job.rows).events(labels)[0].of_labels(labels).astype("int64")
    rows = with_columns(rows, {time: times, job.rows.label: event})
    return split_gap(
        rows,
        job.rows.features,
        job.rows.label,
        job.rows.group,
        time,
        job.training.seed,
        by_time=follows_time(job.split),
    )
