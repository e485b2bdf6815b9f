"""prediction_drift: does the model say other things on the benchmark than on the rows just before it?

A shift of the predictions is no fault by itself; it says that the benchmark's figures are about other rows than those
that the probabilities were calibrated on. Judged by what whole blocks of days, dealt anew to both sides, would show:
rows of a day resemble each other, and so do neighbouring days.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from trainworthy.lifecycle.distances import psi
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.statistic_columns import column_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# The usual "moderate"; below it nothing is worth a word.
PSI_FLOOR = 0.1
_MARGIN, _QUANTILE = 1.5, 0.95
_BINS, _WEEK = 10, 7
# Of fewer blocks there are too few ways to deal them: 8 give 70.
_LEAST_BLOCKS, _MOST_DEALS, _SEED = 8, 500, 0


def prediction_drift_check(benchmark: pd.DataFrame, reference: pd.DataFrame, kind: Kind) -> CheckResult:
    """PSI of the candidate's answers, benchmark against reference; both have the column group and the answers.

    If an answer has several numbers, the check is of the one that moved furthest beyond its limit.
    """
    checks = [
        _judged(benchmark, reference, column) for column in (column_of("candidate", name) for name in kind.drifting)
    ]
    return max(checks, key=_beyond)


def _beyond(check: CheckResult) -> float:
    """How often what is allowed was observed; below all where nothing could be measured."""
    if not isinstance(check.observed, float) or not isinstance(check.threshold, float):
        return -1.0
    return check.observed / check.threshold


def _judged(benchmark: pd.DataFrame, reference: pd.DataFrame, column: str) -> CheckResult:
    import numpy as np

    renames = {column: "candidate", "group": "group"}
    sides = [frame[list(renames)].rename(columns=renames).dropna() for frame in (reference, benchmark)]
    groups = [int(side["group"].nunique()) for side in sides]
    length = max(1, min(_WEEK, sum(groups) // _LEAST_BLOCKS, min(groups) // 2))
    if min(groups) < 2 or sum(number // length for number in groups) < _LEAST_BLOCKS:
        return CheckResult(
            name="prediction_drift", status="insufficient", severity="warning",
            evidence=f"{groups[0]} groups before the benchmark, {groups[1]} in it: too few for {_LEAST_BLOCKS} blocks",
            fix="use longer validation, calibration or benchmark windows",
        )  # fmt: skip
    edges = np.unique(np.quantile(sides[0]["candidate"], np.linspace(0, 1, _BINS + 1)[1:-1]))
    before, after = (_block_counts(side, edges, length) for side in sides)
    observed = float(psi(after.sum(0), before.sum(0)))
    threshold = max(PSI_FLOOR, _MARGIN * _null(np.vstack([before, after]), len(after)))
    means = [float(side["candidate"].mean()) for side in sides]
    evidence = (
        f"PSI {observed:.3f} of the {_answers(column)} on the benchmark against validation and calibration, allowed "
        f"{threshold:.3f} ({_MARGIN:g} times what blocks of {length} groups dealt anew show, at least {PSI_FLOOR:g}); "
        f"mean {means[1]:.3f}, before {means[0]:.3f}"
    )
    return CheckResult(
        name="prediction_drift", status="pass" if observed <= threshold else "fail", severity="warning",
        observed=observed, threshold=threshold, evidence=evidence,
        fix="see the snapshot's drift check for the columns that moved; calibrate on newer rows",
    )  # fmt: skip


def _answers(column: str) -> str:
    return f"answers for {column.partition(':')[2]}" if ":" in column else "answers"


def _block_counts(side: pd.DataFrame, edges: np.ndarray, length: int) -> np.ndarray:
    """Rows by block of `length` neighbouring groups and bin of the probability; the last block may be longer."""
    import numpy as np
    import pandas as pd

    group, _ = pd.factorize(side["group"], sort=True)
    blocks = max(1, (int(group.max()) + 1) // length)
    block = np.minimum(group // length, blocks - 1)
    bins = np.searchsorted(edges, side["candidate"].to_numpy(), side="right")
    width = len(edges) + 1
    return np.bincount(block * width + bins, minlength=blocks * width).reshape(blocks, width)


def _null(counts: np.ndarray, taken: int) -> float:
    """The 95 % quantile of the PSI over the ways to deal the blocks to both sides."""
    import numpy as np

    number = len(counts)
    if math.comb(number, taken) <= _MOST_DEALS:
        deals = np.array(list(itertools.combinations(range(number), taken)))
    else:
        generator = np.random.default_rng(_SEED)
        deals = np.array([generator.permutation(number)[:taken] for _ in range(_MOST_DEALS)])
    dealt = counts[deals].sum(axis=1)
    return float(np.quantile(psi(dealt, counts.sum(axis=0) - dealt), _QUANTILE))
