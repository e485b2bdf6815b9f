"""Has a network learned something? A statistic that survives a shifting base rate, and two references beside it.

The loss on validation rows, against the loss when predictions are permuted within their group (for example a day). A
model that knows only the base rate loses nothing by the permutation, however wrong the base rate is; a comparison with
the label prior stops healthy networks in months whose base rate moved. Size decides, not significance alone: shuffled
labels reach a small significant rise as well. So the rise is held against that of logistic regression.

A short pilot ranks well long before it is as sure as it may be, and a regression of few rows is surer than it may be:
the rise counts both. So the logits of all are first stretched by Platt scaling, each half of the groups by a fit on the
other half; a ranking that would have to be turned round counts as none.

The reference is fitted on the validation rows themselves, each half of the groups for the other half, on no more rows
than the stage has. Fitted on the stage's rows it would be fooled by whatever is wrong with these: with shuffled
training labels it found nothing either, and 10 of 10 such runs went on. A second one is fitted on the stage's rows, and
only beside the first: where as many validation rows show something and the stage's rows do not, these are at fault;
where both do and the network does not, it is the network, its recipe, or too few updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lifecycle.evaluation.interval import mean_estimate
from lifecycle.evaluation.metrics import log_loss
from lifecycle.jobs import Learned, Rows
from lifecycle.records import Estimate
from lifecycle.training.plan import stage_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

PERMUTATIONS, LEAST_PERMUTED = 5, 10
REFITS = 5


def measure_learned(
    labels: np.ndarray,
    network: np.ndarray,
    reference: np.ndarray,
    groups: np.ndarray,
    prior: float,
    seed: int,
    refits: Sequence[np.ndarray] = (),
    trained_linear: np.ndarray | None = None,
) -> Learned:
    """Rises of the network's and of the references' probabilities, each `(N,)`, in nats a row.

    `prior` is the training rows' share of positives. `reference` is logistic regression cross-fitted on validation
    rows, `refits` several of resampled rows of the stage, `trained_linear` one of all rows that the network saw.
    """
    import numpy as np

    judged = {"network": network, "reference": reference} | {str(number): refit for number, refit in enumerate(refits)}
    if trained_linear is not None:
        judged["trained_linear"] = trained_linear
    judged = {name: stretched(labels, probabilities, groups) for name, probabilities in judged.items()}
    rises = permutation_rises(labels, judged, groups, seed)
    beyond = None if trained_linear is None else rises["network"] - rises["trained_linear"]
    return Learned(
        network=mean_estimate(rises["network"], groups),
        reference=mean_estimate(rises["reference"], groups),
        stage_reference=_over_fits([rises[str(number)] for number in range(len(refits))], groups) if refits else None,
        beyond_linear=None if beyond is None else mean_estimate(beyond, groups),
        label_entropy=float(log_loss(labels, np.full(len(labels), labels.mean())).mean()),
        network_loss=float(log_loss(labels, network).mean()),
        prior_loss=float(log_loss(labels, np.full(len(labels), prior)).mean()),
    )


def _over_fits(rises: Sequence[np.ndarray], groups: np.ndarray) -> Estimate:
    """The mean rise of several fits, each `(N,)`: its interval has the luck of few rows to fit in it as well.

    With ten rows, one fit of healthy rows may find nothing; a second draw of such rows then finds something.
    """
    import numpy as np
    from scipy.stats import t

    over_rows = mean_estimate(np.mean(rises, axis=0), groups)
    error = float(np.hypot(over_rows.standard_error, np.std([rise.mean() for rise in rises], ddof=1)))
    half = float(t.ppf(0.975, len(rises) - 1)) * error
    bounds = {"low": over_rows.value - half, "high": over_rows.value + half, "standard_error": error}
    return over_rows.model_copy(update=bounds)


def refitted_linear(
    stage: pd.DataFrame, columns: Rows, rows: pd.DataFrame, seed: int, most_rows: int
) -> list[np.ndarray]:
    """Probabilities of `rows`, each `(N,)`, of REFITS logistic regressions of the `stage`'s rows, drawn with repeats.

    Each fit draws at most `most_rows` rows. A draw of one class tells nothing, and its share is the prediction.
    """
    import numpy as np

    from lifecycle.evaluation.baselines import fit_baselines

    features, label, generator = list(columns.features), columns.label, np.random.default_rng(seed)
    fits = []
    for _ in range(REFITS):
        drawn = stage.iloc[generator.integers(0, len(stage), min(len(stage), most_rows))]
        if drawn[label].nunique() < 2:
            fits.append(np.full(len(rows), drawn[label].mean()))
        else:
            fits.append(fit_baselines(drawn, features, label, ("linear",), seed)["linear"](rows[features]))
    return fits


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


def cross_fitted_linear(rows: pd.DataFrame, columns: Rows, seed: int, most_rows: int | None = None) -> np.ndarray:
    """Probabilities `(N,)` of logistic regression, each half of the groups scored by a fit on the other half.

    The halves take turns group by group, so that both span all of the time. Each fit sees at most `most_rows` rows,
    stratified by label. A half with one class only tells nothing, and its share of positives is the prediction.
    """
    import numpy as np

    from lifecycle.evaluation.baselines import fit_baselines

    features, label = list(columns.features), columns.label
    probabilities = np.empty(len(rows))
    for scored in _halves(rows[columns.group].to_numpy()):
        fitted = rows[~scored]
        if most_rows is not None and most_rows < len(fitted):
            fitted = fitted.iloc[stage_rows(fitted[label].to_numpy(), most_rows / len(fitted), seed)]
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
