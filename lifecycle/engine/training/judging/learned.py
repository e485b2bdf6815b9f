"""Has a network learned something? A statistic that survives a shifting base rate, and two references beside it.

The loss on validation rows, against the loss when predictions are permuted within their group (for example a day). A
model that knows only the base rate loses nothing by the permutation, however wrong the base rate is; a comparison with
the label prior stops healthy networks in months whose base rate moved. Size decides, not significance alone: shuffled
labels reach a small significant rise as well. So the rise is held against that of the kind's linear model.

A short pilot ranks well long before it is as sure as it may be, and a regression of few rows is surer than it may be:
the rise counts both. So the answers of all are first stretched (Kind.stretched: Platt scaling of probabilities, a line
through numbers), each half of the groups by a fit on the other half; an order that would have to be turned round counts
as none.

The reference is fitted on the validation rows themselves, each half of the groups for the other half, on no more rows
than the stage has. Fitted on the stage's rows it would be fooled by whatever is wrong with these: with shuffled
training labels it found nothing either, and 10 of 10 such runs went on. A second one is fitted on the stage's rows, and
only beside the first: where as many validation rows show something and the stage's rows do not, these are at fault;
where both do and the network does not, it is the network, its recipe, or too few updates.

Where few inputs tell nearly all, any direction shows something once it is stretched: a network of shuffled labels that
leans the right way by chance had a fifth to a half of the rise of a linear model on numbers of three inputs, more with
a heavy tail (5 of 20 such trainings passed). On the rows that it learned from it then shows next to nothing, and a
healthy one as much as elsewhere; so both are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from trainworthy.lifecycle.plan import stage_rows
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.protocol.records import Estimate
from trainworthy.lifecycle.protocol.results import Learned
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, mean_estimate
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of

PERMUTATIONS, LEAST_PERMUTED = 5, 10
REFITS = 5


def measure_learned(
    kind: Kind,
    labels: np.ndarray,
    network: np.ndarray,
    reference: np.ndarray,
    groups: np.ndarray,
    prior: np.ndarray,
    seed: int,
    refits: Sequence[np.ndarray] = (),
    trained_linear: np.ndarray | None = None,
    own: Estimate | None = None,
) -> Learned:
    """Rises of the kind's loss of each row, by the network's and the references' answers, each `(N, ...)`.

    `prior` is the best constant answer of the training rows. `reference` is the linear model cross-fitted on validation
    rows, `refits` several of resampled rows of the stage, `trained_linear` one of all rows that the network saw. `own`
    is what own_rise says of the network.
    """
    judged = {"network": network, "reference": reference} | {str(number): refit for number, refit in enumerate(refits)}
    if trained_linear is not None:
        judged["trained_linear"] = trained_linear
    judged = {name: stretched(kind, labels, answers, groups) for name, answers in judged.items()}
    rises = permutation_rises(kind, labels, judged, groups, seed)
    losses = {name: kind.row_loss(labels, answers) for name, answers in judged.items()}
    beyond = None if trained_linear is None else rises["network"] - rises["trained_linear"]
    less = None if trained_linear is None else losses["trained_linear"] - losses["network"]
    return Learned(
        network=mean_estimate(rises["network"], groups),
        reference=mean_estimate(rises["reference"], groups),
        stage_reference=_over_fits([rises[str(number)] for number in range(len(refits))], groups) if refits else None,
        own=own,
        beyond_linear=None if beyond is None else mean_estimate(beyond, groups),
        below_linear=None if less is None else mean_estimate(less, groups),
        label_entropy=float(kind.row_loss(labels, constant_answers(kind.prior(labels), len(labels))).mean()),
        network_loss=float(kind.row_loss(labels, network).mean()),
        prior_loss=float(kind.row_loss(labels, constant_answers(prior, len(labels))).mean()),
        words=kind.words,
    )


def own_rise(kind: Kind, labels: np.ndarray, answers: np.ndarray, groups: np.ndarray, seed: int) -> Estimate | None:
    """Rise of the loss on rows that the network learned from, as a share of what a constant answer loses there.

    None in fewer groups than an interval needs.
    """
    if len(np.unique(groups)) < MINIMUM_GROUPS or kind.one_valued(labels):
        return None
    rises = permutation_rises(kind, labels, {"own": stretched(kind, labels, answers, groups)}, groups, seed)["own"]
    entropy = float(kind.row_loss(labels, constant_answers(kind.prior(labels), len(labels))).mean())
    return mean_estimate(rises / entropy, groups)


def constant_answers(answer: np.ndarray, rows: int) -> np.ndarray:
    """One answer for so many rows, `(rows, *answer_shape)`."""
    return np.broadcast_to(answer, (rows, *answer.shape)).copy()


def _over_fits(rises: Sequence[np.ndarray], groups: np.ndarray) -> Estimate:
    """The mean rise of several fits, each `(N,)`: its interval has the luck of few rows to fit in it as well.

    With ten rows, one fit of healthy rows may find nothing; a second draw of such rows then finds something.
    """
    from scipy.stats import t

    over_rows = mean_estimate(np.mean(rises, axis=0), groups)
    error = float(np.hypot(over_rows.standard_error, np.std([rise.mean() for rise in rises], ddof=1)))
    half = float(t.ppf(0.975, len(rises) - 1)) * error
    bounds = {"low": over_rows.value - half, "high": over_rows.value + half, "standard_error": error}
    return over_rows.model_copy(update=bounds)


def refitted_linear(
    stage: pd.DataFrame, columns: Rows, rows: pd.DataFrame, seed: int, most_rows: int
) -> list[np.ndarray]:
    """Answers to `rows`, each `(N, ...)`, of REFITS linear models of the `stage`'s rows, drawn with repeats.

    Each fit draws at most `most_rows` rows.
    """
    generator = np.random.default_rng(seed)
    draws = (generator.integers(0, len(stage), min(len(stage), most_rows)) for _ in range(REFITS))
    return [fitted_linear(stage.iloc[drawn], columns, rows, seed) for drawn in draws]


def fitted_linear(training: pd.DataFrame, columns: Rows, rows: pd.DataFrame, seed: int) -> np.ndarray:
    """Answers to `rows`, `(N, ...)`, of a linear model of the training rows; labels that are all alike tell nothing,
    and the best constant is the answer."""
    features, label, kind = list(columns.features), columns.label, kind_of_rows(columns)
    labels = labels_of(columns, training)
    if kind.one_valued(labels):
        return constant_answers(kind.prior(labels), len(rows))
    return fit_baselines(training[[*features, label]], features, label, ("linear",), seed, kind)["linear"](
        rows[features]
    )


def stretched(kind: Kind, labels: np.ndarray, answers: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Answers `(N, ...)` as sure as they may be: each half of the groups stretched by a fit on the other.

    Where the fit would turn the order round, or can't be made, the answer is the best constant of the other half.
    """
    result = np.empty(answers.shape)
    for scored in _halves(groups):
        stretch = kind.stretched(labels[~scored], answers[~scored])
        if stretch is None:
            result[scored] = kind.prior(labels[~scored])
        else:
            result[scored] = stretch(answers[scored])
    return result


