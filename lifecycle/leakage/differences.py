"""L2: two features whose difference is the outcome, though neither says it alone: a planned and an actual time.

Only columns of equal declared unit are compared, since other differences mean nothing; times have one by nature.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.binning import Cells, LabelledRows, as_numbers, cells_of
from trainworthy.lifecycle.leakage.separability import power_over_events
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.sampling import evenly_spread

FAMILY = "difference"
# A pair is measured in full if one cut of its difference comes near on a sample.
SCREEN_ROWS, SCREEN_VALUES, SCREEN_YOUDEN = 3_000, 600_000, 0.6
CLOCK = "hhmm"


def differences(rows: LabelledRows, contract: Contract, columns: Sequence[str]) -> list[Leak]:
    """One finding for each pair that decides the label; `columns` are the features that do not decide it alone."""
    numbers = {name: values for name in columns if (values := as_numbers(rows.training[name])) is not None}
    units = {name: _unit(contract, name) for name in numbers}
    pairs = [(a, b) for a, b in itertools.combinations(numbers, 2) if units[a] is not None and units[a] == units[b]]
    if not pairs:
        evidence = "no two features have the same declared unit"
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence=evidence)]
    leaks = [
        finding for pair in _screened(rows, contract, numbers, pairs) if (finding := _judged(rows, contract, pair))
    ]
    evidence = f"none of {len(pairs)} differences of features of one unit decides the label"
    return leaks or [Leak(taxon="L2", family=FAMILY, status="pass", evidence=evidence)]


def _unit(contract: Contract, name: str) -> str | None:
    column = contract.column(name)
    return "time" if column.logical_type in ("date", "timestamp") else column.unit


def _screened(
    rows: LabelledRows, contract: Contract, numbers: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The pairs whose difference has one cut of Youden's J above the screen, on a few rows."""
    chosen = screen_rows(rows, len(pairs))
    labels, few = rows.training_labels[chosen], {name: values[chosen] for name, values in numbers.items()}
    if not 0 < labels.sum() < len(labels):
        # A rare label that the sample misses: nothing may be left out unseen.
        return list(pairs)
    screened = []
    for a, b in pairs:
        if cut_youden(difference(few[a], few[b], _unit(contract, a)), labels) >= SCREEN_YOUDEN:
            screened.append((a, b))
    return screened


def screen_rows(rows: LabelledRows, pairs: int) -> np.ndarray:
    """Numbers of the training rows on which so many pairs are screened."""
    return evenly_spread(len(rows.training), max(200, min(SCREEN_ROWS, SCREEN_VALUES // pairs)))


def cut_youden(values: np.ndarray, labels: np.ndarray) -> float:
    """Youden's J of the best single cut of values, `(N,)`, between labels of 0 and 1, both of which there are."""
    order = np.argsort(values, kind="stable")
    up = np.cumsum(labels[order]) / labels.sum()
    down = np.cumsum(1 - labels[order]) / (len(labels) - labels.sum())
    return float(np.abs(up - down).max())


def difference(left: np.ndarray, right: np.ndarray, unit: str | None) -> np.ndarray:
    """left - right; of clock times written as hhmm the minutes between them, within half a day."""
    if unit is None or CLOCK not in unit:
        return left - right
    minutes = [value // 100 * 60 + value % 100 for value in (left, right)]
    return np.mod(minutes[0] - minutes[1] + 720, 1440) - 720


def _judged(rows: LabelledRows, contract: Contract, pair: tuple[str, str]) -> Leak | None:
    gaps = []
    for part in (rows.training, rows.held):
        left, right = (as_numbers(part[name]) for name in pair)
        assert left is not None
        assert right is not None
        gaps.append(pd.Series(difference(left, right, _unit(contract, pair[0]))))
    cells: Cells = cells_of(gaps[0], gaps[1])
    power = power_over_events(cells, rows)
    if not power.decides:
        return None
    evidence = (
        f"their difference decides {power.what}: Youden's J {power.youden:.3f}, AUC {power.auc:.3f} on held-out rows"
    )
    return Leak(
        taxon="L2", family=FAMILY, status="fail", columns=pair, observed=power.youden, threshold=power.copy.youden,
        evidence=evidence, fix=fix_of(FAMILY),
    )  # fmt: skip
