"""Whether probabilities come true: the error without what chance adds, intercept and slope, and a band for each bin.

A binned calibration error is never 0, even of a perfect model: chance leaves every bin a little off, and rows of a day
are off together. The debiased error takes only products of two different groups' excess, whose mean is the square of
the bin's own distance: the estimator of Kumar, Liang & Ma 2019 with whole groups in the place of rows.
Intercept and slope are those of Cox 1958, with the delete-one-group jackknife in one Newton step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.protocol.figures import Calibration, CalibrationBand, Estimate
from trainworthy.lifecycle.tasks.interval import group_codes, jackknife_estimate, mean_estimate
from trainworthy.lifecycle.tasks.kind import MOST_CLAIMS
from trainworthy.lifecycle.tasks.metric import ratio, share_estimate, sums_without_each
from trainworthy.lifecycle.tasks.probabilities import SMALLEST_PROBABILITY, equal_mass_bins

if TYPE_CHECKING:
    import numpy as np

    from trainworthy.lifecycle.tasks.kind import Claim

# The metric whose bounds the debiased error is held against.
CALIBRATION_ERROR = "calibration_error"
# A bin's error is of pairs of groups: so many leave a pair whichever is left out.
_GROUPS_OF_BIN = 3
_ITERATIONS = 50
# Mean gradient at which the likelihood is within about 1e-12 of its maximum.
_TOLERANCE = 1e-8


class Recalibration(NamedTuple):
    """A coefficient, and what it is about without each group, (G,)."""

    value: float
    left_out: np.ndarray


def calibrations(
    model: str, claims: Sequence[Claim], groups: Any, weights: np.ndarray | None = None, *, decides: bool
) -> tuple[Calibration, ...]:
    """All about the first claims; where a verdict hangs on the error, also about those of the others that decide it."""
    import pandas as pd

    codes = pd.factorize(pd.Series(groups))[0]
    deciding = _deciding(claims[MOST_CLAIMS:], codes, weights) if decides else ()
    return tuple(calibration(model, claim, codes, weights) for claim in (*claims[:MOST_CLAIMS], *deciding))


def _deciding(claims: Iterable[Claim], codes: np.ndarray, weights: np.ndarray | None) -> tuple[Claim, ...]:
    """Of claims the one that is farthest off by its upper end, and the first whose error cannot be measured."""
    farthest: tuple[float, Claim] | None = None
    unmeasured = None
    for claim in claims:
        try:
            high = debiased_error(claim.so.astype("float64"), claim.probability, codes, weights).high
        except EvaluationError:
            unmeasured = unmeasured or claim
            continue
        if farthest is None or high > farthest[0]:
            farthest = (high, claim)
    return tuple(claim for claim in (unmeasured, farthest and farthest[1]) if claim is not None)


def calibration(model: str, claim: Claim, groups: Any, weights: np.ndarray | None = None) -> Calibration:
    """All about one claim. What cannot be measured is None with its reason; nothing is raised for too few groups."""
    import numpy as np
    import pandas as pd

    came_true, claimed = claim.so.astype(np.float64), claim.probability
    estimates: dict[str, Estimate] = {}
    reasons = []
    for name, measure in (("error", debiased_error), ("intercept", intercept), ("slope", slope)):
        try:
            estimates[name] = measure(came_true, claimed, groups, weights)
        except EvaluationError as error:
            reasons.append(f"{name}: {error.problem}")
    bands = reliability_bands(came_true, claimed, groups, weights)
    return Calibration(
        model=model, claim=claim.name, rows=len(claimed), groups=pd.Series(groups).nunique(),
        bands=bands, reasons=tuple(reasons), **estimates,
    )  # fmt: skip


def debiased_error(
    came_true: np.ndarray, claimed: np.ndarray, groups: Any, weights: np.ndarray | None = None
) -> Estimate:
    """Root mean square distance of probability and share over ten bins of equal mass, without what chance adds.

    Its square is what is estimated; where that comes out below 0, the value is 0 and keeps its room above. Raises
    EvaluationError on fewer than 8 groups.
    """
    codes = group_codes(groups, len(claimed))
    square = jackknife_estimate(*squared_error_left_out(came_true, claimed, codes, weights))
    at_least, reach = max(0.0, square.value), square.high - square.value
    value, low, high = math.sqrt(at_least), math.sqrt(max(0.0, square.low)), math.sqrt(at_least + reach)
    # Of the root: the wider half of the interval over the same t.
    spread = max(high - value, value - low) * square.standard_error / reach if reach > 0 else 0.0
    return Estimate(value=value, low=low, high=high, standard_error=spread, groups=square.groups)


def squared_error_left_out(
    came_true: np.ndarray, claimed: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """The mean square distance from pairs of groups, and it without each group, (G,). The bins of all rows are kept."""
    import numpy as np

    bins = _joined_bins(equal_mass_bins(claimed), codes)
    count = int(bins.max()) + 1
    shape = (int(codes.max()) + 1, count)
    cells, size = codes * count + bins, shape[0] * count
    off = claimed - came_true if weights is None else (claimed - came_true) * weights
    excess = np.bincount(cells, weights=off, minlength=size).reshape(shape)
    rows = np.bincount(cells, weights=weights, minlength=size).reshape(shape).astype(np.float64)
    by_group = (excess, excess**2, rows, rows**2)
    whole = _of_pairs(*(group_sums.sum(axis=0) for group_sums in by_group))
    return float(whole), _of_pairs(*(sums_without_each(group_sums) for group_sums in by_group))


def _joined_bins(bins: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Bins `(N,)`, those of fewer than three groups joined with their neighbours: rising, the last one downwards."""
    import numpy as np

    count = int(bins.max()) + 1
    there = np.zeros((int(codes.max()) + 1, count), dtype=bool)
    there[codes, bins] = True
    joined, at, held = np.zeros(count, dtype=np.int64), 0, there[:, 0]
    for place in range(count):
        if place and np.count_nonzero(held) >= _GROUPS_OF_BIN:
            at, held = at + 1, there[:, place]
        else:
            held = held | there[:, place]
        joined[place] = at
    if at and np.count_nonzero(held) < _GROUPS_OF_BIN:
        joined[joined == at] = at - 1
    return joined[bins]


