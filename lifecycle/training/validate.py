"""A trained stage on the validation split."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lifecycle.data.rows import read_rows
from lifecycle.jobs import Learned, TrainJob, UnreviewedInputs
from lifecycle.training.plan import stage_rows
from lifecycle.training.prepare import Prepared, to_train_data
from lifecycle.training.scoring import chunk_rows, predict_rows
from lifecycle.training.state import TrainData, TrainState
from lifecycle.training.techniques.focal import class_probabilities
from lifecycle.training.watching.progressive import undisturbed

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from lifecycle.task import Task


def validate(
    job: TrainJob, prepared: Prepared, state: TrainState, device: str
) -> tuple[dict[str, float], Learned | None]:
    """Metrics on the validation split, and from the pilot on whether the network has learned something.

    Every row counts once. What a focal loss and the training's weights did to the probabilities is taken out.
    """
    import numpy as np

    from lifecycle.evaluation.baselines import fit_baselines
    from lifecycle.evaluation.calibration import apply_platt
    from lifecycle.evaluation.metrics import auc, log_loss
    from lifecycle.training.judging.learned import cross_fitted_linear, measure_learned, refitted_linear

    rows = read_rows(job.validation_file, job.rows)
    labels, groups = rows[job.rows.label].to_numpy(), rows[job.rows.group].to_numpy()
    probabilities = predict_rows(
        prepared.task, state.model, prepared.preprocessing, rows[list(job.rows.features)], device
    )
    if job.training.focal_gamma is not None:
        probabilities = class_probabilities(probabilities, job.training.focal_gamma)
    if prepared.log_odds_shift:
        probabilities = apply_platt(probabilities, {"slope": 1.0, "intercept": -prepared.log_odds_shift})
    prior = float(prepared.rows[job.rows.label].mean())
    metrics = {
        "val_loss": float(log_loss(labels, probabilities).mean()),
        "val_auc": float(auc(labels, probabilities)),
        "val_loss_of_prior": float(log_loss(labels, np.full(len(labels), prior)).mean()),
    }
    if job.stage == "smoke":
        return metrics, None
    columns, seen, seed = list(job.rows.features), _seen(job, prepared), job.training.seed
    most = min(len(seen), len(rows) // 2)
    reference, refits = (
        cross_fitted_linear(rows, job.rows, seed, most),
        refitted_linear(seen, job.rows, rows, seed, most),
    )
    linear = None
    if job.stage == "pilot":
        linear = fit_baselines(seen, columns, job.rows.label, ("linear",), seed)["linear"](rows[columns])
    return metrics, measure_learned(labels, probabilities, reference, groups, prior, seed, refits, linear)


def unreviewed_inputs(job: TrainJob, prepared: Prepared, state: TrainState, device: str) -> UnreviewedInputs | None:
    """What the inputs that nobody has reviewed do for the trained network; None if there are none, and at smoke."""
    from lifecycle.training.judging.unreviewed import measure_unreviewed

    if not job.unreviewed or job.stage == "smoke":
        return None
    return measure_unreviewed(
        lambda rows: predict_rows(prepared.task, state.model, prepared.preprocessing, rows, device),
        _seen(job, prepared), read_rows(job.validation_file, job.rows), job.rows.features, job.unreviewed,
        job.rows.label, job.training.seed,
    )  # fmt: skip


def _seen(job: TrainJob, prepared: Prepared) -> pd.DataFrame:
    """As many rows as the stage has seen: a pause of one run over all rows has not come to the others."""
    if job.stages.mode == "restart":
        return prepared.rows
    labels = prepared.rows[job.rows.label].to_numpy()
    return prepared.rows.iloc[stage_rows(labels, job.stages.fraction(job.stage), job.training.seed)]


def make_validation_loss(job: TrainJob, prepared: Prepared, model: torch.nn.Module, device: str) -> Callable[[], float]:
    """What gives the log loss of the model, as it is then, on the validation split, and draws no random number.

    The rows are made to tensors once. What the training did to the probabilities is taken out, as in validate.
    """
    rows = read_rows(job.validation_file, job.rows)
    data = to_train_data(prepared.task, rows, prepared.preprocessing, job, device)
    return loss_of(prepared.task, model, data, prepared.log_odds_shift, job.training.focal_gamma)


def loss_of(
    task: Task, model: torch.nn.Module, data: TrainData, log_odds_shift: float = 0.0, gamma: float | None = None
) -> Callable[[], float]:
    """What gives the log loss of the model, as it is then, on rows that lie on its device. `gamma`: of a focal loss."""
    import torch

    from lifecycle.evaluation.calibration import apply_platt
    from lifecycle.evaluation.metrics import log_loss

    shift, chunk = {"slope": 1.0, "intercept": -log_odds_shift}, chunk_rows(data.inputs)

    def loss() -> float:
        parts, labels = [], data.targets.double().cpu().numpy()
        with undisturbed(model), torch.no_grad():
            for chosen in torch.arange(len(data.targets), device=data.device).split(chunk):
                outputs = model({name: tensor[chosen] for name, tensor in data.inputs.items()})
                parts.append(task.predict(outputs).double().reshape(-1))
        found = torch.cat(parts).cpu().numpy()
        found = found if gamma is None else class_probabilities(found, gamma)
        return float(log_loss(labels, apply_platt(found, shift)).mean())

    return loss
