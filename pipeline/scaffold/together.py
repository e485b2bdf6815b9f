"""Rows that belong together though no name says so: each value of a column has many rows, and all of them one label.

Windows of one recording, pictures of one patient: a model that has met some rows of it knows the label of the others.
Such a column decides the label, as a copy of it does. A copy has about as many values as there are labels, and a number
that the label is made of decides it by its order.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd
from pandas.api import types

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.pipeline.scaffold.roles import label_events, least_alone_auc
from trainworthy.pipeline.scaffold.shares import LEAST_GROUPS, SHARES, are_groups

# Of fewer values of a class the smallest split may be expected to get none.
LEAST_OF_A_CLASS = math.ceil(1 / min(SHARES.validation, SHARES.calibration, SHARES.benchmark))
# A class of fewer values on average has none to learn from beside one to be measured on.
_VALUES_A_CLASS = 2
# Stretches in the order of a number that a rule may give a class: the middle of it, or both its ends.
_STRETCHES_A_CLASS = 2


@dataclass(frozen=True)
class Together:
    """A column, each value of which has rows of one label; how many values, and of the class that has the fewest."""

    name: str
    values: int
    of_a_class: int
    can_split: bool

    def remark(self, split_by: str | None, *, has_times: bool) -> str:
        """Why it is no input, and what to do; `split_by` is the column of whole groups, None where there is none."""
        alike = f"left out: rows of one {self.name!r} have one label"
        if split_by == self.name:
            return f"{alike}: they belong together, so that the split goes by it (--group)"
        if split_by is not None:
            return f"{alike}, and the split goes by {split_by!r}. If it is known when you predict, set role: feature"
        if has_times:
            return (
                f"{alike}. If they belong together (a recording, a patient), keep them in one split: "
                "by: time_and_group in use_case.yaml. If it is known when you predict, set role: feature"
            )
        if self.can_split:
            return f"{alike}. If they belong together (a recording, a patient), split by it: --group {self.name}"
        return (
            f"{alike}. If they belong together (a recording, a patient), a split by it needs about {LEAST_GROUPS} "
            f"values, {LEAST_OF_A_CLASS} of each class, and it has {self.values}, {self.of_a_class} of one class: give "
            "more of them. If it is written down with the outcome, it is a leak; if known before, set role: feature"
        )


def find_together(rows: pd.DataFrame, label: Label, known: Collection[str | None]) -> list[Together]:
    """The columns of text or whole numbers whose values have rows of one label each, those of the fewest values first.

    None for a label that is no class. `known` are columns of which the meaning is known: target, key, time.
    """
    if label.type not in ("event", "class"):
        return []
    labelled = with_label(rows, label)
    names = [str(name) for name in rows.columns if name not in known and _may_name(labelled[name])]
    found = [together for name in names if (together := _together(labelled[name], labelled[label.name], label))]
    return sorted(found, key=lambda together: together.values)


def _may_name(values: pd.Series) -> bool:
    """Texts or whole numbers, each known, that come again."""
    named = types.is_string_dtype(values.dtype) or types.is_integer_dtype(values.dtype)
    return named and not values.isna().any() and 2 * values.nunique() <= len(values)


def _together(values: pd.Series, labels: pd.Series, label: Label) -> Together | None:
    by_value = labels.groupby(values)
    if (by_value.nunique() != 1).any():
        return None
    # In the order of the values.
    label_of = by_value.first()
    of_a_class = label_of.value_counts()
    if len(label_of) < _VALUES_A_CLASS * len(of_a_class):
        return None
    stretches = int((label_of != label_of.shift()).sum())
    if types.is_integer_dtype(values.dtype) and stretches <= _STRETCHES_A_CLASS * len(of_a_class):
        return None
    # Values of one row each have one label, too, and say nothing.
    perfect = label.kind.copy.auc
    if least_alone_auc(values.astype("str"), label_events(labels, label), perfect) < perfect:
        return None
    fewest = int(of_a_class.min())
    return Together(str(values.name), len(label_of), fewest, are_groups(values) and fewest >= LEAST_OF_A_CLASS)
