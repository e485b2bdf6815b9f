"""Where the candidate's loss lies: over groups in their order, by its answer, by each feature, and in single rows.

Each part of the rows has the candidate's mean loss and its gain over the best baseline, with intervals by group. Groups
that resemble the one before, as days do, make an interval too narrow: the autocorrelation says by how much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from trainworthy.lifecycle.evaluation.comparison import row_weights
from trainworthy.lifecycle.protocol.figures import (
    Autocorrelation,
    Estimate,
    GroupLoss,
    LossAxis,
    LossPart,
    Residuals,
    WorstRow,
)
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, joined_codes, mean_estimate, never_negative
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.statistic_columns import from_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

BINS = 10
# Values of a feature that are shown apart, the most frequent ones, as a table that people read has lines.
MOST_VALUES = 10
# Neighbouring groups are joined until so many are left: what a picture of a screen's width can show.
MOST_GROUPS = 400
WORST = 20
# Periods of groups in order: each needs 8 groups for an interval of its own, and more than 10 are not read.
MOST_PERIODS = 10
# Features that a record holds, those by which the loss differs most: of each up to 12 parts, about 5 kB.
MOST_FEATURES = 20


@dataclass(frozen=True)
class _Losses:
    """Per row `(N,)`: the candidate's loss, the best baseline's, groups as codes in their order, and weights.

    `never_negative` says of the loss that it is never below 0.
    """

    candidate: np.ndarray
    baseline: np.ndarray
    codes: np.ndarray
    groups: list[str]
    weights: np.ndarray
    never_negative: bool

    @property
    def gain(self) -> np.ndarray:
        return self.baseline - self.candidate


def residuals(
    predictions: pd.DataFrame,
    features: pd.DataFrame | None,
    kind: Kind,
    baselines: Sequence[str],
    *,
    ordered: bool,
    model: str = "candidate",
) -> Residuals | None:
    """All about the losses of `model`; None without rows.

    `predictions` has row, group, label and the statistics of the models; `features` the same rows' features in the same
    order, without sensitive ones. `ordered` says whether groups that sort next to each other follow each other in time.
    """
    import numpy as np

    if not len(predictions):
        return None
    best, losses = _losses(predictions, kind, baselines, model)
    answers = from_columns(kind, model, predictions)
    axes = [_over_groups(losses)] if ordered else []
    if answers.ndim == 1 or answers.shape[1] <= BINS:
        axes += _by_answers(losses, kind, answers)
    by_feature = [] if features is None else _by_features(losses, features)
    axes += by_feature[:MOST_FEATURES]
    worst = np.argsort(-losses.candidate, kind="stable")[:WORST]
    rows = predictions["row"].to_numpy()
    return Residuals(
        loss=kind.loss,
        baseline=best,
        axes=tuple(axis for axis in axes if axis is not None),
        by_group=_by_group(losses),
        autocorrelation=autocorrelation(losses.gain, losses.codes, losses.weights) if ordered else None,
        worst=tuple(WorstRow(row=int(rows[place]), loss=float(losses.candidate[place])) for place in worst),
        other_features=len(by_feature[MOST_FEATURES:]),
        reasons=() if ordered else ("groups have no order in time, so losses over time are not shown",),
    )


def _losses(predictions: pd.DataFrame, kind: Kind, baselines: Sequence[str], model: str) -> tuple[str, _Losses]:
    """The baseline of the least mean loss, and the losses of all rows."""
    import numpy as np
    import pandas as pd

    labels = kind.checked_labels(predictions["label"])
    mine = kind.judged_losses(labels, from_columns(kind, model, predictions))
    weights = mine.weights(row_weights(predictions))
    weights = np.ones(len(predictions)) if weights is None else weights
    of_baselines = {
        name: kind.judged_losses(labels, from_columns(kind, name, predictions)).losses for name in baselines
    }
    best = min(of_baselines, key=lambda name: float(np.average(of_baselines[name], weights=weights)))
    codes, names = pd.factorize(predictions["group"], sort=True)
    bounded = kind.metrics[kind.loss].low >= 0
    return best, _Losses(mine.losses, of_baselines[best], codes, [str(name) for name in names], weights, bounded)


def _over_groups(losses: _Losses) -> LossAxis | None:
    """Periods of neighbouring groups, each of enough groups for an interval."""
    count = len(losses.groups)
    periods = min(MOST_PERIODS, count // MINIMUM_GROUPS)
    if periods < 2:
        return None
    codes = joined_codes(losses.codes, periods)
    names = []
    for place in range(periods):
        own = [name for code, name in enumerate(losses.groups) if code * periods // count == place]
        names.append(f"{own[0]} to {own[-1]}")
    return LossAxis(by="group", parts=loss_parts(losses, codes, names))


def _by_answers(losses: _Losses, kind: Kind, answers: np.ndarray) -> list[LossAxis]:
    """Ten bins of each number of an answer."""
    columns = answers[:, None] if answers.ndim == 1 else answers
    names = kind.statistic_names
    return [
        LossAxis(by=f"answer {name}".strip(), parts=loss_parts(losses, *_bins(columns[:, place], "answer")))
        for place, name in enumerate(names)
    ]


def _by_features(losses: _Losses, features: pd.DataFrame) -> list[LossAxis]:
    """Those first whose parts differ most in their mean loss, over all rows."""
    import numpy as np

    mean = float(np.average(losses.candidate, weights=losses.weights))

    def spread(axis: LossAxis) -> float:
        return sum(part.rows * (part.loss.value - mean) ** 2 for part in axis.parts if part.loss is not None)

    axes = (_by_feature(losses, features[name]) for name in features.columns)
    return sorted((axis for axis in axes if axis is not None), key=spread, reverse=True)


def _by_feature(losses: _Losses, values: pd.Series) -> LossAxis | None:
    """Bins of equal mass of numbers, else the most frequent values; missing ones apart. None where one part is all."""
    import numpy as np
    import pandas as pd

    name = str(values.name)
    if pd.api.types.is_numeric_dtype(values) and values.nunique() > MOST_VALUES:
        codes, names = _bins(values.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan), name)
    elif pd.api.types.is_datetime64_any_dtype(values) or _holds_objects(values):
        return None
    else:
        codes, names = _values(values)
    parts = loss_parts(losses, codes, names)
    # One part alone says what all rows say; so does a free text, which hardly two rows share.
    return LossAxis(by=name, parts=parts) if sum(part.loss is not None for part in parts) > 1 else None


def _holds_objects(values: pd.Series) -> bool:
    """Files and arrays have no values that rows share."""
    import pandas as pd

    return pd.api.types.is_object_dtype(values) and not values.dropna().map(lambda value: isinstance(value, str)).all()


def _bins(values: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
    """Bins of equal mass by their upper ends, and one of missing values."""
    import numpy as np

    known = values[~np.isnan(values)]
    edges = np.unique(np.quantile(known, np.arange(1, BINS) / BINS, method="inverted_cdf")) if len(known) else known
    edges = edges[edges < known.max()] if len(known) else edges
    codes = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="left"))
    # Whole numbers of five digits and more would be told by a power of ten.
    ends = [f"{edge:,.0f}" if 10_000 <= abs(edge) < 1e12 else f"{edge:.4g}" for edge in edges]
    between = [f"{low} < {name} <= {high}" for low, high in pairwise(ends)]
    first, last = ([f"{name} <= {ends[0]}"], [f"{name} > {ends[-1]}"]) if ends else ([name], [])
    return codes, [*first, *between, *last, f"{name} missing"][: int(codes.max()) + 1]


def _values(values: pd.Series) -> tuple[np.ndarray, list[str]]:
    """The most frequent values, the others together, and missing ones."""
    import numpy as np
    import pandas as pd

    codes, distinct = pd.factorize(values)
    sizes = np.bincount(codes[codes >= 0], minlength=len(distinct))
    frequent = np.argsort(-sizes, kind="stable")[:MOST_VALUES]
    place = np.full(len(distinct) + 1, len(frequent))
    place[frequent] = np.arange(len(frequent))
    # The code of a missing value is -1, and so the last.
    place[-1] = len(frequent) + 1
    names = [
        *(f"{values.name}={distinct[code]}" for code in frequent),
        f"{values.name}: other",
        f"{values.name} missing",
    ]
    places = place[codes]
    present = np.unique(places)
    return np.searchsorted(present, places), [names[code] for code in present]


def loss_parts(losses: _Losses, parts: np.ndarray, names: Sequence[str]) -> tuple[LossPart, ...]:
    """Mean loss and gain of each part of the rows; `parts` `(N,)` are places among the names. Empty ones are left out.

    As mean_estimate of each part's rows, of all parts in one pass; of a loss as its metric has it.
    """
    import numpy as np

    count, groups = len(names), len(losses.groups)
    cells = losses.codes * count + parts

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(cells, weights=values * losses.weights, minlength=groups * count).reshape(groups, count)

    weights = summed(np.ones(len(parts)))
    rows, held = np.bincount(parts, minlength=count), (weights > 0).sum(axis=0)
    loss, gain = (_means(summed(values), weights, held) for values in (losses.candidate, losses.gain))
    if losses.never_negative:
        loss = [None if one is None else never_negative(one) for one in loss]
    return tuple(
        LossPart(
            name=names[place],
            rows=int(rows[place]),
            groups=int(held[place]),
            loss=loss[place],
            gain=gain[place],
            reason=f"{held[place]} groups, fewer than {MINIMUM_GROUPS}" if loss[place] is None else "",
        )
        for place in map(int, np.flatnonzero(held))
    )


def _means(sums: np.ndarray, weights: np.ndarray, held: np.ndarray) -> list[Estimate | None]:
    """The mean of each part from sums (groups, parts), by the linearised ratio; None of fewer than 8 groups."""
    import numpy as np
    from scipy.special import stdtrit

    totals = np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
    means = sums.sum(axis=0) / totals
    squares = np.square(sums - means * weights).sum(axis=0)
    counts = np.maximum(held, 2)
    errors = np.sqrt(counts / (counts - 1) * squares) / totals
    reaches = stdtrit(counts - 1, 0.975) * errors
    return [
        None
        if groups < MINIMUM_GROUPS
        else Estimate(
            value=float(mean),
            low=float(mean - reach),
            high=float(mean + reach),
            standard_error=float(error),
            groups=int(groups),
        )
        for groups, mean, reach, error in zip(held, means, reaches, errors, strict=True)
    ]


def _by_group(losses: _Losses) -> tuple[GroupLoss, ...]:
    """Each group in order, or neighbours together where there are many."""
    import numpy as np

    count = len(losses.groups)
    codes, most = joined_codes(losses.codes, MOST_GROUPS), min(count, MOST_GROUPS)
    weights = np.bincount(codes, weights=losses.weights, minlength=most)
    loss, gain = (
        np.bincount(codes, weights=values * losses.weights, minlength=most) / np.maximum(weights, np.finfo(float).tiny)
        for values in (losses.candidate, losses.gain)
    )
    rows = np.bincount(codes, minlength=most)
    # The first group of those that were joined gives the name.
    first = np.searchsorted(np.arange(count) * most // count if count > most else np.arange(count), np.arange(most))
    return tuple(
        GroupLoss(
            name=losses.groups[first[place]], rows=int(rows[place]), loss=float(loss[place]), gain=float(gain[place])
        )
        for place in range(most)
        if weights[place] > 0
    )


def autocorrelation(gain: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> Autocorrelation | None:
    """Of the groups' parts in the mean gain, at lag 1, and the interval that an AR(1) series of it has.

    Its standard error is that of independent groups times √((1 + ρ) / (1 - ρ)), never less than it. None of fewer than
    8 groups, and where every group gains the same. ρ of few groups is unsure itself, and biased towards 0.
    """
    import numpy as np

    if int(codes.max()) + 1 < MINIMUM_GROUPS:
        return None
    mean_gain = mean_estimate(gain, codes, weights)
    weighed = np.ones(len(gain)) if weights is None else weights
    off = np.bincount(codes, weights=(gain - mean_gain.value) * weighed)
    total = float(off @ off)
    if total == 0:
        return None
    lag_one = float(off[1:] @ off[:-1]) / total
    # At 0.99 a window holds less than one independent group: there is no interval to be had, and none is widened more.
    bounded = min(max(lag_one, 0.0), 0.99)
    factor = math.sqrt((1 + bounded) / (1 - bounded))
    widened = mean_gain.model_copy(
        update={
            "low": mean_gain.value - factor * (mean_gain.value - mean_gain.low),
            "high": mean_gain.value + factor * (mean_gain.high - mean_gain.value),
            "standard_error": factor * mean_gain.standard_error,
        }
    )
    return Autocorrelation(lag_one=lag_one, factor=factor, gain=mean_gain, widened=widened)
