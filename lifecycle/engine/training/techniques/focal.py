"""Focal loss: rows that the network already has right count less (Lin et al. 2017, arXiv:1708.02002).

A row's loss l is multiplied by (1 - p)^gamma, where p = exp(-l) is the probability that the network gives the row's
label; the gradient goes through the factor, as in the paper. p is read off the loss and not off `predict`, so that it
has all its digits where p is near 1. The paper's alpha is training.class_weights.

Such a network is not sure enough by design. What its best outputs mean is known: q stands for the probability
h(q) / (h(q) + h(1 - q)) with 1 / h(q) = (1 - q)^gamma / q - gamma (1 - q)^(gamma - 1) log q, the q that is best for a
row of that probability (Charoenphakdee et al. 2021, arXiv:2011.09172).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Nearer to 0 and 1 a float64 has few digits of the logarithms' difference.
_EDGE = 1e-12


def focal(losses: Tensor, gamma: float) -> Tensor:
    """Losses `(N,)` of logarithms of probabilities, each times (1 - p)^gamma."""
    losses = losses.float()
    # Below it the factor is constant: at a loss of 0 and gamma below 1 its gradient would be infinite.
    wrong = (-torch.expm1(-losses)).clamp(min=torch.finfo(torch.float32).tiny)
    return losses * wrong**gamma


def class_probabilities(outputs: np.ndarray, gamma: float) -> np.ndarray:
    """What the probabilities of a network that was trained with gamma stand for, `(N,)`."""
    q = np.clip(np.asarray(outputs, dtype=np.float64), _EDGE, 1 - _EDGE)
    return 1 / (1 + np.exp(_pull(q, gamma) - _pull(1 - q, gamma)))


def _pull(q: np.ndarray, gamma: float) -> np.ndarray:
    """Logarithm of 1 / h(q)."""
    return (gamma - 1) * np.log1p(-q) + np.log((1 - q) / q - gamma * np.log(q))
