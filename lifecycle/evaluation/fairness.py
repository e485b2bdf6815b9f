"""How a model's decisions differ between the values of a protected column.

The selection rate by value is what demographic parity asks, true and false positive rates what equalized odds ask; of
numbers it is the mean error, of every kind the mean loss. Each has its interval by group, as have the difference of the
two values that lie farthest apart, and their ratio: chance alone parts the extremes of many values. A rate of too few
rows or groups is told and is in no difference. Values are those of slices: numbers by their quartiles, missing ones
apart, those of a sensitive column by their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.comparison import row_weights
from trainworthy.lifecycle.evaluation.decision import decision_column
from trainworthy.lifecycle.evaluation.slices import MOST_NAMED, slice_codes, slice_column
from trainworthy.lifecycle.protocol.records import Disparity, Estimate, RateOfValue
from trainworthy.lifecycle.tasks.interval import jackknife_estimate, mean_estimate
from trainworthy.lifecycle.tasks.kind import MOST_CLAIMS, Kind, from_columns
from trainworthy.lifecycle.tasks.metric import group_sums, ratio, sums_without_each

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

Rate = Literal["selection_rate", "true_positive_rate", "false_positive_rate", "mean_error", "mean_loss"]
# Of these a ratio means something: they lie in [0, 1].
_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")


class _Measured(NamedTuple):
    """What a rate is the mean of, `(N,)`, and over which rows, `(N,)` of booleans; None is all."""

    rate: Rate
    claim: str
    figures: np.ndarray
    rows: np.ndarray | None


def fairness(
    predictions: pd.DataFrame, columns: Sequence[str], model: str, kind: Kind, minimum_rows: int
) -> tuple[Disparity, ...]:
    """Every rate of `model` by every protected column.

    `predictions` has label, group, the model's statistics, slice_column of each column, and decision_column of the
    model where decisions are declared.
    """
    labels, answers = kind.checked_statistics(predictions["label"], from_columns(kind, model, predictions))
    declared = decision_column(model)
    decided = predictions[declared].to_numpy() >= 0.5 if declared in predictions.columns else None
    measured = tuple(_measured(kind, labels, answers, decided))
    groups, weights = _codes(predictions["group"]), row_weights(predictions)
    found = []
    for column in columns:
        codes, names = slice_codes(predictions[slice_column(column)].rename(column))
        found += [_disparity(one, (model, column), (codes, names), groups, weights, minimum_rows) for one in measured]
    return tuple(found)


def equalized_odds(disparities: Sequence[Disparity]) -> tuple[Disparity, ...]:
    """Of the true and false positive rates of each model, column and claim, the one with the greater difference."""
    by_claim: dict[tuple[str, str, str], Disparity] = {}
    for one in disparities:
        if one.rate not in ("true_positive_rate", "false_positive_rate") or one.difference is None:
            continue
        key = (one.model, one.column, one.claim)
        other = by_claim.get(key)
        if other is None or other.difference is None or other.difference.value < one.difference.value:
            by_claim[key] = one
    return tuple(by_claim.values())


def _measured(
    kind: Kind, labels: np.ndarray, answers: np.ndarray, declared: np.ndarray | None
) -> Iterator[_Measured]:  # fmt: skip
    """All rates of a model; `declared` is what it decides at its operating point, in the place of the kind's own."""
    for claim in kind.claims(labels, answers)[:MOST_CLAIMS]:
        if claim.decided is not None:
            decided = (claim.decided if declared is None else declared).astype("float64")
            yield _Measured("selection_rate", claim.name, decided, None)
            yield _Measured("true_positive_rate", claim.name, decided, claim.so)
            yield _Measured("false_positive_rate", claim.name, decided, ~claim.so)
    errors = kind.errors(labels, answers)
    if errors is not None:
        yield _Measured("mean_error", "", errors, None)
    loss = kind.metrics[kind.loss].rows
    if loss is not None:
        yield _Measured("mean_loss", "", loss(labels, answers), None)


def _codes(groups: pd.Series) -> np.ndarray:
    import pandas as pd

    return pd.factorize(groups)[0]


