"""A trained stage on the validation split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.training.judging.references import (
    MOST_ROWS,
    Asking,
    OwnRows,
    ReferenceRows,
    limited,
    measure_references,
)
from trainworthy.lifecycle.engine.training.judging.rise import Judge, constant_answers, own_rise
from trainworthy.lifecycle.engine.training.judging.tensors import MOST_POINT_ROWS, point_rows, tensor_rows
from trainworthy.lifecycle.engine.training.prepare import Prepared, to_train_data
from trainworthy.lifecycle.engine.training.random_state import undisturbed
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.engine.training.techniques.focal import class_probabilities
from trainworthy.lifecycle.gates.references_check import ENOUGH_UPDATES, SMALLEST_SHARE
from trainworthy.lifecycle.leakage.unreviewed import measure_unreviewed
from trainworthy.lifecycle.plan import stage_rows
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import LINEAR, References, UnreviewedInputs
from trainworthy.lifecycle.scoring import as_array, chunk_rows, predict_rows
from trainworthy.lifecycle.task import Task
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of
from trainworthy.lifecycle.tasks.metric import value
from trainworthy.lifecycle.wording import counted


def validate(job: TrainJob, prepared: Prepared, state: TrainState, device: str) -> tuple[dict[str, float], References]:
    """Metrics on the validation split, and what references beside the network show of it.

    Every row counts once. What a focal loss and the training's weights did to the answers is taken out.
    """
    kind, rows = kind_of_rows(job.rows), read_rows(job.validation_file, job.rows)
    labels, answers = kind.checked(rows[job.rows.label].to_numpy(), _answers(job, prepared, state, rows, device))
    prior = kind.prior(labels_of(job.rows, prepared.rows))
    metrics = {
        "val_loss": float(kind.row_loss(labels, answers).mean()),
        f"val_{kind.score}": value(kind.metrics[kind.score], labels, kind.statistics(labels, answers)),
        "val_loss_of_prior": float(kind.row_loss(labels, constant_answers(prior, len(labels))).mean()),
    }
    asking = _asking(job, prepared, rows, labels, answers, within=True)
    if not job.rows.split_by_time and not _tells_within(asking):
        asking = _asking(job, prepared, rows, labels, answers, within=False)
    own = _on_own_rows(job, prepared, state, asking, len(rows), device)
    # Full has too many rows to fit all references on; fewer updates tell nothing of a network that is behind them.
    nonlinear = job.stage != "full"
    compare_network = nonlinear and state.step >= ENOUGH_UPDATES
    return metrics, measure_references(
        asking, answers, prior, own, nonlinear=nonlinear, compare_network=compare_network
    )


def _tells_within(asking: Asking) -> bool:
    """Whether the rows of a group tell something that counts: a fault within groups is seen there alone."""
    arm = asking.measure_on_validation(LINEAR)
    return arm is not None and arm.rise.low > 0 and arm.rise.value >= SMALLEST_SHARE * asking.judge.entropy


def _asking(
    job: TrainJob, prepared: Prepared, rows: pd.DataFrame, labels: np.ndarray, answers: np.ndarray, *, within: bool
) -> Asking:
    """References beside the network's answers to the validation rows, each fitted on as many as the stage has.

    `within`: rows are exchanged within their groups, and not among all.
    """
    kind, trained_rows, seed = kind_of_rows(job.rows), _trained_rows(job, prepared), job.training.seed

    def of_tensors() -> ReferenceRows | None:
        if len(kind.answer_shape) == 3:
            # Of masks few rows have as many points as a reference is fitted on.
            stage = limited(trained_rows, job.rows, MOST_POINT_ROWS, seed)
            few = to_train_data(prepared.task, stage.iloc[:1], prepared.preprocessing, job, "cpu")
            height, width, _ = kind.answer_shape
            points = tuple(few.targets.shape[1:])
            return point_rows(prepared.task, prepared.preprocessing, stage, rows, job.rows, points, (height, width))
        if len(kind.answer_shape) > 1:
            return None
        stage = limited(trained_rows, job.rows, MOST_ROWS, seed)
        return tensor_rows(prepared.task, prepared.preprocessing, stage, rows, job.rows)

    judge = Judge(kind, labels, rows[job.rows.group].to_numpy(), seed, within)
    return Asking(
        judge, answers, ReferenceRows(trained_rows, rows, job.rows), min(len(trained_rows), len(rows) // 2), of_tensors
    )


def _on_own_rows(
    job: TrainJob, prepared: Prepared, state: TrainState, asking: Asking, most: int, device: str
) -> OwnRows:
    """What the network shows of about `most` of the rows that it learned from."""
    kind = kind_of_rows(job.rows)
    learned_from = limited(asking.columns.stage, job.rows, most, job.training.seed)
    answers = _answers(job, prepared, state, learned_from, device)
    # A row without a finite answer was skipped in training: nothing was learned from it.
    answered = np.isfinite(answers).reshape(len(answers), -1).all(axis=1)
    if not answered.any():
        return OwnRows()
    labels, answers = kind.checked(learned_from[job.rows.label].to_numpy()[answered], answers[answered])
    groups = learned_from[job.rows.group].to_numpy()[answered]
    constant = constant_answers(kind.prior(labels), len(labels))
    return OwnRows(
        own_rise(Judge(kind, labels, groups, job.training.seed, asking.judge.within), answers),
        float(kind.row_loss(labels, answers).mean()),
        float(kind.row_loss(labels, constant).mean()),
    )


def _answers(job: TrainJob, prepared: Prepared, state: TrainState, rows: pd.DataFrame, device: str) -> np.ndarray:
    """Answers to rows, `(N, ...)`."""
    features = rows[list(job.rows.features)]
    answers = predict_rows(prepared.task, state.model, prepared.preprocessing, features, device, kind_of_rows(job.rows))
    return as_trained_for(kind_of_rows(job.rows), answers, prepared.raised, job.training.focal_gamma)


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
    # Each is shuffled up to twenty times, which takes a while where inputs are files.
    say(f"{job.stage}: measuring what the network gains from {counted(len(job.unreviewed), 'unreviewed input')}")
    return measure_unreviewed(
        lambda rows: predict_rows(prepared.task, state.model, prepared.preprocessing, rows, device, kind),
        _trained_rows(job, prepared), read_rows(job.validation_file, job.rows), job.rows.features, job.unreviewed,
        job.rows.label, job.training.seed, kind,
    )  # fmt: skip


def _trained_rows(job: TrainJob, prepared: Prepared) -> pd.DataFrame:
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
