"""Where does the declared loss lead? Outputs are moved down it, and the kind's own loss judges the answers they give.

Without the network: each row's outputs follow their own gradient, so that weights of rows or classes, a wish for sparse
outputs or a rate change nothing of the direction. What training lowers must not make answers worse than both those of
the beginning and the best answer that is the same for all rows: the first alone would take a trained start that loses
some certainty (label smoothing, a teacher) for a fault. A loss may be below 0: a density, an energy, a reward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free_outputs import before, link_of, same
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.best import downhill
from trainworthy.lifecycle.engine.training.state import LossFn
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.scoring import as_array
from trainworthy.lifecycle.tasks import Kind

# Of Rprop, from steps of the outputs' own spread on: what goes on in one direction comes 390 times as far.
STEPS = 24
# Standard errors of the mean over rows, paired by row.
MEASURABLE = 3.0
WRONG_WAY = (
    "loss_fn has the wrong sign or rewards another label than the row's own, or predict turns the outputs round",
    "minimise what falls as answers come right: minus the log-likelihood, minus a reward; let predict give the label "
    "that loss_fn compares outputs with",
)


@dataclass(frozen=True)
class Descent:
    """Mean losses of the same rows: the declared one and the kind's own (`name`), each before and after; and the kind's
    own of the best answer that is the same for all rows. `worse`: after is measurably above before and above that."""

    name: str
    declared: tuple[float, float]
    own: tuple[float, float]
    constant: float
    rows: int
    worse: bool

    def __str__(self) -> str:
        return (
            f"as the declared loss falls ({self.declared[0]:.4g} to {self.declared[1]:.4g}), the {self.name} of the "
            f"answers rises from {self.own[0]:.4g} to {self.own[1]:.4g} on {self.rows} rows; one answer for all has "
            f"{self.constant:.4g}"
        )


def descend(
    loss_fn: LossFn, predict: Callable[[Tensor], Any], kind: Kind, outputs: Tensor, targets: Tensor
) -> Descent | None:
    """Move `outputs` (N, ...) down the loss of `targets` (N, ...). None where the loss takes no free outputs or does
    not fall, where predict gives no answers of the kind, or where one answer has the least loss for all."""
    link, size = link_of([outputs]), max(float(outputs.std()), 1e-3 * float(outputs.abs().max()), 1e-3)
    start = before(link, outputs) if link is not same else outputs
    start = outputs * 0 if start is None else start

    def losses(free: Tensor) -> Tensor:
        return loss_fn(link(free), targets)

    end = downhill(losses, start, size if link is same else 1.0, STEPS)
    if end is None:
        return None
    with torch.no_grad():
        declared = [float(losses(free).float().mean()) for free in (start, end)]
        if not declared[1] < declared[0]:
            return None
        try:
            given = [kind.of_predict(as_array(predict(link(free)))) for free in (start, end)]
            labels = kind.checked_labels(targets.cpu().numpy())
            first, last = (kind.row_loss(*kind.checked(labels, answers)) for answers in given)
        except (EvaluationError, RuntimeError, ValueError, TypeError):
            return None
    constant = kind.prior(labels)
    of_constant = kind.row_loss(labels, np.broadcast_to(constant, (len(labels), *constant.shape)).copy())
    return Descent(
        kind.loss.replace("_", " "), (declared[0], declared[1]), (float(first.mean()), float(last.mean())),
        float(of_constant.mean()), len(labels), worse=_above(last, first) and _above(last, of_constant),
    )  # fmt: skip


def _above(losses: np.ndarray, others: np.ndarray) -> bool:
    """Whether the mean is measurably above the others', paired by row."""
    off = losses - others
    return bool(np.isfinite(off).all() and off.mean() > MEASURABLE * off.std(ddof=1) / len(off) ** 0.5)


def leads_away(subject: Subject, outputs: Tensor, targets: Tensor) -> Outcome | None:
    """The failure of a loss that leads away from the labels; None where it does not, or cannot be held against them."""
    if subject.kind is None or subject.predict is None:
        return None
    if subject.claims.rows == "together" or subject.claims.labels == "unused":
        return None
    found = descend(subject.recipe.loss_fn, subject.predict, subject.kind, outputs, targets)
    if found is None or not found.worse:
        return None
    return Outcome("fail", str(found), found.own[1], found.own[0], *WRONG_WAY)
