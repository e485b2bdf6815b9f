"""How far did a training lower its own loss since the weights that it began with?

Both are asked of the same rows in evaluation mode, so that the difference is paired: it is known far more surely than
the fall of a curve, whose every window has other rows. The curve of 24 updates on rows with 6 % positives does not fall
by 3 standard errors; the paired fall is known to a hundredth.
"""

from __future__ import annotations

import numpy as np
import torch

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.training.prepare import Prepared, seed_everything
from trainworthy.lifecycle.engine.training.random_state import random_kept, undisturbed
from trainworthy.lifecycle.engine.training.recipe import make_model
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.plan import stage_rows
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.results import Progress
from trainworthy.lifecycle.scoring import chunk_rows, predict_rows
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, mean_estimate
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of

# Of the stage's rows, at most: two forward passes, and known surely enough.
MOST_ROWS = 4096


def measure_progress(job: TrainJob, prepared: Prepared, state: TrainState, device: str) -> Progress | None:
    """The mean loss of the training's rows at its first weights, and its fall since, by group.

    None where the first weights cannot be made again, since the use case's script makes them; for too few groups; and
    where a row's loss is not finite, which other checks tell.
    """
    groups, labels = prepared.rows[job.rows.group].to_numpy(), labels_of(job.rows, prepared.rows)
    strata = kind_of_rows(job.rows).strata(labels)
    chosen = stage_rows(strata, min(1.0, MOST_ROWS / len(labels)), job.training.seed)
    if job.trainer is not None or len(np.unique(groups[chosen])) < MINIMUM_GROUPS:
        return None
    seed = job.training.seed
    before, now = (_losses(prepared, model, chosen) for model in (_untrained(job, prepared, state, seed), state.model))
    if not np.isfinite(before).all() or not np.isfinite(now).all():
        return None
    return Progress(
        first_loss=float(before.mean()),
        fall=mean_estimate(before - now, groups[chosen]),
        share_of_full=job.stages.fraction(job.stage),
        reweighted=is_reweighted(job, prepared),
        untrained_loss=_validation_loss(job, prepared, _untrained(job, prepared, state, seed + 1), device),
    )


def is_reweighted(job: TrainJob, prepared: Prepared) -> bool:
    """True if rows do not count alike in the loss that is trained, as they do in the curve and in what monitors see."""
    focal = job.training.focal_gamma is not None
    return prepared.data.weights is not None or bool(prepared.oversampled) or focal


def _untrained(job: TrainJob, prepared: Prepared, state: TrainState, seed: int) -> torch.nn.Module:
    """The model with the weights that a training of this seed begins with.

    Its buffers are those of now: the statistics of a batch norm move without any learning, and would count as a fall.
    """
    with random_kept(), torch.no_grad():
        seed_everything(seed)
        model = make_model(prepared.task, prepared.preprocessing, job.hyperparameters, job.training)
        model.to(next(iter(state.model.parameters())).device)
        now = dict(state.model.named_buffers())
        for name, buffer in model.named_buffers():
            # One that grows or goes away in forward is a cache, which makes itself anew.
            if name in now and now[name].shape == buffer.shape:
                buffer.copy_(now[name])
    return model


def _validation_loss(job: TrainJob, prepared: Prepared, model: torch.nn.Module, device: str) -> float:
    """Of the validation rows, as it is: calibrated, a ranking by luck would look like knowledge."""
    rows = read_rows(job.validation_file, job.rows)
    kind, features = kind_of_rows(job.rows), rows[list(job.rows.features)]
    predicted = predict_rows(prepared.task, model, prepared.preprocessing, features, device, kind)
    return float(kind.row_loss(*kind.checked(rows[job.rows.label].to_numpy(), predicted)).mean())


def _losses(prepared: Prepared, model: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    """The training's own loss of each row, weighted as it is trained on, shape `(N,)`, float64."""
    parts, chunk = [], chunk_rows(prepared.data.take(torch.from_numpy(rows[:1])).inputs)
    with undisturbed(model), torch.no_grad():
        for chosen in torch.from_numpy(rows).split(chunk):
            data = prepared.data.take(chosen).to(prepared.data.device)
            losses = prepared.task.loss_fn(model(data.inputs), data.targets).double().reshape(-1)
            parts.append(losses if data.weights is None else losses * data.weights)
    return torch.cat(parts).cpu().numpy()
