"""L2: two numbers whose sum, difference, ratio or product is the label, though neither says it alone: a total, a rate.

A label may well be the product of two honest inputs, and no statistic tells the two apart: this is told as a suspicion
that a person answers, and stops nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.leakage.binning import LabelledRows, as_numbers, cells_of
from trainworthy.lifecycle.leakage.differences import SCREEN_YOUDEN, cut_youden, screen_rows
from trainworthy.lifecycle.leakage.separability import Power, power_over_events
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "formula"
# So many of those that come nearest on a sample are measured in full: a formula is the first of them.
MEASURED = 5

Operation = Callable[[np.ndarray, np.ndarray], np.ndarray]
Formula = tuple[str, str, str]
OPERATIONS: Mapping[str, Operation] = {
    "sum": np.add, "difference": np.subtract, "ratio": np.divide, "product": np.multiply,
}  # fmt: skip


def formulas(rows: LabelledRows, contract: Contract, columns: Sequence[str]) -> list[Leak]:
    """One finding, with the formula that decides the label best, if one does.

    `columns` are the features that do not decide it alone.
    """
    numbers = {
        name: values
        for name in columns
        if contract.column(name).logical_type not in ("date", "timestamp", "boolean")
        and (values := as_numbers(rows.training[name])) is not None
    }
    count = len(OPERATIONS) * len(numbers) * (len(numbers) - 1) // 2
    if not count:
        evidence = "there are no two features of numbers"
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence=evidence)]
    chosen = screen_rows(rows, count)
    if not 0 < rows.training_labels[chosen].sum() < len(chosen):
        evidence = f"a sample of {len(chosen)} rows holds one label alone: no formula was looked at"
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence=evidence)]
    powers = {formula: _power(rows, formula) for formula in _nearest(rows, numbers, chosen)}
    deciding = [(formula, power) for formula, power in powers.items() if power.decides]
    evidence = (
        f"{len(deciding) or 'none'} of {count} sums, differences, ratios and products of two features decide the label"
    )
    if not deciding:
        return [Leak(taxon="L2", family=FAMILY, status="pass", evidence=evidence)]
    (left, name, right), power = max(deciding, key=lambda found: found[1].auc)
    suspicion = (
        f"the {name} of {left} and {right} decides {power.what}: Youden's J {power.youden:.3f}, AUC {power.auc:.3f} on "
        f"held-out rows. Is the label computed from them?"
    )
    return [
        Leak(
            taxon="L2", family=FAMILY, status="pass", columns=(left, right), observed=power.youden,
            threshold=power.copy.youden, evidence=evidence, suspicion=suspicion,
        )
    ]  # fmt: skip


def _nearest(rows: LabelledRows, numbers: Mapping[str, np.ndarray], chosen: np.ndarray) -> Iterator[Formula]:
    """The formulas with the best single cuts on the chosen rows, the best first; below the screen they are left out."""
    labels, few = rows.training_labels[chosen], {name: values[chosen] for name, values in numbers.items()}
    cuts = {
        (left, name, right): cut_youden(_computed(operation, few[left], few[right]), labels)
        for left, right in itertools.combinations(numbers, 2)
        for name, operation in OPERATIONS.items()
    }
    for formula in sorted(cuts, key=lambda one: -cuts[one])[:MEASURED]:
        if cuts[formula] >= SCREEN_YOUDEN:
            yield formula


def _power(rows: LabelledRows, formula: Formula) -> Power:
    left, name, right = formula
    values = []
    for part in (rows.training, rows.held):
        first, second = as_numbers(part[left]), as_numbers(part[right])
        assert first is not None
        assert second is not None
        values.append(pd.Series(_computed(OPERATIONS[name], first, second)))
    return power_over_events(cells_of(values[0], values[1]), rows)


def _computed(operation: Operation, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The values, NaN where there is none, as of a division by 0."""
    with np.errstate(all="ignore"):
        values = operation(left, right)
    return np.where(np.isfinite(values), values, np.nan)
