"""From trained weights to the artifact that is evaluated and shipped."""

from __future__ import annotations

from pathlib import Path

from trainworthy.lifecycle.artifact import write_artifact
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.training.prepare import Prepared, require_same_code
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.engine.training.techniques.compiled import uncompiled
from trainworthy.lifecycle.golden import draw_requests
from trainworthy.lifecycle.plan import MIN_STEPS
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of


def export(job: TrainJob, prepared: Prepared, state: TrainState, device: str) -> tuple[str, str]:
    """Calibrate on the calibration split, then write the artifact that will be evaluated and shipped.

    Raises UseCaseError if the code on disk, which is copied, is no longer the code that was trained.
    """
    require_same_code(job, prepared)
    rows = read_rows(job.calibration_file, job.rows)
    features = rows[list(job.rows.features)]
    answers = predict_rows(prepared.task, state.model, prepared.preprocessing, features, device, kind_of_rows(job.rows))
    calibration = kind_of_rows(job.rows).fit_calibration(labels_of(job.rows, rows), answers)
    validation = read_rows(job.validation_file, job.rows)[list(job.rows.features)]
    return write_artifact(
        Path(job.out) / "artifact",
        task_folder=Path(job.use_case_folder),
        model=uncompiled(state.model),
        example=prepared.task.to_tensors(features.head(MIN_STEPS), prepared.preprocessing),
        preprocessing=prepared.preprocessing,
        calibration=calibration,
        target=job.rows.target,
        requests=draw_requests(validation, job.rows.sensitive, job.training.seed, (prepared.rows, features)),
    )
