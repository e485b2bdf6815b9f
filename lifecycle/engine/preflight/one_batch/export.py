"""What is done with a model after its training: predictions of rows, and an artifact that gives the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from trainworthy.lifecycle.artifact import load_artifact, write_artifact
from trainworthy.lifecycle.engine.preflight.one_batch.update import JobAndSample, evaluated, forward_rows
from trainworthy.lifecycle.engine.training.techniques.parts import put_final_weights
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.golden import draw_requests
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.tasks.labels import kind_of_rows

# The exported graph may fuse operations; float32 probabilities then differ in the last digits.
EXPORT_TOLERANCE = 1e-4
# Rows in another order are other sums in a batch's statistics.
ORDER_TOLERANCE = 1e-3


def predicts(job_and_sample: JobAndSample) -> Outcome:
    """Probabilities of the batch's rows, of one row, and of the rows in another order."""
    subject, features, size = job_and_sample[1].subject, _features(job_and_sample), forward_rows(job_and_sample)
    kind = kind_of_rows(job_and_sample[0].rows)
    shape = kind.answer_shape
    try:
        predictions = _predicted(job_and_sample, features)
        if predictions.shape != (size, *shape):
            return Outcome("fail", f"predict gave shape {predictions.shape} for {size} rows", fix=kind.predict_fix)
        kind.checked(kind.sample_labels(size), predictions)
    except EvaluationError as error:
        return Outcome("fail", f"{error.problem}, for example {error.value}", fix=error.fix)
    if _predicted(job_and_sample, features.head(1)).shape != (1, *shape):
        return Outcome("fail", "predict gave no single answer for a single row", fix=kind.predict_fix)
    order = np.random.default_rng(0).permutation(size)
    if subject.claims.evaluation == "deterministic":
        again = np.abs(_predicted(job_and_sample, features.iloc[order]) - predictions[order])
        difference = float((again / kind.answer_scale(predictions)[order]).max())
        if difference > ORDER_TOLERANCE:
            fix = "let to_tensors and forward keep the rows in their order, and make no use of their place or index"
            evidence = f"asked in another order, the same rows get {kind.answers} that differ by {difference:.4f}"
            return Outcome("fail", evidence, difference, ORDER_TOLERANCE, fix=fix)
    return Outcome("pass", f"{size} rows: {kind.answers} from {predictions.min():.4f} to {predictions.max():.4f}")


def exports(job_and_sample: JobAndSample) -> Outcome:
    """Export, reload in load_artifact, and predict one row and all as the model itself does."""
    job, sample = job_and_sample
    state, features = evaluated(job_and_sample), _features(job_and_sample)
    put_final_weights(state)
    # With an example of one row, torch.export would fix the batch size to one.
    several = sample.rows[list(job.rows.features)].head(max(2, forward_rows(job_and_sample)))
    with tempfile.TemporaryDirectory() as folder:
        artifact, sha256 = write_artifact(
            Path(folder) / "artifact",
            task_folder=Path(job.use_case_folder),
            model=state.model,
            example=sample.task.to_tensors(several, sample.preprocessing),
            preprocessing=sample.preprocessing,
            calibration=kind_of_rows(job.rows).uncalibrated,
            target=job.rows.target,
            requests=draw_requests(several, job.rows.sensitive, job.training.seed),
        )
        score = load_artifact(Path(artifact), sha256)
        for rows in (1, len(features)):
            direct = predict_rows(
                sample.task,
                state.model,
                sample.preprocessing,
                features.head(rows),
                sample.subject.device,
                kind_of_rows(job.rows),
            )
            difference = float(
                (abs(score(features.head(rows)) - direct) / kind_of_rows(job.rows).answer_scale(direct)).max()
            )
            if not difference <= EXPORT_TOLERANCE:
                evidence = f"exported and direct predictions of {rows} rows differ by {difference}"
                return Outcome("fail", evidence, difference, EXPORT_TOLERANCE)
    return Outcome("pass", f"exported and reloaded: 1 and {len(features)} rows are predicted as before")


def _features(job_and_sample: JobAndSample) -> pd.DataFrame:
    return job_and_sample[1].rows[list(job_and_sample[0].rows.features)].head(forward_rows(job_and_sample))


def _predicted(job_and_sample: JobAndSample, features: pd.DataFrame) -> np.ndarray:
    sample = job_and_sample[1]
    model, device = sample.subject.model(), sample.subject.device
    return predict_rows(
        sample.task, model, sample.preprocessing, features, device, kind_of_rows(job_and_sample[0].rows)
    )
