"""What a stage trains on: its rows, the preprocessing fitted on them, tensors and weights."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.data.split.held_out import held_out_columns
from trainworthy.lifecycle.engine.training.random_state import seed_all
from trainworthy.lifecycle.engine.training.rows.features import prepared_features
from trainworthy.lifecycle.engine.training.rows.loading import FileTargets, LoadedRows, usual_loaders
from trainworthy.lifecycle.engine.training.rows.weights import raised_by_class, row_weights
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.errors import Problem, UseCaseError
from trainworthy.lifecycle.identity import python_sources, sha256_files
from trainworthy.lifecycle.oversampling import Oversampled, oversample
from trainworthy.lifecycle.plan import stage_rows, without_reserve
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.task import Task, fit_preprocessing, load_task
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of, truth_of


@dataclass(frozen=True)
class Prepared:
    """What a stage trains on; `code_sha256` is the hash of the use case's code as it was loaded.

    `reserve` are the stage's rows that it never trains on, prepared as those are; None if there are none.
    """

    task: Task
    code_sha256: str
    rows: pd.DataFrame
    preprocessing: dict[str, Any]
    data: TrainData | LoadedRows
    # By how much weights and draws raise the logarithm of each class's probability, (classes,); None where they do not.
    raised: np.ndarray | None = None
    oversampled: Oversampled | None = None
    reserve: TrainData | None = None
    notes: tuple[str, ...] = ()


def prepare(job: TrainJob, device: str, mapped_in: Path | None = None) -> Prepared:
    """The stage's rows and tensors; preprocessing is fitted on the rows that are trained on only.

    Rows that stay on the disk are mapped in that folder, the job's own without it.
    """
    code = code_sha256(job)
    task = load_task(Path(job.use_case_folder))
    rows, held_back, rows_sha256 = chosen_rows(job, mapped_in)
    return prepare_rows(job, task, code, rows, device, held_back, rows_sha256)


def prepare_rows(
    job: TrainJob, task: Task, code: str, rows: pd.DataFrame, device: str, held_back: pd.DataFrame | None = None,
    rows_sha256: str = "",
) -> Prepared:  # fmt: skip
    """These rows as a stage trains on them, with any task; `held_back` are its reserve.

    `rows_sha256` names the rows where their tensors may be kept (TrainJob.kept_features).
    """
    seed_everything(job.training.seed)
    features, labels = rows[list(job.rows.features)], labels_of(job.rows, rows)
    preprocessing = fit_preprocessing(task, features, job.hyperparameters, kind_of_rows(job.rows).target_state(labels))
    data, notes = _data(job, task, rows, preprocessing, rows_sha256, code, device)
    given = rows[job.rows.weight].to_numpy() if job.rows.weight else None
    oversampled = oversample(labels, job.training.oversampling)
    weights = row_weights(labels, job.training.class_weights, given, oversampled, kind_of_rows(job.rows).row_classes)
    if weights is not None:
        data = replace(data, weights=torch.tensor(weights, dtype=torch.float32, device=data.targets.device))
    held = held_back if held_back is not None and len(held_back) else None
    reserve = None if held is None else to_train_data(task, held, preprocessing, job, device)
    raised = raised_by_class(labels, weights, oversampled, kind_of_rows(job.rows).row_classes)
    return Prepared(task, code, rows, preprocessing, data, raised, oversampled, reserve, notes)


def chosen_rows(job: TrainJob, mapped_in: Path | None = None) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """The rows that the stage trains on, those of its reserve, and what names the first.

    In mode continue every stage sees all training rows, since the stages are pauses of one run. Rows that become
    tensors batch by batch are left on the disk, as `prepare` says, and have no reserve.
    """
    by = () if job.split is None else held_out_columns(job.split)
    extra = (*((job.rows.weight,) if job.rows.weight else ()), *job.slices, *by)
    if job.training.tensors == "per_batch":
        chosen = _of_stage(job, labels_of(job.rows, _label_rows(job))) if job.stages.mode == "restart" else None
        rows = read_rows(job.training_file, job.rows, extra, mapped_in=mapped_in or Path(job.out), chosen=chosen)
        return rows, rows.iloc[:0], ""
    rows = read_rows(job.training_file, job.rows, extra)
    if job.stages.mode == "continue" and not job.training.reserve:
        return rows, rows.iloc[:0], "all"
    labels = labels_of(job.rows, rows)
    chosen = _of_stage(job, labels) if job.stages.mode == "restart" else np.arange(len(rows))
    held_back = chosen[:0]
    if job.training.reserve:
        strata = kind_of_rows(job.rows).strata(labels)
        chosen, held_back = without_reserve(chosen, strata, job.training.reserve, job.training.seed)
    trained = rows.iloc[chosen].reset_index(drop=True)
    return trained, rows.iloc[held_back], hashlib.sha256(chosen.tobytes()).hexdigest()


def _of_stage(job: TrainJob, labels: np.ndarray) -> np.ndarray:
    strata = kind_of_rows(job.rows).strata(labels)
    return stage_rows(strata, job.stages.fraction(job.stage), job.training.seed)


def _label_rows(job: TrainJob) -> pd.DataFrame:
    """All training rows with no more than their labels."""
    files = () if job.rows.label_file is None else (job.rows.label_file,)
    only = {"features": (), "keys": (), "files": files, "group": job.rows.label}
    return read_rows(job.training_file, job.rows.model_copy(update=only))


def _data(
    job: TrainJob,
    task: Task,
    rows: pd.DataFrame,
    preprocessing: dict[str, Any],
    rows_sha256: str,
    code: str,
    device: str,
) -> tuple[TrainData | LoadedRows, tuple[str, ...]]:
    """Whole tensors, or rows for loaders to make tensors of; and notes on tensors that were kept."""
    features = rows[list(job.rows.features)]
    if job.training.tensors == "per_batch":
        return loaded_rows(task, rows, preprocessing, job, device), ()
    inputs, notes = prepared_features(job, task, features, preprocessing, rows_sha256, code)
    return _on_device(inputs, rows, job, device), notes


def loaded_rows(task: Task, rows: pd.DataFrame, preprocessing: dict[str, Any], job: Any, device: str) -> LoadedRows:
    """Rows that become tensors batch by batch; the model's code sees the declared features and nothing else."""
    return LoadedRows(
        to_tensors=lambda some: dict(task.to_tensors(some, preprocessing)),
        folder=Path(job.use_case_folder),
        features=rows[list(job.rows.features)],
        targets=_targets(rows, job) if job.rows.label_file is None else _file_targets(rows, job),
        device=device,
        loaders=job.loaders or max(1, usual_loaders() // _processes_here(job)),
        seed=job.training.seed,
    )


def _processes_here(job: Any) -> int:
    """How many processes share this machine's cores: torchrun says it in each, and preflight's job before."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", getattr(job, "processes", 1) // getattr(job, "nodes", 1)))


def _file_targets(rows: pd.DataFrame, job: Any) -> Any:
    """As _targets, of files that are read when rows are asked for."""
    return FileTargets(len(rows), lambda some: kind_of_rows(job.rows).targets(truth_of(job.rows, rows.iloc[some])))


def to_train_data(task: Task, rows: pd.DataFrame, preprocessing: dict[str, Any], job: Any, device: str) -> TrainData:
    """Whole tensors on the device; the model's code sees the declared features and nothing else."""
    inputs = task.to_tensors(rows[list(job.rows.features)], preprocessing)
    return _on_device(inputs, rows, job, device)


def _on_device(inputs: Mapping[str, torch.Tensor], rows: pd.DataFrame, job: Any, device: str) -> TrainData:
    return TrainData({name: tensor.to(device) for name, tensor in inputs.items()}, _targets(rows, job).to(device))


def _targets(rows: pd.DataFrame, job: Any) -> torch.Tensor:
    """What loss_fn gets of these rows' labels, (N, ...)."""
    return torch.from_numpy(kind_of_rows(job.rows).targets(truth_of(job.rows, rows)))


def seed_everything(seed: int) -> None:
    """Seed every generator a use case may draw from, and ask torch for deterministic kernels."""
    # cuBLAS needs this for deterministic kernels, before its first use.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    seed_all(seed)
    torch.use_deterministic_algorithms(True)


def code_sha256(job: TrainJob) -> str:
    return sha256_files(python_sources(Path(job.use_case_folder)))


def require_same_code(job: TrainJob, prepared: Prepared) -> None:
    """An artifact with other code than the trained one would score with weights that do not belong to it."""
    if code_sha256(job) != prepared.code_sha256:
        problem = "the use case's code changed during the training"
        raise UseCaseError(Path(job.use_case_folder).name, [Problem("model.py", problem, "run the training again")])
