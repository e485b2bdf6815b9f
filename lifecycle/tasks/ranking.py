"""The area under the ROC curve with weights, and without each group in turn; exact, from two sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.tasks.probabilities import require_both_classes

if TYPE_CHECKING:
    import numpy as np


def auc_left_out(
    labels: np.ndarray, scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """AUC, and the exact AUC without each group, (G,): pairs lost are those with a row in the group."""
    import numpy as np

    require_both_classes(labels)
    weigh = np.ones(len(labels)) if weights is None else weights
    order = np.argsort(scores)
    ranked, codes = scores[order], codes[order]
    positive = np.where(labels == 1, weigh, 0.0)[order]
    negative = weigh[order] - positive
    below = _before(_starts(ranked), negative)
    above = positive.sum() - _before(_starts(ranked), positive)
    total, lost = float(positive @ below), np.bincount(codes, weights=positive * below + negative * above)
    # Pairs with both rows in the group were counted from both sides.
    lost -= _inside(ranked, positive, negative, codes)
    positives, negatives = (np.bincount(codes, weights=side) for side in (positive, negative))
    pairs = (positives.sum() - positives) * (negatives.sum() - negatives)
    left_out = np.divide(total - lost, pairs, out=np.full(len(lost), np.nan), where=pairs > 0)
    return float(total / (positives.sum() * negatives.sum())), left_out


def _inside(ranked: np.ndarray, positive: np.ndarray, negative: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Pairs of each group in order, both of whose rows are the group's, (G,); rows are given by rising score."""
    import numpy as np

    order = np.argsort(codes.astype(np.min_scalar_type(int(codes.max()))), kind="stable")
    codes, positive, negative = codes[order], positive[order], negative[order]
    firsts = _starts(codes)
    below = _before(_starts(ranked[order], codes), negative)
    # Less what lies before the group.
    before = np.append(0.0, np.cumsum(negative))[firsts]
    below -= np.repeat(before, np.diff(np.append(firsts, len(codes))))
    return np.bincount(codes, weights=positive * below)


def _starts(*values: np.ndarray) -> np.ndarray:
    """The places at which one of the values changes, the first among them."""
    import numpy as np

    return np.flatnonzero(np.append(True, np.logical_or.reduce([some[1:] != some[:-1] for some in values])))


def _before(starts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weight of `weights` before each place, (N,); those of the same run count half. `starts` are the runs'."""
    import numpy as np

    until, sizes = np.append(0.0, np.cumsum(weights)), np.diff(np.append(starts, len(weights)))
    return np.repeat((until[starts] + until[starts + sizes]) / 2, sizes)