def _disparity(
    measured: _Measured,
    told: tuple[str, str],
    values: tuple[np.ndarray, list[str]],
    groups: np.ndarray,
    weights: np.ndarray | None,
    minimum_rows: int,
) -> Disparity:
    """One rate by the values of one column."""
    import numpy as np

    (codes, names), (model, column) = values, told
    inside = np.ones(len(codes), dtype=bool) if measured.rows is None else measured.rows
    sizes = np.bincount(codes[inside], minlength=len(names))
    # The greatest values first; of a column of thousands of values the rest would fill the record.
    order = [int(code) for code in np.argsort(-sizes, kind="stable")[:MOST_NAMED]]
    places = {code: inside & (codes == code) for code in order}
    rates = [_of_value(measured, names[code], places[code], groups, weights, minimum_rows) for code in order]
    known = [
        (code, one.rate.value) for code, one in zip(order, rates, strict=True) if one.rate is not None
    ]  # fmt: skip
    body = Disparity(
        model=model, column=column, claim=measured.claim, rate=measured.rate, values=tuple(rates),
        other_values=len(names) - len(order), other_rows=int(sizes.sum() - sizes[order].sum()),
    )  # fmt: skip
    if len(known) < 2:
        one_value = f"{column} has one value" if len(names) < 2 else f"{len(known)} values of {column} can be measured"
        return body.model_copy(update={"reason": f"{one_value}: a difference needs two"})
    highest, lowest = max(known, key=lambda one: one[1])[0], min(known, key=lambda one: one[1])[0]
    if highest == lowest:
        # All the same: any two stand for it.
        lowest = next(code for code, _ in known if code != highest)
    both = np.concatenate([np.flatnonzero(places[highest]), np.flatnonzero(places[lowest])])
    mine = np.repeat([0, 1], [int(places[code].sum()) for code in (highest, lowest)])
    difference, ratio_of, reason = _apart(
        measured.figures[both], mine, groups[both], None if weights is None else weights[both]
    )
    return body.model_copy(
        update={
            "highest": names[highest],
            "lowest": names[lowest],
            "difference": difference,
            "ratio": ratio_of if measured.rate in _RATES else None,
            "reason": reason,
        }
    )


def _of_value(
    measured: _Measured,
    name: str,
    rows: np.ndarray,
    groups: np.ndarray,
    weights: np.ndarray | None,
    minimum_rows: int,
) -> RateOfValue:
    """The rate of one value's rows, or why there is none."""
    import numpy as np

    size, own = int(rows.sum()), groups[rows]
    found = RateOfValue(value=name, rows=size, groups=len(np.unique(own)))
    if size < minimum_rows:
        return found.model_copy(update={"reason": f"{size} rows, fewer than {minimum_rows}"})
    try:
        rate = mean_estimate(measured.figures[rows], own, None if weights is None else weights[rows])
    except EvaluationError as error:
        return found.model_copy(update={"reason": error.problem})
    if measured.rate in _RATES:
        rate = rate.model_copy(update={"low": max(0.0, rate.low), "high": min(1.0, rate.high)})
    return found.model_copy(update={"rate": rate})


def _apart(
    figures: np.ndarray, lower: np.ndarray, groups: np.ndarray, weights: np.ndarray | None
) -> tuple[Estimate | None, Estimate | None, str]:
    """Difference and ratio of the means of two values by the delete-one-group jackknife, and why one is missing.

    `lower` `(N,)` is 1 for rows of the value with the lower rate.
    """
    import numpy as np

    codes = np.unique(groups, return_inverse=True)[1]
    high, low = (lower == 0).astype("float64"), (lower == 1).astype("float64")
    sums = group_sums([figures * high, high, figures * low, low], codes, weights)
    whole, left = sums.sum(axis=0), sums_without_each(sums)
    (higher, higher_left), (smaller, smaller_left) = (
        (float(ratio(whole[place], whole[place + 1])), ratio(left[:, place], left[:, place + 1])) for place in (0, 2)
    )
    reasons, found = [], []
    for name, value, left_out in (
        ("difference", higher - smaller, higher_left - smaller_left),
        ("ratio", float(ratio(np.array(smaller), np.array(higher))), ratio(smaller_left, higher_left)),
    ):
        estimate, reason = _with_width(value, left_out)
        found.append(estimate)
        reasons += [f"{name}: {reason}"] if reason else []
    return found[0], found[1], "; ".join(reasons)


def _with_width(value: float, left_out: np.ndarray) -> tuple[Estimate | None, str]:
    """The estimate, or why there is none: an interval without width says only that these groups cannot tell."""
    try:
        found = jackknife_estimate(value, left_out)
    except EvaluationError as error:
        return None, error.problem
    if found.standard_error == 0:
        return None, f"{value:.4g} whichever group is left out, so these groups cannot tell how sure it is"
    return found, ""
