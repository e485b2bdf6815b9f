"""Has a network learned something? A statistic that survives a shifting base rate.

The loss on validation rows, against the loss when predictions are permuted within their group (for
example a day). A model that knows only the base rate loses nothing by the permutation, however
wrong the base rate is; a comparison with the label prior stops healthy networks in months whose
base rate moved. Size decides, not significance alone: shuffled labels reach a small significant
rise as well. So the rise is held against that of logistic regression on the same rows.

A short pilot ranks well long before it is as sure as it may be, and the rise counts both. So the
network's logits are first stretched by Platt scaling, each half of the groups by a fit on the other
half; a ranking that would have to be turned round counts as none.

That regression is fitted on the validation rows themselves, each half of the groups for the other
half. Fitted on the stage's rows it would be fooled by whatever is wrong with these: with shuffled
training labels it found nothing either, and 10 of 10 such runs went on. Whether the network finds more than a
straight line does is another question, and there both have to have seen the same rows: it is held against a
regression of the stage's rows, and only warns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lifecycle.evaluation.interval import mean_estimate
from lifecycle.evaluation.metrics import log_loss
from lifecycle.jobs import Learned, Rows

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

PERMUTATIONS, LEAST_PERMUTED = 5, 10


def measure_learned(
    labels: np.ndarray,
    network: np.ndarray,
    linear: np.ndarray,
    groups: np.ndarray,
    prior: float,
    seed: int,
    trained_linear: np.ndarray | None = None,
) -> Learned:
    """Rises of the network's and of logistic regression's probabilities, each `(N,)`, in nats a row.

    `prior` is the training rows' share of positives, `trained_linear` those of a logistic regression of these rows.
    """
    import numpy as np

    judged = {"network": stretched(labels, network, groups), "linear": linear}
    if trained_linear is not None:
        judged["trained_linear"] = stretched(labels, trained_linear, groups)
    rises = permutation_rises(labels, judged, groups, seed)
    network_rise, linear_rise = (mean_estimate(rises[name], groups) for name in ("network", "linear"))
    return Learned(
        network_rise=network_rise.value,
        network_low=network_rise.low,
        linear_rise=linear_rise.value,
        linear_low=linear_rise.low,
        label_entropy=float(log_loss(labels, np.full(len(labels), labels.mean())).mean()),
        network_loss=float(log_loss(labels, network).mean()),
        prior_loss=float(log_loss(labels, np.full(len(labels), prior)).mean()),
        beyond_linear=mean_estimate(rises["network"] - rises["trained_linear"], groups)
        if trained_linear is not None
        else None,
    )


def stretched(labels: np.ndarray, probabilities: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Probabilities `(N,)` as sure as they may be: Platt scaling of each half of the groups, fitted on the other.

    Where the fit would turn the ranking round, or sees one class only, the prediction is the half's share.
    """
    import numpy as np

    from lifecycle.evaluation.calibration import apply_platt, fit_platt

    result = np.empty(len(labels))
    for scored in _halves(groups):
        fitted = ~scored
        state = fit_platt(labels[fitted], probabilities[fitted]) if len(set(labels[fitted])) == 2 else None
        if state is None or state["slope"] <= 0:
            result[scored] = labels[fitted].mean()
        else:
            result[scored] = apply_platt(probabilities[scored], state)
    return result


def cross_fitted_linear(rows: pd.DataFrame, columns: Rows, seed: int) -> np.ndarray:
    """Probabilities `(N,)` of logistic regression, each half of the groups scored by a fit on the other half.

    The halves take turns group by group, so that both span all of the time. A half with one class only tells
    nothing, and its share of positives is the prediction.
    """
    import numpy as np

    from lifecycle.evaluation.baselines import fit_baselines

    features, label = list(columns.features), columns.label
    probabilities = np.empty(len(rows))
    for scored in _halves(rows[columns.group].to_numpy()):
        fitted = rows[~scored]
        if fitted[label].nunique() < 2:
            probabilities[scored] = fitted[label].mean()
            continue
        predict = fit_baselines(fitted[[*features, label]], features, label, ("linear",), seed)["linear"]
        probabilities[scored] = predict(rows.loc[scored, features])
    return probabilities


def _halves(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks `(N,)` of every other group, and of the rest."""
    import numpy as np

    _, codes = np.unique(groups, return_inverse=True)
    return codes % 2 == 0, codes % 2 == 1


def permutation_rises(
    labels: np.ndarray, predictions: dict[str, np.ndarray], groups: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Rise of each row's log loss, `(N,)`, averaged over the same PERMUTATIONS within groups for every model."""
    import numpy as np

    rises = {name: np.zeros(len(labels)) for name in predictions}
    for permuted in permutations_within(groups, seed):
        for name, probabilities in predictions.items():
            rises[name] += log_loss(labels, probabilities[permuted]) - log_loss(labels, probabilities)
    return {name: rise / PERMUTATIONS for name, rise in rises.items()}


def permutations_within(groups: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """PERMUTATIONS orders of the rows `(N,)` in which each row stays in its group.

    Groups of fewer than LEAST_PERMUTED rows are permuted together: in a group of one row nothing moves.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    _, codes = np.unique(groups, return_inverse=True)
    sizes = np.bincount(codes)
    codes = np.where(sizes[codes] < LEAST_PERMUTED, len(sizes), codes)
    in_place = np.argsort(codes, kind="stable")
    for _ in range(PERMUTATIONS):
        permuted = np.empty(len(groups), dtype=np.int64)
        permuted[in_place] = np.lexsort((generator.random(len(groups)), codes))
        yield permuted
