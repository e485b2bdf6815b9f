"""One batch through everything that a run will do: train, validate, checkpoint, resume, export, reload, predict."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from lifecycle.artifact import load_artifact, write_artifact
from lifecycle.errors import TrainworthyError
from lifecycle.golden import draw_requests
from lifecycle.jobs import PreflightJob
from lifecycle.preflight.check import Check, Found
from lifecycle.preflight.sample import Sample
from lifecycle.task import told_of
from lifecycle.training.checkpoint import load_checkpoint, parameters_sha256, save_checkpoint
from lifecycle.training.loop import train_step
from lifecycle.training.scoring import predict_rows

# The exported graph may fuse operations; float32 probabilities then differ in the last digits.
EXPORT_TOLERANCE = 1e-4
UNCALIBRATED = {"slope": 1.0, "intercept": 0.0}


def end_to_end(seen: tuple[PreflightJob, Sample]) -> Found:
    """Run the batch; whatever a use case's code raises becomes the evidence, with the part where it happened."""
    job, sample = seen
    times: dict[str, float] = {}
    part = "train"
    try:
        with tempfile.TemporaryDirectory() as folder:
            for part, run in _parts(job, sample, Path(folder)):
                started = time.perf_counter()
                run()
                times[part] = time.perf_counter() - started
    except (TrainworthyError, Exception) as error:
        return Found("fail", f"{part}: {_told(error, job)}"[:500], fix=_FIXES[part])
    return Found("pass", ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items()))


class UnmetError(ValueError):
    """What the batch should have shown and did not; names figures of the whole batch, never a value of a row."""


def _told(error: Exception, job: PreflightJob) -> str:
    if isinstance(error, UnmetError):
        return str(error)
    return told_of(error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features))


_FIXES = {
    "train": "try model.py on a few rows: forward takes the dict of to_tensors, loss_fn gives one loss a row",
    "validate": "predict must give one finite probability in [0, 1] a row",
    "checkpoint": "every parameter and buffer must be part of state_dict() and finite",
    "export": "torch.export must trace forward: no branches on values, no Python state, batch size left free; "
    "and golden requests, whose columns are drawn apart from each other and sensitive ones blank, need an answer",
}


def _parts(job: PreflightJob, sample: Sample, folder: Path):
    """The parts by name, in order; each raises if it does not hold."""
    import torch

    subject, device = sample.subject, sample.subject.device
    state = subject.state()
    size = min(job.training.batch_size, len(sample.rows))
    features = sample.rows[list(job.rows.features)].head(size)

    def train() -> None:
        loss, _, norm = train_step(state, sample.data, torch.arange(size, device=device), subject.recipe)
        _require(abs(loss) < float("inf"), f"the loss is {loss}")
        _require(0 < norm < float("inf"), f"the gradient norm is {norm}")

    def validate() -> None:
        found = predict_rows(sample.task, state.model, sample.preprocessing, features, device)
        _require(found.shape == (size,), f"predict gave shape {found.shape} for {size} rows")
        _require(bool(((found >= 0) & (found <= 1)).all()), f"probabilities from {found.min()} to {found.max()}")

    def checkpoint() -> None:
        saved = save_checkpoint(folder, "preflight", state)
        again = subject.state()
        load_checkpoint(Path(saved.path), "preflight", again, saved.sha256)
        equal = parameters_sha256(again.model) == parameters_sha256(state.model)
        _require(equal, "the weights differ after saving and loading")

    def export() -> None:
        # With an example of one row, torch.export would fix the batch size to one.
        several = sample.rows[list(job.rows.features)].head(max(2, size))
        artifact, sha256 = write_artifact(
            folder / "artifact",
            task_folder=Path(job.use_case_folder),
            model=state.model,
            example=sample.task.to_tensors(several, sample.preprocessing),
            preprocessing=sample.preprocessing,
            calibration=UNCALIBRATED,
            requests=draw_requests(several, job.rows.sensitive, job.training.seed),
        )
        score = load_artifact(Path(artifact), sha256)
        direct = predict_rows(sample.task, state.model, sample.preprocessing, features, device)
        for rows in (1, size):
            difference = abs(score(features.head(rows)) - direct[:rows]).max()
            _require(difference <= EXPORT_TOLERANCE, f"exported and direct predictions differ by {difference}")

    return (("train", train), ("validate", validate), ("checkpoint", checkpoint), ("export", export))


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UnmetError(otherwise)


CHECKS = (
    Check(
        "one_batch.end_to_end",
        question="Does one batch go through training, validation, a checkpoint and the export?",
        symptom="the run breaks after its first epoch, when it validates, saves or exports for the first time",
        cause="a part of model.py that the first forward pass does not reach",
        fix="see the part that the evidence names",
        look=end_to_end,
    ),
)