def _of_pairs(excess: np.ndarray, squares: np.ndarray, rows: np.ndarray, row_squares: np.ndarray) -> np.ndarray:
    """Mean over bins, weighed by their rows, of the mean product of two groups' excess; sums are (..., bins)."""
    of_bins = ratio(excess**2 - squares, rows**2 - row_squares)
    return (rows * of_bins).sum(axis=-1) / rows.sum(axis=-1)


def intercept(came_true: np.ndarray, claimed: np.ndarray, groups: Any, weights: np.ndarray | None = None) -> Estimate:
    """By how much all log-odds are too low ("in the large"), with its interval by group; 0 is calibrated."""
    return _recalibrated(came_true, claimed, groups, weights, free_slope=False)


def slope(came_true: np.ndarray, claimed: np.ndarray, groups: Any, weights: np.ndarray | None = None) -> Estimate:
    """What the log-odds have to be stretched by, with its interval by group; below 1 the answers are too sure."""
    return _recalibrated(came_true, claimed, groups, weights, free_slope=True)


def _recalibrated(
    came_true: np.ndarray, claimed: np.ndarray, groups: Any, weights: np.ndarray | None, *, free_slope: bool
) -> Estimate:
    """Of a logistic regression of what came true on the claimed log-odds: its slope, or its intercept at slope 1."""
    import numpy as np

    codes = group_codes(groups, len(claimed))
    if came_true.min() == came_true.max():
        raise EvaluationError(
            "it came true of all rows or of none", value=float(came_true[0]), fix="take rows of both kinds"
        )
    clipped = np.clip(claimed, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    log_odds = np.log(clipped) - np.log1p(-clipped)
    spread = float(log_odds.std())
    if free_slope and spread < 1e-9:
        raise EvaluationError("all rows have one probability, which has no slope", fix="look at the model's answers")
    weigh = np.ones(len(claimed)) if weights is None else weights
    if not free_slope:
        return jackknife_estimate(*_fit(np.ones((len(claimed), 1)), log_odds, came_true, codes, weigh))
    # Standardised, so that the Newton system is well conditioned: log-odds reach from -16 to 16.
    design = np.stack([(log_odds - log_odds.mean()) / spread, np.ones_like(log_odds)], axis=1)
    value, left_out = _fit(design, np.zeros_like(log_odds), came_true, codes, weigh)
    return jackknife_estimate(value / spread, left_out / spread)


def _fit(
    design: np.ndarray, offset: np.ndarray, came_true: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> Recalibration:
    """The first coefficient of a logistic regression, and it without each group, one Newton step from the whole."""
    import numpy as np
    from scipy.special import expit

    coefficients = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        claimed = expit(design @ coefficients + offset)
        scores = design * (weights * (came_true - claimed))[:, None]
        spread = weights * claimed * (1 - claimed)
        curvature = (design * spread[:, None]).T @ design
        gradient = scores.sum(axis=0)
        if np.abs(gradient).max() < _TOLERANCE * weights.sum():
            return Recalibration(
                float(coefficients[0]), _without_each(coefficients, design, scores, spread, curvature, codes)
            )
        try:
            step = np.linalg.solve(curvature, gradient)
        except np.linalg.LinAlgError:
            break
        # A step of a unit of log-odds at most: far steps are those that overshoot.
        coefficients = coefficients + step * min(1.0, 1.0 / float(np.abs(step).max()))
    raise EvaluationError(
        "no coefficient is the most likely one: the probabilities separate what came true from what did not",
        fix="take more rows",
    )


def _without_each(
    coefficients: np.ndarray,
    design: np.ndarray,
    scores: np.ndarray,
    spread: np.ndarray,
    curvature: np.ndarray,
    codes: np.ndarray,
) -> np.ndarray:
    """The first coefficient without each group, (G,)."""
    import numpy as np

    count, width = int(codes.max()) + 1, design.shape[1]
    own_scores = np.stack([np.bincount(codes, weights=scores[:, i], minlength=count) for i in range(width)], axis=1)
    own_curvature = np.empty((count, width, width))
    for i in range(width):
        for j in range(i, width):
            sums = np.bincount(codes, weights=spread * design[:, i] * design[:, j], minlength=count)
            own_curvature[:, i, j] = own_curvature[:, j, i] = sums
    try:
        moved = np.linalg.solve(curvature - own_curvature, own_scores[..., None])[:, 0, 0]
    except np.linalg.LinAlgError:
        return np.full(count, np.nan)
    return coefficients[0] - moved


def reliability_bands(
    came_true: np.ndarray, claimed: np.ndarray, groups: Any, weights: np.ndarray | None = None
) -> tuple[CalibrationBand, ...]:
    """Ten bins of equal mass by rising probability, each with the share that came true and its interval by group."""
    import numpy as np
    import pandas as pd

    bins, codes = equal_mass_bins(claimed), pd.factorize(pd.Series(groups))[0]
    bands = []
    for code in np.unique(bins):
        rows = bins == code
        own = None if weights is None else weights[rows]
        share = float(np.average(came_true[rows], weights=own))
        observed, reason = None, ""
        try:
            observed = mean_estimate(came_true[rows], codes[rows], own)
        except EvaluationError as error:
            reason = error.problem
        if observed is not None:
            observed = share_estimate(observed, came_true[rows].astype(np.float64), codes[rows], own)
        bands.append(
            CalibrationBand(
                predicted=float(np.average(claimed[rows], weights=own)),
                share=share,
                rows=int(rows.sum()),
                groups=len(np.unique(codes[rows])),
                observed=observed,
                reason=reason,
            )
        )
    return tuple(bands)
