"""L2: the order of the rows, or a number that follows it, decides the label.

Rows that were exported label by label betray it by their place, and so does any number counted up along the way. The
place is compared within a group (a day): over the whole table a base rate that drifts would look like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lifecycle.leakage.cells import LabelledRows, as_numbers, cells_of
from lifecycle.leakage.finding import Finding
from lifecycle.leakage.power import DECIDES_YOUDEN, Power, power

if TYPE_CHECKING:
    import pandas as pd

FAMILY = "row_order"
UNIQUE_SHARE = 0.9
_FIX = "take the column out of the features, and number or sort the rows before the outcome is known"
_FIX_KEY = "number the rows before the outcome is known; never make a feature or a join of this key"


def row_order(rows: LabelledRows, features: Sequence[str], keys: Sequence[str], group: str) -> list[Finding]:
    """A fail for each feature, a warning for each key, that counts the rows of a group in the order of their label.

    `features` and `keys` whose values hardly ever come twice are looked at: those that could count rows.
    """
    order = _within(rows, None, group)
    counting = [name for name in (*features, *keys) if _counts_rows(rows.training[name])]
    numbers = {name: found for name in counting if (found := _within(rows, name, group)) is not None}
    deciding = [name for name, found in numbers.items() if found.decides]
    found = [_finding(name, numbers[name], name in features) for name in deciding if name in features]
    by_order = order is not None and order.decides
    # A key that counts the rows of a sorted file says no more than the file does.
    found += [_finding(name, numbers[name], False) for name in deciding if name not in features and not by_order]
    if found:
        return found
    if order is None:
        told = f"too few groups of {group} hold both labels"
        return [Finding(taxon="L2", family=FAMILY, status="not_applicable", evidence=told)]
    told = f"a row's place within its {group} has AUC {order.auc:.3f} on held-out rows"
    if by_order:
        told += "; the file is sorted by its label, and no feature carries the order"
    return [
        Finding(
            taxon="L2", family=FAMILY, status="pass", observed=order.youden, threshold=DECIDES_YOUDEN, evidence=told
        )
    ]


def _counts_rows(values: pd.Series) -> bool:
    import pandas as pd

    return pd.api.types.is_integer_dtype(values) and values.nunique() >= UNIQUE_SHARE * len(values)


def _within(rows: LabelledRows, column: str | None, group: str) -> Power | None:
    """Power of a column's rank, or of the row's place, among the rows of its group that hold both labels."""
    import numpy as np

    ranks, kept = [], []
    for part, labels in ((rows.training, rows.training_labels), (rows.held, rows.held_labels)):
        if column is not None and as_numbers(part[column]) is None:
            return None
        ranks.append(_rank(part, column, group))
        shares = part.assign(**{"\0label": labels}).groupby(group)["\0label"].transform("mean")
        kept.append(((shares > 0) & (shares < 1)).to_numpy())
    scored = rows.scored[kept[1]]
    labels, held = rows.training_labels[kept[0]], rows.held_labels[kept[1]]
    if min(np.bincount(labels, minlength=2)) < 100 or min(np.bincount(held[scored], minlength=2)) < 30:
        return None
    cells = cells_of(ranks[0][kept[0]], ranks[1][kept[1]])
    return power(cells, labels, held, scored)


def _rank(part: pd.DataFrame, column: str | None, group: str) -> pd.Series:
    """Place within the group, from 0 to 1."""
    if column is None:
        grouped = part.groupby(group)[group]
        return (grouped.cumcount() + 0.5) / grouped.transform("size")
    return part.groupby(group)[column].rank(pct=True)


def _finding(name: str, found: Power, feature: bool) -> Finding:
    told = f"its rank within a group decides the label: Youden's J {found.youden:.3f}, AUC {found.auc:.3f}"
    return Finding(
        taxon="L2", family=FAMILY, status="fail" if feature else "warning", columns=(name,), observed=found.youden,
        threshold=DECIDES_YOUDEN, evidence=told, fix=_FIX if feature else _FIX_KEY,
    )  # fmt: skip
