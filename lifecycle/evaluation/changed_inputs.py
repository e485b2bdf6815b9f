"""What a model answers if one input is changed at a time: importance, partial dependence, perturbations.

Permutation importance is the rise of the mean loss when a feature's values are exchanged between rows (Breiman 2001;
Fisher, Rudin & Dominici 2019): what features share that tell the same is seen in none of them. Partial dependence is
the mean answer if all rows had one value (Friedman 2001). The work is bounded by counted answers, never by the clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.changes import (
    MOST_LEVELS,
    NUMBERS,
    altered_share,
    changed,
    changes_of,
    exchange,
    exchanged,
    refused_share,
)
from trainworthy.lifecycle.evaluation.rescored import InputProbe, measure_of
from trainworthy.lifecycle.protocol.figures import (
    Change,
    ChangedInputs,
    Dependence,
    DependencePoint,
    Importance,
    Perturbation,
)
from trainworthy.lifecycle.protocol.jobs import ChangedInputsJob, InputColumn
from trainworthy.lifecycle.tasks.free_text import is_free_text
from trainworthy.lifecycle.tasks.interval import mean_estimate

if TYPE_CHECKING:
    Report = Callable[[str], None]

# Times that a feature's values are exchanged: each row both gets other values and gives its own so often.
REPEATS = 2
# Answers to rows in all, as rows between these bounds allow: few features are asked on more rows, many on fewer. Days
# differ more than rows do, so that more rows narrow an interval little.
MOST_ANSWERS = 300_000
MOST_ROWS, FEWEST_ROWS = 4_000, 1_000
MOST_FEATURES = 500
# Features that are perturbed, the most important first, as many as there are by which losses are told; and the changes
# that a column has at most.
MOST_PERTURBED, MOST_CHANGES = 20, 5
# Features with curves, and how many curves one has, each of another claim: what a page shows.
MOST_CURVES, MOST_CURVES_OF_ONE = 8, 3
# Numbers are asked at so many values between the outer fortieths of the training rows: models fail at the ends.
POINTS, ENDS = 9, (1 / 40, 39 / 40)


def changed_inputs(probe: InputProbe, training: pd.DataFrame, job: ChangedInputsJob, report: Report) -> ChangedInputs:
    """All of it for one model. `probe` holds all rows of the benchmark, `training` rows of the training split.

    `report` is given a line of progress for each tenth of the features.
    """
    if job.reason or not job.columns:
        return ChangedInputs(left_out=job.left_out, reason=job.reason or "no feature has values that can be changed")
    if probe.kind.metrics[probe.kind.loss].rows is None:
        return ChangedInputs(left_out=job.left_out, reason=f"{probe.kind.loss} is no loss of single rows")
    plan = planned(len(job.columns))
    columns, beyond = job.columns[: plan.features], job.columns[plan.features :]
    try:
        some = probe.sample(plan.rows)
        # Where rows have no interval at all, none of the features has one.
        some.mean(some.loss_rises(some.plain))
        importance, failed = _importances(some, columns, report)
    except EvaluationError as error:
        return ChangedInputs(left_out=job.left_out, reason=error.problem)
    by_name = {column.name: column for column in columns}
    ranked = [by_name[feature.column] for feature in importance]
    perturbed = ranked[:MOST_PERTURBED]
    return ChangedInputs(
        rows=len(some.rows),
        groups=int(some.groups.nunique()),
        loss=probe.kind.loss,
        measure=measure_of(probe.kind),
        importance=tuple(importance),
        dependence=tuple(_dependences(some, ranked, training)),
        perturbations=tuple(
            perturbation for column in perturbed for perturbation in perturbations(some, column, training[column.name])
        ),
        left_out=(*job.left_out, *failed, *_beyond(len(beyond), len(ranked) - len(perturbed))),
    )


@dataclass(frozen=True)
class Plan:
    """How many rows are asked, of how many features."""

    rows: int
    features: int


def planned(features: int) -> Plan:
    """As many rows as MOST_ANSWERS allows, but FEWEST_ROWS at least, of MOST_FEATURES features at most."""
    features = min(features, MOST_FEATURES)
    answers_per_row = REPEATS * features + MOST_CHANGES * min(features, MOST_PERTURBED) + MOST_CURVES * MOST_LEVELS
    return Plan(min(MOST_ROWS, max(FEWEST_ROWS, MOST_ANSWERS // answers_per_row)), features)


def seed_of(*parts: object) -> int:
    """The same for the same feature, whatever others there are."""
    return zlib.crc32(":".join(map(str, parts)).encode())


def _beyond(unasked: int, unperturbed: int) -> Iterator[str]:
    if unasked:
        yield f"{unasked} features, the last of the contract: so many are asked at most"
    if unperturbed:
        yield f"perturbations of {unperturbed} features of less importance"


def _importances(
    probe: InputProbe, columns: Iterable[InputColumn], report: Report
) -> tuple[list[Importance], list[str]]:
    """Of each feature, the greatest first; and those that had none, with why."""
    importances, failed, columns = [], [], tuple(columns)
    for place, column in enumerate(columns):
        if place % max(1, len(columns) // 10) == 0:
            report(f"evaluation: asking with changed inputs, feature {place + 1} of {len(columns)}")
        try:
            importances.append(_importance(probe, column))
        except EvaluationError as error:
            failed.append(f"{column.name}: {error.problem}")
    return sorted(importances, key=lambda importance: -importance.loss.value), failed


def _importance(probe: InputProbe, column: InputColumn) -> Importance:
    """Over a few exchanges; a group counts by the rows that got other values and by those that its values went to.

    The mean rise is a U-statistic of a row and another one's value, so its variance has both parts (Hoeffding 1948).
    By the first alone intervals of 95 % held the truth 76 to 91 times in 100 (docs/decisions/0067).
    """
    values, groups = probe.rows[column.name], probe.groups.to_numpy()
    orders = [exchange(len(values), seed_of("exchanged", column.name, repeat)) for repeat in range(REPEATS)]
    rises = np.stack([probe.loss_rises(probe.again(exchanged(values, order))) for order in orders])
    weights = probe.checked_weights
    weights = np.tile(np.ones(len(groups)) if weights is None else weights, REPEATS)
    mean = float(np.average(rises.ravel(), weights=weights))
    got, gave = np.tile(groups, REPEATS), np.concatenate([groups[order] for order in orders])
    # Both parts count whole, and their mean is that of either.
    both = mean + 2 * (np.tile(rises.ravel(), 2) - mean)
    return Importance(
        column=column.name, loss=mean_estimate(both, np.concatenate([got, gave]), np.concatenate([weights, weights]))
    )


def perturbations(probe: InputProbe, column: InputColumn, training: pd.Series) -> Iterator[Perturbation]:
    """Every change that means something for the column."""
    for change in changes_of(column, training):
        yield _perturbation(probe, column, change, training)


def _perturbation(probe: InputProbe, column: InputColumn, change: Change, training: pd.Series) -> Perturbation:
    """Not asked of the model where the contract refuses all of it, or where there is nothing else to take."""
    perturbation = Perturbation(column=column.name, change=change, refused=0.0, asked=False)
    try:
        values, share = altered(probe, column, change, training)
        perturbation = perturbation.model_copy(
            update={"refused": refused_share(values, column, change), "altered": share}
        )
        if perturbation.refused == 1:
            return perturbation.model_copy(update={"reason": "the contract refuses it"})
        perturbation = perturbation.model_copy(update={"asked": True})
        statistics = probe.again(values)
        figures = {"moved": probe.moved(statistics), "loss": probe.mean(probe.loss_rises(statistics))}
    except EvaluationError as error:
        return perturbation.model_copy(update={"reason": error.problem})
    return perturbation.model_copy(update=figures)


def altered(probe: InputProbe, column: InputColumn, change: Change, training: pd.Series) -> tuple[pd.Series, float]:
    """The feature's values with the change, and the share of rows that have another one.

    Raises EvaluationError where the change cannot be made, or leaves every value as it is.
    """
    if reason := unasked(column, change, training):
        raise EvaluationError(reason, value=column.name, fix="train on rows with other values")
    values = probe.rows[column.name]
    try:
        changed_values = changed(values, change, column, training, seed_of(change, column.name))
        share = altered_share(values, changed_values)
    # What a type does not hold is told by the error's type alone: its words may hold values.
    except (TypeError, ValueError, ArithmeticError) as error:
        fix = "store the column in a type that holds such values"
        raise EvaluationError(f"the change cannot be made ({type(error).__name__})", fix=fix) from error
    if not share:
        fix = "remove the test, or fill the column in the benchmark's rows"
        raise EvaluationError("the change leaves all values as they are", value=column.name, fix=fix)
    return changed_values, share


def unasked(column: InputColumn, change: Change, training: pd.Series) -> str:
    """Why the change cannot be made; empty where it can."""
    if change == "swapped" and training.nunique() < 2:
        return "training rows have no other value"
    if change == "jitter" and not training.notna().any():
        return "training rows have no value"
    return ""


def _dependences(probe: InputProbe, ranked: Iterable[InputColumn], training: pd.DataFrame) -> Iterator[Dependence]:
    """Curves of the most important features that are not sensitive, for the first claims.

    None of a free text: each of its values is one row's.
    """
    claims = list(probe.plain_numbers)[:MOST_CURVES_OF_ONE]
    showable = [
        column for column in ranked
        if not column.sensitive and column.logical_type in (*NUMBERS, "string", "boolean")
        and not is_free_text(training[column.name])
    ]  # fmt: skip
    for column in showable[:MOST_CURVES] if claims else ():
        try:
            yield from _dependence(probe, column, grid(column, training[column.name]), claims)
        except EvaluationError:
            # One of the values has no answer; the feature's perturbations say so of unusual ones.
            continue


def _dependence(probe: InputProbe, column: InputColumn, values: list, claims: list[str]) -> Iterator[Dependence]:
    answers = [probe.numbers(probe.again(constant(probe.rows[column.name], value))) for value in values]
    number = column.logical_type in NUMBERS
    for claim in claims:
        points = tuple(
            DependencePoint(
                value=f"{value:.6g}" if number else str(value),
                at=float(value) if number else None,
                answer=probe.mean(answer[claim]),
            )
            for value, answer in zip(values, answers, strict=True)
        )
        yield Dependence(column=column.name, claim=claim, points=points)


def grid(column: InputColumn, training: pd.Series) -> list:
    """Values of training rows: of a number rising quantiles, or all of few; else the ten most frequent values."""
    counts = training.value_counts()
    if column.logical_type not in NUMBERS:
        return list(counts.index[:MOST_LEVELS])
    counts = counts.sort_index()
    return list(counts.index) if len(counts) <= MOST_LEVELS else _quantiles(counts)


def _quantiles(counts: pd.Series) -> list[float]:
    """At equal steps; no value counts for more rows than a point has, or a cap that most rows are at hides the rest."""
    weights = np.minimum(counts.to_numpy(dtype="float64"), counts.sum() / POINTS)
    reached = np.cumsum(weights) / weights.sum()
    places = np.unique(np.searchsorted(reached, np.linspace(*ENDS, POINTS)))
    return counts.index[places].tolist()


def constant(values: pd.Series, value: object) -> pd.Series:
    """The same value in all rows, in the column's type where this holds it."""
    constants = pd.Series([value] * len(values), index=values.index, name=values.name)
    same = values.dtype.kind not in "iub" or float(value) == int(value)  # pyright: ignore[reportArgumentType]
    return constants.astype(values.dtype) if same else constants
