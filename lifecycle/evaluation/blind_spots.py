"""Parts of the benchmark in which a model loses much more than elsewhere, that nobody thought of.

All predicates of up to two columns are searched on two thirds of the groups, and what is found is confirmed on the
others. A part may be hard for any model: evening flights are. So a row's loss is held against what simple models'
losses on the same row let expect of this one, by least squares over all rows; without such models, against the mean.
Nothing is decided here: whoever reads of a spot decides what it means. A check warns of those of the candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.comparison import row_weights
from trainworthy.lifecycle.evaluation.slice_levels import Levels, levels_of
from trainworthy.lifecycle.evaluation.slice_search import (
    Difference,
    Limits,
    Rows,
    Rule,
    difference,
    inside,
    search_rules,
    telling_pairs,
)
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.protocol.figures import BlindSpot, Estimate
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, joined_codes
from trainworthy.lifecycle.tasks.kind import JudgedLosses, Kind
from trainworthy.lifecycle.tasks.statistic_columns import from_columns, statistic_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Of 20 columns there are 190 pairs, 15 of which take about a second together on 327 thousand rows.
_MOST_COLUMNS = 20
# One group of so many confirms, the others are searched: finding one of a million predicates needs more than
# confirming one of twenty. Of 30 days' parts of 1 % with twice the loss 0.63 are found by halves, 0.80 by thirds and
# none by quarters, which leave too few groups; of 91 days' 0.88, 0.85 and 0.75.
_PARTS, _PARTS_OF_FEW = 3, 2
# More units say no more of an error, and each of them has cells of its own.
_MOST_UNITS = 200
_FALSE_DISCOVERIES = 0.05
_EXAMPLES = 5
_SALT = "blind spots"
NAME = "blind_spots"
# What a check's evidence names; the record has all.
_MOST_NAMED = 3


@dataclass(frozen=True)
class SpotLimits:
    """What a blind spot has at least, and how many are reported.

    `share` of the rows that confirm, and `rows` of them; `excess` as a share of the mean loss.
    """

    share: float = 0.005
    rows: int = 30
    excess: float = 0.1
    spots: int = 20


@dataclass(frozen=True)
class BlindSpots:
    """What a search found, in its order: each without the rows of those before it. `columns` are those it saw.

    `insufficient` says why there was no search; empty if there was one.
    """

    spots: tuple[BlindSpot, ...]
    columns: tuple[str, ...]
    insufficient: str = ""


def blind_spots(
    frame: pd.DataFrame,
    losses: Any,
    groups: Any,
    cuts: Mapping[str, tuple[float, ...]],
    *,
    references: Sequence[Any] = (),
    champion: Any = None,
    weights: Any = None,
    limits: SpotLimits | None = None,
) -> BlindSpots:
    """Where a model's row losses `(N,)` are higher than expected, by columns of `frame`, none of them sensitive.

    `references` are the row losses of simple models, `champion` those of the champion, `groups` the units that are
    independent of each other, `cuts` where numbers are cut (slice_levels.training_cuts of training rows). Which group
    confirms is decided by a hash of its value. Raises EvaluationError for losses that are no finite numbers.
    """
    import numpy as np

    spot_limits = limits or SpotLimits()
    weights = np.ones(len(frame)) if weights is None else np.asarray(weights, dtype=np.float64)
    losses = _checked(losses, len(frame))
    known = [_checked(reference, len(frame)) for reference in references]
    counted = weights > 0
    if not counted.any():
        return BlindSpots((), (), "no row counts")
    codes = _by_hash(groups)
    present = len(np.unique(codes[counted]))
    parts = _PARTS if present >= _PARTS * (MINIMUM_GROUPS + 1) else _PARTS_OF_FEW
    searched = codes % parts < parts - 1
    sizes = [len(np.unique(codes[counted & part])) for part in (searched, ~searched)]
    if min(sizes) < MINIMUM_GROUPS:
        return BlindSpots((), (), f"{present} groups, fewer than {2 * MINIMUM_GROUPS}")
    least_rows = max(spot_limits.rows, math.ceil(spot_limits.share * np.count_nonzero(counted & ~searched)))
    levels = [of for name in frame if (of := levels_of(frame[name], cuts, parts * least_rows)) is not None]
    columns = tuple(of.column for of in levels)
    if not levels:
        return BlindSpots((), (), "no column has two values that enough rows have")
    expected = _expected(losses, known, weights)
    least = spot_limits.excess * abs(float(np.average(losses, weights=weights)))
    limit = Limits((parts - 1) * least_rows, MINIMUM_GROUPS, least, spot_limits.spots)
    search = _part(counted & searched, levels, losses - expected, weights, codes)
    search = Rows(search.columns, search.scores, search.weights, joined_codes(search.groups, _MOST_UNITS))
    rules = search_rules(search, levels, telling_pairs(search, levels, _MOST_COLUMNS), limit)
    rest = counted & ~searched
    theirs = None if champion is None else _checked(champion, len(frame))
    scores = [losses - expected, expected, *([] if theirs is None else [theirs - _expected(theirs, known, weights)])]
    tested = [_part(rest, levels, score, weights, codes) for score in scores]
    confirmed = _confirmed(rules, tested, limit._replace(rows=least_rows))
    whole = [of.codes for of in levels]
    spots = [_spot(item, whole, levels, codes, losses - expected) for item in confirmed]
    return BlindSpots(tuple(spots), columns)


def adjusted(p: Sequence[float]) -> list[float]:
    """By Benjamini and Hochberg (1995): those at most 0.05 are false in at most 5 % on average."""
    import numpy as np

    order = np.argsort(p, kind="stable")[::-1]
    ranks = np.arange(len(p), 0, -1)
    adjusted_p = np.empty(len(p))
    adjusted_p[order] = np.minimum(np.minimum.accumulate(np.asarray(p)[order] * len(p) / ranks), 1.0)
    return adjusted_p.tolist()


@dataclass(frozen=True)
class _TestedRule:
    """A rule with its differences among the groups that it was not found in."""

    rule: Rule
    excess: Difference
    expected: Difference
    champion: Difference | None
    p: float
    confirmed: bool = False


def _confirmed(rules: Sequence[Rule], tested: Sequence[Rows], limit: Limits) -> list[_TestedRule]:
    """The rules that have enough rows and groups where they are tested; `tested` are these rows, by score."""
    import dataclasses

    import numpy as np

    left = np.ones(len(tested[0].scores), dtype=bool)
    tested_rules: list[_TestedRule] = []
    for rule in rules:
        mask = inside(rule, tested[0].columns)
        differences = [difference(mask, part, left) for part in tested]
        enough = np.count_nonzero(mask & left) >= limit.rows
        left &= ~mask
        if enough and differences[0] and differences[1] and differences[0].groups >= limit.groups:
            champion = differences[2] if len(differences) > 2 else None
            tested_rules.append(
                _TestedRule(rule, differences[0], differences[1], champion, _p(differences[0], limit.least))
            )
    passed = adjusted([item.p for item in tested_rules])
    return [
        dataclasses.replace(item, confirmed=p <= _FALSE_DISCOVERIES)
        for item, p in zip(tested_rules, passed, strict=True)
    ]


def _p(excess: Difference, least: float) -> float:
    """One-sided, of an excess of at most `least`: by t with one degree of freedom less than carry the rows."""
    from scipy.special import stdtr

    if excess.standard_error <= 0:
        return 1.0
    return float(stdtr(_freedom(excess), (least - excess.value) / excess.standard_error))


def _freedom(excess: Difference) -> float:
    return max(excess.carriers - 1, 1.0)


def _estimate(excess: Difference) -> Estimate:
    from scipy.special import stdtrit

    reach = float(stdtrit(_freedom(excess), 0.975)) * excess.standard_error
    return Estimate(
        value=excess.value, low=excess.value - reach, high=excess.value + reach, standard_error=excess.standard_error,
        groups=excess.groups,
    )  # fmt: skip


def _spot(
    item: _TestedRule, columns: Sequence[np.ndarray], levels: Sequence[Levels], groups: np.ndarray, excess: np.ndarray
) -> BlindSpot:
    import numpy as np

    rows = np.flatnonzero(inside(item.rule, columns))
    worst = rows[np.argsort(-excess[rows], kind="stable")[:_EXAMPLES]]
    return BlindSpot(
        rule=" and ".join(levels[column].rule(first, last) for column, first, last in item.rule.parts),
        rows=len(rows),
        groups=len(np.unique(groups[rows])),
        share=len(rows) / len(groups),
        excess=_estimate(item.excess),
        expected=item.expected.value,
        champion=None if item.champion is None else _estimate(item.champion),
        p=item.p,
        confirmed=item.confirmed,
        examples=tuple(worst.tolist()),
    )


def _part(
    chosen: np.ndarray, levels: Sequence[Levels], scores: np.ndarray, weights: np.ndarray, groups: np.ndarray
) -> Rows:
    """Some of the rows, their groups numbered anew in the same order."""
    import numpy as np

    place = np.cumsum(np.bincount(groups[chosen]) > 0) - 1
    return Rows([of.codes[chosen] for of in levels], scores[chosen], weights[chosen], place[groups[chosen]])


def _expected(losses: np.ndarray, references: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """What the references' losses on a row let expect of this model's there, by weighted least squares."""
    import numpy as np

    design = np.stack([np.ones(len(losses)), *references], axis=1)
    weighed = design * weights[:, None]
    coefficients = np.linalg.lstsq(weighed.T @ design, weighed.T @ losses, rcond=None)[0]
    return design @ coefficients


def _checked(losses: Any, rows: int) -> np.ndarray:
    import numpy as np

    values = np.asarray(losses, dtype=np.float64)
    if values.shape != (rows,) or not np.isfinite(values).all():
        raise EvaluationError(
            "row losses must be one finite number for each row", value=values.shape, fix="score only complete rows",
            code="blind_spots.losses",
        )  # fmt: skip
    return values


def _by_hash(groups: Any) -> np.ndarray:
    """Groups `(N,)` as codes in the order of a hash of their values, whatever the order of the rows."""
    import numpy as np
    import pandas as pd

    from trainworthy.lifecycle.data.split.hashing import row_hashes

    codes, values = pd.factorize(groups if isinstance(groups, pd.Series) else np.asarray(groups))
    if (codes < 0).any():
        raise EvaluationError(
            "every row needs a group", value=int((codes < 0).sum()), fix="resample by a column without missing values",
            code="blind_spots.groups",
        )  # fmt: skip
    hashes = row_hashes(pd.DataFrame({"group": values}), ["group"], _SALT)
    place = np.empty(len(values), dtype=np.intp)
    place[np.argsort(hashes, kind="stable")] = np.arange(len(values))
    return place[codes]


def benchmark_spots(
    predictions: pd.DataFrame,
    features: pd.DataFrame,
    cuts: Mapping[str, tuple[float, ...]],
    kind: Kind,
    baselines: Sequence[str],
    *,
    model: str = "candidate",
    champion: str = "champion",
) -> BlindSpots:
    """Where `model` loses more than the baselines let expect, by columns of `features`, none of them sensitive.

    `predictions` has row, group, label and the statistics of the models, `features` the same rows in the same order;
    `cuts` are slice_levels.training_cuts of the training rows. The champion's are used where the table has them.
    """
    labels, numbers = kind.checked_labels(predictions["label"]), predictions["row"].to_numpy()
    there = set(statistic_columns(kind, champion)) <= set(predictions.columns)

    def losses(name: str) -> JudgedLosses:
        return kind.judged_losses(labels, from_columns(kind, name, predictions))

    mine = losses(model)
    spots = blind_spots(
        features,
        mine.losses,
        predictions["group"],
        cuts,
        references=[losses(name).losses for name in baselines],
        champion=losses(champion).losses if there else None,
        weights=mine.weights(row_weights(predictions)),
    )
    named = [spot.model_copy(update={"examples": tuple(numbers[[*spot.examples]].tolist())}) for spot in spots.spots]
    return replace(spots, spots=tuple(named))


def blind_spots_check(spots: BlindSpots) -> CheckResult:
    """Warns of confirmed blind spots; it never stops a step and decides nothing."""
    if spots.insufficient:
        return CheckResult(
            name=NAME, status="not_applicable", severity="warning", evidence=f"not searched: {spots.insufficient}",
            fix="give the benchmark more groups, or columns with values that come back",
        )  # fmt: skip
    confirmed = [spot for spot in spots.spots if spot.confirmed]
    named = "; ".join(f"{spot.rule} ({spot.rows:,} rows, {spot.excess.value:+.3g})" for spot in confirmed[:_MOST_NAMED])
    more = f"; {len(confirmed) - _MOST_NAMED} more" if len(confirmed) > _MOST_NAMED else ""
    evidence = f"{len(confirmed)} confirmed, by mean loss above what the baselines let expect: {named}{more}"
    return holds(
        NAME,
        not confirmed,
        severity="warning",
        observed=len(confirmed),
        threshold=0,
        evidence=evidence if confirmed else f"none confirmed over pairs of {len(spots.columns)} columns",
        fix="look at the rows; declare the rule as a slice (where:) with a bound, so that it decides from now on",
    )
