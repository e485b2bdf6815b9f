"""L2: a feature that alone decides the label is the label in disguise, or was written with it.

A value, a bin of values or a category stands for the label; whether numbers were scaled, shuffled into codes, rounded
or made noisy does not matter. Whether a feature is known at prediction time no statistic can tell: a delay of
departure has an AUC of 0.887 and looks like an honest strong feature. That is what availableAt declares.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainworthy.lifecycle.leakage.binning import Cells, LabelledRows, values_of
from trainworthy.lifecycle.leakage.separability import Power, power_over_events
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "single_feature"
_FIX = (
    "take the column out of the features (another role), or build it from what is known at prediction time; if it is "
    "known then and truly decides, say so in contract.yaml (decidesLabel: why)"
)


def single_feature(rows: LabelledRows, cells: Mapping[str, Cells]) -> list[Leak]:
    """One finding for each feature that decides the label, or one that none does, with the strongest."""
    found = {name: feature_power(rows, name, one) for name, one in cells.items()}
    deciding = [_finding(name, one) for name, one in found.items() if one.decides]
    if deciding:
        return deciding
    strongest = max(found, key=lambda name: found[name].auc)
    one = found[strongest]
    evidence = (
        f"none of {len(found)} features decides {_a_label(one)} alone; the strongest, {strongest}, has AUC "
        f"{one.auc:.3f} on held-out rows and Youden's J {one.youden:.2f}"
    )
    return [
        Leak(
            taxon="L2", family=FAMILY, status="pass", columns=(strongest,), observed=one.youden,
            threshold=rows.copy.youden, evidence=evidence,
        )
    ]  # fmt: skip


def feature_power(rows: LabelledRows, name: str, cells: Cells) -> Power:
    """The larger power of a column's bins and of its single values."""
    found = power_over_events(cells, rows)
    values = values_of(rows.training[name], rows.held[name], cells)
    if values is None:
        return found
    other = power_over_events(values, rows)
    return max(found, other, key=lambda one: (one.decides, one.auc))


def _finding(name: str, found: Power) -> Leak:
    evidence = (
        f"one set of its values decides {found.what}: Youden's J {found.youden:.3f} (a copy of the label has 1, one "
        f"with 5 % of its values flipped 0.9), AUC {found.auc:.3f} on held-out rows; decisive from J "
        f"{found.copy.youden} or AUC {found.copy.auc}"
    )
    return Leak(
        taxon="L2", family=FAMILY, status="fail", columns=(name,), observed=found.youden, threshold=found.copy.youden,
        evidence=evidence, fix=_FIX,
    )  # fmt: skip


def _a_label(found: Power) -> str:
    return f"a label (nearest: {found.event})" if found.copy.of_one_event else "the label"
