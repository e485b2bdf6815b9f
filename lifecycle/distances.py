"""Sizes of a change between counts: each takes blocks (B, K) and a reference (B, K) or (K,), and gives (B,)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def psi(block: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Population stability index: sum of (p - q) × ln(p / q); half a row is added to each bin.

    Without any change it is expected at (K - 1) × (1 / rows + 1 / reference rows), which is taken off.
    """
    import numpy as np

    p, q = _smooth(block), _smooth(reference)
    used = ((block > 0) | (reference > 0)).sum(axis=-1)
    noise = (used - 1) * (1 / np.maximum(block.sum(-1), 1) + 1 / np.maximum(reference.sum(-1), 1))
    return np.maximum(((p - q) * np.log(p / q)).sum(axis=-1) - noise, 0.0)


def jensen_shannon(block: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Jensen–Shannon divergence in bits, in [0, 1]."""
    import numpy as np

    p, q = _smooth(block), _smooth(reference)
    middle = (p + q) / 2
    return ((p * np.log2(p / middle) + q * np.log2(q / middle)) / 2).sum(axis=-1)


def null_change(block: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Change of the last bin's share, without its sign."""
    import numpy as np

    return np.abs(shares(block)[..., -1] - shares(reference)[..., -1])


def greatest_gain(block: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """By how much the share of a single bin grew at most."""
    return (shares(block) - shares(reference)).max(axis=-1)


def volume_change(block: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """|ln| of the ratio of rows a unit; the counts are rows and units."""
    import numpy as np

    per_unit = [(values[..., 0] + 0.5) / np.maximum(values[..., 1], 1) for values in (block, reference)]
    return np.abs(np.log(per_unit[0] / per_unit[1]))


def shares(counts: np.ndarray) -> np.ndarray:
    """Counts over their sum along the last axis; 0 where there are none."""
    import numpy as np

    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


def _smooth(counts: np.ndarray) -> np.ndarray:
    return (counts + 0.5) / (counts.sum(axis=-1, keepdims=True) + 0.5 * counts.shape[-1])
