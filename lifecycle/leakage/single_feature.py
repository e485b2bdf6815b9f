"""L2: a feature that alone decides the label is the label in disguise, or was written with it.

A value, a bin of values or a category stands for the label; whether numbers were scaled, shuffled into codes, rounded
or made noisy does not matter. Whether a feature is known at prediction time no statistic can tell: a delay of
departure has an AUC of 0.887 and looks like an honest strong feature. That is what availableAt declares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.binning import Cells, LabelledRows, values_of
from trainworthy.lifecycle.leakage.separability import Power, power_over_events
from trainworthy.lifecycle.leakage.unreviewed import MOST, STANDARD_ERRORS, together
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "single_feature"
# An AUC that tells nothing.
CHANCE = 0.5
FEWEST_OTHERS = 2
# Rank correlation with the rows' places from which on a column goes the way of the file.
IN_ORDER = 0.99


def single_feature(rows: LabelledRows, cells: Mapping[str, Cells]) -> list[Leak]:
    """One finding for each feature that decides the label, or one that none does, with the strongest."""
    powers = {name: feature_power(rows, name, column_cells) for name, column_cells in cells.items()}
    deciding = [
        _finding(name, power, _order_words(rows.training[name])) for name, power in powers.items() if power.decides
    ]
    if deciding:
        return deciding
    strongest = max(powers, key=lambda name: powers[name].auc)
    power = powers[strongest]
    evidence = (
        f"none of {len(powers)} features decides {_a_label(power)} alone; the strongest, {strongest}, has AUC "
        f"{power.auc:.3f} on held-out rows and Youden's J {power.youden:.2f}"
    )
    return [
        Leak(
            taxon="L2", family=FAMILY, status="pass", columns=(strongest,), observed=power.youden,
            threshold=rows.copy.youden, evidence=evidence,
            suspicion=_suspicion(strongest, powers),
        )
    ]  # fmt: skip


def _suspicion(strongest: str, powers: Mapping[str, Power]) -> str:
    """That one feature goes most of the way from chance to certainty, and surely tells more of the label than all
    others would if what each tells added up; empty if none does.

    Redundant features reach less than that sum, so one that beats it stands alone. One other feature is no such sum: of
    two the stronger always beats the other.
    """
    alone, other_aucs = powers[strongest], [power.auc for name, power in powers.items() if name != strongest]
    if len(other_aucs) < FEWEST_OTHERS or not all(map(math.isfinite, (alone.auc, *other_aucs))):
        return ""
    others = together(other_aucs)
    if alone.auc - STANDARD_ERRORS * alone.auc_error <= others or alone.auc - CHANCE <= MOST * (1 - CHANCE):
        return ""
    return (
        f"{strongest} alone has AUC {alone.auc:.3f} on held-out rows, more than the other {len(other_aucs)} features "
        f"would have if what each tells added up ({others:.3f}). Is its value known when the model is asked?"
    )


def feature_power(rows: LabelledRows, name: str, cells: Cells) -> Power:
    """The larger power of a column's bins and of its single values."""
    of_bins = power_over_events(cells, rows)
    values = values_of(rows.training[name], rows.held[name], cells)
    if values is None:
        return of_bins
    of_values = power_over_events(values, rows)
    return max(of_bins, of_values, key=lambda power: (power.decides, power.auc))


def _order_words(values: pd.Series) -> str:
    """What else may be mended where the column goes the way of the file; "" where it does not."""
    if not pd.api.types.is_numeric_dtype(values) or not abs(values.rank().corr(_places(values))) >= IN_ORDER:
        return ""
    return (
        "; it goes up or down along the file: if that is time, split by it (trainworthy new --time), since a split by "
        "chance has each row's neighbours in time on its other sides"
    )


def _places(values: pd.Series) -> pd.Series:
    return pd.Series(range(len(values)), index=values.index, dtype="float64")


def _finding(name: str, power: Power, order_words: str) -> Leak:
    evidence = (
        f"one set of its values decides {power.what}: Youden's J {power.youden:.3f} (a copy of the label has 1, one "
        f"with 5 % of its values flipped 0.9), AUC {power.auc:.3f} on held-out rows; decisive from J "
        f"{power.copy.youden} or AUC {power.copy.auc}"
    )
    return Leak(
        taxon="L2", family=FAMILY, status="fail", columns=(name,), observed=power.youden, threshold=power.copy.youden,
        evidence=evidence, fix=fix_of(FAMILY) + order_words,
    )  # fmt: skip


def _a_label(power: Power) -> str:
    return f"a label (nearest: {power.event})" if power.copy.of_one_event else "the label"
