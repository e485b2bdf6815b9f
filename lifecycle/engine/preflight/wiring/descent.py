"""Where does the declared loss lead? Outputs are moved down it, and the kind's own loss judges the answers they give.

Without the network: each row's outputs follow their own gradient, so that weights of rows or classes, a wish for sparse
outputs or a rate change nothing of the direction. What training lowers must not make answers worse than both those of
the beginning and the best answer that is the same for all rows, and better nowhere on the way: the first alone would
take a trained start that loses some certainty (label smoothing, a teacher) for a fault. A loss may be below 0: a
density, an energy, a reward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free_outputs import Link, before, link_of, probed, same
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.best import downhill
from trainworthy.lifecycle.engine.training.state import LossFn
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.gates.check import Outcome, ProbeError
from trainworthy.lifecycle.scoring import as_array
from trainworthy.lifecycle.tasks import Kind

# Of Rprop, as many as settle numbers of any size (numbers.py). A loss that leads away makes answers worse after 1, 2, 4
# and all of them. One that leads to the labels makes them better at some of these, although a step may be too long for
# a column of another unit, or the end so sure that a predict which is not quite the loss's own link is far off there
# (masks that are brought to another size).
STEPS = 150
# Outputs that are moved: 64 rows of 12 classes at 90 x 120 points took a minute. Fewest rows, since they are compared.
MOST_NUMBERS, FEWEST_ROWS = 2**20, 16
# Standard errors of the mean over rows, or of the share of rows, paired by row.
MEASURABLE = 3.0
WRONG_WAY = (
    "loss_fn has the wrong sign or rewards another label than the row's own, or predict turns the outputs round",
    "minimise what falls as answers come right: minus the log-likelihood, minus a reward; let predict give the label "
    "that loss_fn compares outputs with",
)


@dataclass(frozen=True)
class Descent:
    """Mean losses of the same rows: the declared one and the kind's own (`name`), each before and after; and the kind's
    own of the best answer that is the same for all rows. `worse`: after is measurably above before and above that, and
    nowhere on the way the answers were better."""

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
    not fall, or where predict gives no answers of the kind."""
    loss_fn, predict = probed(loss_fn), probed(predict)
    # Each row goes its own way.
    few = max(FEWEST_ROWS, MOST_NUMBERS // max(1, outputs[0].numel()))
    outputs, targets = outputs[:few], targets[:few]
    ways = []
    # Numbers may lie between 0 and 1 by chance.
    for link in (link_of([outputs]),) if kind.classes else (same, link_of([outputs])):
        start = before(link, outputs) if link is not same else outputs
        start = outputs * 0 if start is None else start
        path = _path(lambda free, link=link: loss_fn(link(free), targets), start, _size(outputs, link))
        ways.append((link, start, path))
        if path.steps == STEPS:
            break
    # A loss of which no way goes on to the end has none.
    link, start, path = max(ways, key=lambda way: way[2].steps)
    if not path.steps:
        return None
    try:
        return _judged([link(free) for free in (start, *path.looks)], loss_fn, predict, kind, targets)
    except (EvaluationError, ProbeError):
        return None


def _size(outputs: Tensor, link: Link) -> float | Tensor:
    """Of a first step: the spread over rows of each output, since columns may be of different units."""
    if link is not same:
        return 1.0
    spread, largest = outputs.std(0, keepdim=True), float(outputs.abs().max())
    return torch.where(spread > 1e-3 * largest, spread, max(float(outputs.std()), 1e-3 * largest, 1e-3))


class _Path(NamedTuple):
    """How many steps have a loss that is finite, and the free numbers after 1, 2, 4 … and all of them."""

    steps: int
    looks: list[Tensor]


def _path(losses: Callable[[Tensor], Tensor], start: Tensor, size: float | Tensor) -> _Path:
    """The way down; of no step if the loss takes no such numbers. All steps of large masks would take gigabytes."""
    steps, looks, before_last, last = 0, list[Tensor](), None, None
    for steps, free in enumerate(islice(downhill(losses, start, size), STEPS), 1):
        if last is not None and (steps - 1).bit_count() == 1:
            looks.append(last)
        before_last, last = last, free
    if steps == STEPS:
        return _Path(steps, looks if last is None else [*looks, last])
    # Without end: the loss of the last ones is not finite.
    if steps > 1 and (steps - 1).bit_count() == 1:
        looks.pop()
    return _Path(max(0, steps - 1), looks if before_last is None else [*looks, before_last])


def _judged(
    outputs: list[Tensor], loss_fn: LossFn, predict: Callable[[Tensor], Any], kind: Kind, targets: Tensor
) -> Descent | None:
    """What the declared loss and the kind's own say of outputs from the first to the last."""
    with torch.no_grad():
        declared = [float(loss_fn(some, targets).float().mean()) for some in (outputs[0], outputs[-1])]
        if not declared[1] < declared[0]:
            return None
        labels = kind.checked_labels(targets.cpu().numpy())
        first, *later = (kind.row_loss(labels, _answers(kind, labels, predict(some))) for some in outputs)
    constant, last = kind.prior(labels), later[-1]
    never_better = all(losses.mean() > first.mean() for losses in later)
    of_constant = kind.row_loss(labels, np.broadcast_to(constant, (len(labels), *constant.shape)).copy())
    return Descent(
        kind.loss.replace("_", " "), (declared[0], declared[1]), (float(first.mean()), float(last.mean())),
        float(of_constant.mean()), len(labels),
        worse=never_better and _above(last, first) and _above(last, of_constant),
    )  # fmt: skip


def _answers(kind: Kind, labels: np.ndarray, given: Any) -> np.ndarray:
    """Answers of the kind; of numbers also quantiles whose outputs have passed each other."""
    answers = kind.of_predict(as_array(given))
    if not kind.classes and answers.ndim == 2:
        answers = np.sort(answers, axis=1)
    return kind.checked(labels, answers)[1]


def _above(losses: np.ndarray, others: np.ndarray) -> bool:
    """Whether the mean is above the others', measurably by itself or by how many rows are above, paired by row.

    Of a loss without end some rows go so far that no mean of few rows is measurable.
    """
    off = losses - others
    by_mean = off.mean() > MEASURABLE * off.std(ddof=1) / len(off) ** 0.5
    by_rows = off.mean() > 0 and (off > 0).mean() > 0.5 + MEASURABLE * 0.5 / len(off) ** 0.5
    return bool(np.isfinite(off).all() and (by_mean or by_rows))


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