def cross_fitted_linear(rows: pd.DataFrame, columns: Rows, seed: int, most_rows: int | None = None) -> np.ndarray:
    """Answers `(N, ...)` of a linear model, each half of the groups scored by a fit on the other half.

    The halves take turns group by group, so that both span all of the time. Each fit sees at most `most_rows` rows,
    stratified by label.
    """
    kind = kind_of_rows(columns)
    answers = np.empty((len(rows), *kind.answer_shape))
    for scored in _halves(rows[columns.group].to_numpy()):
        fitted = rows[~scored]
        if most_rows is not None and most_rows < len(fitted):
            strata = kind.strata(labels_of(columns, fitted))
            fitted = fitted.iloc[stage_rows(strata, most_rows / len(fitted), seed)]
        answers[scored] = fitted_linear(fitted, columns, rows.loc[scored], seed)
    return answers


def _halves(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks `(N,)` of every other group, and of the rest."""
    _, codes = np.unique(groups, return_inverse=True)
    return codes % 2 == 0, codes % 2 == 1


def permutation_rises(
    kind: Kind, labels: np.ndarray, predictions: dict[str, np.ndarray], groups: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Rise of each row's loss, `(N,)`, averaged over the same PERMUTATIONS within groups for every model."""
    rises = {name: np.zeros(len(labels)) for name in predictions}
    for permuted in permutations_within(groups, seed):
        for name, answers in predictions.items():
            rises[name] += kind.row_loss(labels, answers[permuted]) - kind.row_loss(labels, answers)
    return {name: rise / PERMUTATIONS for name, rise in rises.items()}


def permutations_within(groups: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """PERMUTATIONS orders of the rows `(N,)` in which each row stays in its group.

    Groups of fewer than LEAST_PERMUTED rows are permuted together: in a group of one row nothing moves.
    """
    generator = np.random.default_rng(seed)
    _, codes = np.unique(groups, return_inverse=True)
    sizes = np.bincount(codes)
    codes = np.where(sizes[codes] < LEAST_PERMUTED, len(sizes), codes)
    in_place = np.argsort(codes, kind="stable")
    for _ in range(PERMUTATIONS):
        permuted = np.empty(len(groups), dtype=np.int64)
        permuted[in_place] = np.lexsort((generator.random(len(groups)), codes))
        yield permuted
