"""From trained weights to the artifact that is evaluated and shipped."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from trainworthy.lifecycle.artifact import write_artifact
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.training.prepare import Prepared, require_same_code
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.engine.training.techniques.compiled import uncompiled
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.golden import draw_requests
from trainworthy.lifecycle.plan import MIN_STEPS
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of
from trainworthy.lifecycle.tasks.metric import value


class Exported(NamedTuple):
    """The artifact's folder and hash, and its metrics on the validation split (TrainResult.artifact_metrics)."""

    folder: str
    sha256: str
    metrics: dict[str, float]


def export(job: TrainJob, prepared: Prepared, state: TrainState, device: str) -> Exported:
    """Calibrate on the calibration split, then write the artifact that will be evaluated and shipped.

    Raises UseCaseError if the code on disk, which is copied, is no longer the code that was trained.
    """
    require_same_code(job, prepared)
    kind, rows, validation = (
        kind_of_rows(job.rows), read_rows(job.calibration_file, job.rows), read_rows(job.validation_file, job.rows)
    )  # fmt: skip

    def answers(some: pd.DataFrame) -> np.ndarray:
        features = some[list(job.rows.features)]
        return predict_rows(prepared.task, state.model, prepared.preprocessing, features, device, kind)

    calibration = kind.fit_calibration(labels_of(job.rows, rows), answers(rows))
    features = rows[list(job.rows.features)]
    folder, sha256 = write_artifact(
        Path(job.out) / "artifact",
        task_folder=Path(job.use_case_folder),
        model=uncompiled(state.model),
        example=prepared.task.to_tensors(features.head(MIN_STEPS), prepared.preprocessing),
        preprocessing=prepared.preprocessing,
        calibration=calibration,
        target=job.rows.target,
        requests=draw_requests(
            validation[list(job.rows.features)], job.rows.sensitive, job.training.seed, (prepared.rows, features)
        ),
    )
    measured = calibrated_metrics(kind, validation[job.rows.label].to_numpy(), answers(validation), calibration)
    return Exported(folder, sha256, measured)


def calibrated_metrics(
    kind: Kind, labels: np.ndarray, answers: np.ndarray, calibration: Mapping[str, Any]
) -> dict[str, float]:
    """The kind's metrics that rank models, those that are defined, of a network's answers `(N, ...)` calibrated.

    Every row counts once. Seeds may be compared in any of them.
    """
    labels, answers = kind.checked(labels, kind.calibrated(answers, calibration))
    statistics, metrics = kind.statistics(labels, answers), {}
    for name in (name for name in kind.reported if kind.metrics[name].ranks):
        with contextlib.suppress(EvaluationError):
            metrics[name] = value(kind.metrics[name], labels, statistics)
    return {name: figure for name, figure in metrics.items() if math.isfinite(figure)}
