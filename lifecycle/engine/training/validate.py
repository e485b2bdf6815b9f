"""A trained stage on the validation split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.training.judging.learned import (
    constant_answers,
    cross_fitted_linear,
    fitted_linear,
    measure_learned,
    own_rise,
    refitted_linear,
)
from trainworthy.lifecycle.engine.training.prepare import Prepared, to_train_data
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.engine.training.techniques.focal import class_probabilities
from trainworthy.lifecycle.engine.training.watching.progressive import undisturbed
from trainworthy.lifecycle.leakage.unreviewed import measure_unreviewed
from trainworthy.lifecycle.plan import stage_rows
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import Learned, UnreviewedInputs
from trainworthy.lifecycle.scoring import as_array, chunk_rows, predict_rows
from trainworthy.lifecycle.task import Task
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of
from trainworthy.lifecycle.tasks.metric import value


def validate(
    job: TrainJob, prepared: Prepared, state: TrainState, device: str
) -> tuple[dict[str, float], Learned | None]:
    """Metrics on the validation split, and from the pilot on whether the network has learned something.

    Every row counts once. What a focal loss and the training's weights did to the answers is taken out.
    """
    kind, rows = kind_of_rows(job.rows), read_rows(job.validation_file, job.rows)
    groups = rows[job.rows.group].to_numpy()
    labels, answers = kind.checked(rows[job.rows.label].to_numpy(), _answers(job, prepared, state, rows, device))
    prior = kind.prior(labels_of(job.rows, prepared.rows))
    metrics = {
        "val_loss": float(kind.row_loss(labels, answers).mean()),
        f"val_{kind.score}": value(kind.metrics[kind.score], labels, kind.statistics(labels, answers)),
        "val_loss_of_prior": float(kind.row_loss(labels, constant_answers(prior, len(labels))).mean()),
    }
    if job.stage == "smoke":
        return metrics, None
    seen, seed = _seen(job, prepared), job.training.seed
    most = min(len(seen), len(rows) // 2)
    reference = cross_fitted_linear(rows, job.rows, seed, most)
    refits = refitted_linear(seen, job.rows, rows, seed, most)
    linear = fitted_linear(seen, job.rows, rows, seed) if job.stage == "pilot" else None
    learned_from = _few(kind, seen, job, len(rows))
    own_answers = _answers(job, prepared, state, learned_from, device)
    # A row without a finite answer was skipped in training: nothing was learned from it.
    answered = np.isfinite(own_answers).reshape(len(own_answers), -1).all(axis=1)
    own_labels, own_answers = kind.checked(learned_from[job.rows.label].to_numpy()[answered], own_answers[answered])
    own = own_rise(kind, own_labels, own_answers, learned_from[job.rows.group].to_numpy()[answered], seed)
    return metrics, measure_learned(kind, labels, answers, reference, groups, prior, seed, refits, linear, own)


def _answers(job: TrainJob, prepared: Prepared, state: TrainState, rows: pd.DataFrame, device: str) -> np.ndarray:
    """Answers to rows, `(N, ...)`."""
    features = rows[list(job.rows.features)]
    answers = predict_rows(prepared.task, state.model, prepared.preprocessing, features, device, kind_of_rows(job.rows))
    return as_trained_for(kind_of_rows(job.rows), answers, prepared.raised, job.training.focal_gamma)


def _few(kind: Kind, rows: pd.DataFrame, job: TrainJob, most: int) -> pd.DataFrame:
    """About `most` of the rows, stratified by label."""
    if len(rows) <= most:
        return rows
    strata = kind.strata(labels_of(job.rows, rows))
    return rows.iloc[stage_rows(strata, most / len(rows), job.training.seed)]


def as_trained_for(kind: Kind, answers: np.ndarray, raised: np.ndarray | None, gamma: float | None) -> np.ndarray:
    """Answers without what the training did to them: a focal loss of `gamma`, and `raised` (rows/weights.py)."""
    if gamma is not None:
        answers = class_probabilities(answers, gamma)
    return answers if raised is None else kind.without_weights(answers, raised)


def unreviewed_inputs(job: TrainJob, prepared: Prepared, state: TrainState, device: str) -> UnreviewedInputs | None:
    """What the inputs that nobody has reviewed do for the trained network; None if there are none, and at smoke."""
    if not job.unreviewed or job.stage == "smoke":
        return None
    kind = kind_of_rows(job.rows)
    return measure_unreviewed(
        lambda rows: predict_rows(prepared.task, state.model, prepared.preprocessing, rows, device, kind),
        _seen(job, prepared), read_rows(job.validation_file, job.rows), job.rows.features, job.unreviewed,
        job.rows.label, job.training.seed, kind,
    )  # fmt: skip


def _seen(job: TrainJob, prepared: Prepared) -> pd.DataFrame:
    """As many rows as the stage has seen: a pause of one run over all rows has not come to the others."""
    if job.stages.mode == "restart":
        return prepared.rows
    strata = kind_of_rows(job.rows).strata(labels_of(job.rows, prepared.rows))
    return prepared.rows.iloc[stage_rows(strata, job.stages.fraction(job.stage), job.training.seed)]


def make_validation_loss(job: TrainJob, prepared: Prepared, model: torch.nn.Module, device: str) -> Callable[[], float]:
    """What gives the loss of the model, as it is then, on the validation split, and draws no random number.

    The rows are made to tensors once. What the training did to the answers is taken out, as in validate.
    """
    rows = read_rows(job.validation_file, job.rows)
    data = to_train_data(prepared.task, rows, prepared.preprocessing, job, device)
    return loss_of(prepared.task, model, data, kind_of_rows(job.rows), prepared.raised, job.training.focal_gamma)


def loss_of(
    task: Task, model: torch.nn.Module, data: TrainData, kind: Kind, raised: np.ndarray | None = None,
    gamma: float | None = None,
) -> Callable[[], float]:  # fmt: skip
    """What gives the kind's loss of the model, as it is then, on rows that lie on its device, as in as_trained_for."""
    chunk = chunk_rows(data.inputs)

    def loss() -> float:
        parts, labels = [], kind.checked_labels(data.targets.cpu().numpy())
        with undisturbed(model), torch.no_grad():
            for chosen in torch.arange(len(data.targets), device=data.device).split(chunk):
                outputs = model({name: tensor[chosen] for name, tensor in data.inputs.items()})
                parts.append(kind.of_predict(as_array(task.predict(outputs))))
        answers = as_trained_for(kind, np.concatenate(parts), raised, gamma)
        return float(kind.row_loss(*kind.checked(labels, answers)).mean())

    return loss
