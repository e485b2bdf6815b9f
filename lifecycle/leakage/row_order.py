"""L2: the order of the rows, or a number that follows it, decides the label.

Rows that were exported label by label betray it by their place, and so does any number counted up along the way. Only
rows of one group (a day) are compared: over the whole table a base rate that drifts would look like it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.binning import LabelledRows
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "row_order"
UNIQUE_SHARE, MINIMUM_PAIRS = 0.9, 200
# Share of pairs of a group, one of each label, that stand in the same order; a flight's place in its day has 0.62.
SAME_ORDER = 0.95
_FIX_KEY = "number the rows before the outcome is known; never make a feature or a join of this key"


def row_order(rows: LabelledRows, features: Sequence[str], keys: Sequence[str], group: str) -> list[Leak]:
    """A fail for each feature, a warning for each key, that counts the rows of a group in the order of their label.

    Of `features` and `keys` those are looked at that could count rows: integers that hardly ever come twice.
    """
    place = _same_order(rows, None, group)
    if place is None:
        evidence = f"fewer than {MINIMUM_PAIRS} pairs of both labels share a value of {group}"
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence=evidence)]
    counting = [name for name in (*features, *keys) if _counts_rows(rows.training[name])]
    shares = {name: _same_order(rows, name, group) for name in counting}
    deciding = {name: share for name, share in shares.items() if share is not None and share >= SAME_ORDER}
    findings = [_finding(name, share, group, feature=name in features) for name, share in deciding.items()]
    if place >= SAME_ORDER:
        # A key that counts the rows of a sorted file says no more than the file does.
        findings = [finding for finding in findings if finding.status == "fail"]
    evidence = f"{place:.0%} of the pairs of both labels within a {group} stand in the order of their label"
    if place >= SAME_ORDER:
        evidence += ": the file is sorted by its label, and no feature carries the order"
    passed = Leak(taxon="L2", family=FAMILY, status="pass", observed=place, threshold=SAME_ORDER, evidence=evidence)
    return findings or [passed]


def _counts_rows(values: pd.Series) -> bool:
    return pd.api.types.is_integer_dtype(values) and values.nunique() >= UNIQUE_SHARE * len(values)


def _same_order(rows: LabelledRows, column: str | None, group: str) -> float | None:
    """The smaller share of training and held-out rows, in whichever direction; None for too few pairs."""
    shares = []
    held = rows.held[rows.scored]
    for part, labels in ((rows.training, rows.training_labels), (held, rows.held_labels[rows.scored])):
        wins, pairs = _wins(part, column, group, labels)
        if pairs < MINIMUM_PAIRS:
            return None
        shares.append(wins / pairs)
    return max(min(shares), 1 - max(shares))


def _wins(part: pd.DataFrame, column: str | None, group: str, labels: np.ndarray) -> tuple[float, float]:
    """Pairs within a group of which the positive stands behind the negative (ties count half), and all pairs."""
    grouped = part.groupby(group, sort=False)
    ranks = (grouped.cumcount() + 1 if column is None else grouped[column].rank()).to_numpy(np.float64)
    known = ~np.isnan(ranks)
    codes = grouped.ngroup().to_numpy()[known]
    ranks, labels = ranks[known], labels[known]
    positives = np.bincount(codes, weights=labels)
    negatives = np.bincount(codes) - positives
    wins = np.bincount(codes, weights=ranks * labels) - positives * (positives + 1) / 2
    return float(wins.sum()), float((positives * negatives).sum())


def _finding(name: str, share: float, group: str, *, feature: bool) -> Leak:
    evidence = f"{share:.0%} of the pairs of both labels within a {group} follow it in the order of their label"
    return Leak(
        taxon="L2", family=FAMILY, status="fail" if feature else "warning", columns=(name,), observed=share,
        threshold=SAME_ORDER, evidence=evidence, fix=fix_of(FAMILY) if feature else _FIX_KEY,
    )  # fmt: skip
