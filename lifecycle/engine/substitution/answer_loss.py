"""A kind's own loss of each row, as torch computes it of what predict gives, or of a plain network's outputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trainworthy.lifecycle.engine.training.state import LossFn
from trainworthy.lifecycle.tasks import Kind

# As the kinds clip probabilities before they take the logarithm.
SMALLEST_PROBABILITY = 1e-7
NUMBERS = ("squared_error", "pinball")


def label_scale(labels: np.ndarray) -> float:
    """Standard deviation of labels that are numbers, so that a loss of them is near 1 in any unit."""
    return float(np.std(labels)) or 1.0


def answer_loss(kind: Kind, levels: tuple[float, ...], scale: float) -> LossFn:
    """What gives the kind's loss of each row, `(N,)`, of answers as predict gives them, and of targets.

    `levels` are the quantiles that are answered. Losses of numbers are told in units of `scale`.
    """

    def loss(answers: Tensor, targets: Tensor) -> Tensor:
        if kind.loss in NUMBERS:
            return _number_loss(answers, targets, levels, scale)
        clipped = answers.float().clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
        if targets.is_floating_point():
            return _row_means(-torch.where(targets > 0.5, clipped, 1 - clipped).log())
        axis = kind.class_axis % clipped.dim()
        if axis == 1 and clipped.shape[2:] != targets.shape[1:]:
            # Answers to a mask may be coarser than it is, and count at the nearest points.
            clipped = functional.interpolate(clipped, size=targets.shape[1:], mode="nearest")
        of_label = clipped.gather(axis, targets.clamp(min=0).unsqueeze(axis)).squeeze(axis)
        return _row_means(-of_label.log(), targets >= 0)

    return loss


def output_loss(kind: Kind, levels: tuple[float, ...], scale: float) -> LossFn:
    """The same of a plain network's outputs: logits, or numbers in the labels' own unit."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if kind.loss in NUMBERS:
            return _number_loss(outputs, targets, levels, scale)
        if targets.is_floating_point():
            return _row_means(functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none"))
        losses = functional.cross_entropy(outputs.movedim(kind.class_axis, 1), targets, reduction="none")
        return _row_means(losses, targets >= 0)

    return loss


def answers_of(kind: Kind, outputs: Tensor) -> Tensor:
    """The answers that a plain network's outputs stand for."""
    if kind.loss in NUMBERS:
        return outputs.sort(dim=1).values if outputs.dim() > 1 else outputs
    one_class = kind.row_classes or len(kind.answer_shape) > 1
    return outputs.softmax(dim=kind.class_axis) if one_class and outputs.dim() > 1 else outputs.sigmoid()


def _number_loss(answers: Tensor, targets: Tensor, levels: tuple[float, ...], scale: float) -> Tensor:
    if not levels:
        return ((answers - targets) / scale).square()
    above = (targets.unsqueeze(1) - answers) / scale
    shares = torch.tensor(levels, device=answers.device)
    return torch.maximum(shares * above, (shares - 1) * above).mean(dim=1)


def _row_means(losses: Tensor, known: Tensor | None = None) -> Tensor:
    """Means over the places of each row, of the known ones alone."""
    flat = losses.reshape(len(losses), -1)
    if known is None:
        return flat.mean(dim=1)
    counted = known.reshape(len(losses), -1)
    return torch.where(counted, flat, 0.0).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
