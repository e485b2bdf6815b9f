"""What each column means: the key, the inputs, and what no model should read; every guess is told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lifecycle.contract.draft import ColumnDraft
from lifecycle.contract.model import Role
from lifecycle.evaluation.metrics import auc
from lifecycle.leakage.later_times import is_later, share_words

if TYPE_CHECKING:
    import pandas as pd

# The area under the curve of one column alone. On flights, 0.97 marks copies of the target and nothing else;
# what is known only afterwards can lie far below (departure delay: 0.89), so the review stays.
PERFECT_AUC = 0.97
# Rank correlation with time from which on a column counts as a clock: the month number of one year has 1.0.
CLOCK_CORRELATION = 0.99
_ID_NAME = re.compile(r"(^|[_\W])(id|key|uuid|guid)$|^Unnamed: \d+$", re.IGNORECASE)


def find_key(rows: pd.DataFrame, time: str, target: str) -> tuple[str, ...]:
    """Columns that name a row: an id, the time, or the time and one column of text. () if there are none."""
    texts = [name for name in rows.columns if name != target and _is_text(rows[name])]
    ids = [name for name in rows.columns if name != target and _ID_NAME.search(name)]
    for names in (*((name,) for name in ids), (time,), *((time, name) for name in texts)):
        part = rows[list(names)]
        if not part.isna().any(axis=None) and not part.duplicated().any():
            return names
    return ()


def column_roles(
    rows: pd.DataFrame, *, time: str | None, day: str | None, target: str, key: Sequence[str], label: str
) -> list[ColumnDraft]:
    """The role of each column, with a remark on what was guessed; `target` holds 0, 1 and null.

    Without a column `time` the rows count as written in order of time.
    """
    named_roles: Mapping[str | None, tuple[Role, str]] = {
        time: ("event_time", "when the model is asked"),
        day: ("other", "made by dataset.py: splits and intervals go by whole days"),
        target: ("target", label),
    }
    fixed = {name: role for name, role in named_roles.items() if name is not None}
    labelled = rows[rows[target].notna()]
    labels = labelled[target].astype("int64")
    times = labelled[time] if time is not None else labelled.index.to_series()
    # A key that is text, such as a place, may be an input too; a number of a row never is.
    named = [name for name in key if not _is_text(rows[name]) or rows[name].nunique() > len(rows) / 2]
    drafts = []
    for name in rows.columns:
        later = _later(labelled[name], times) if time is not None else None
        role, remark = fixed.get(name) or later or _role(labelled[name], labels, times, name in named)
        drafts.append(ColumnDraft(name=name, role=role, remark=remark))
    return drafts


def _later(values: pd.Series, times: pd.Series) -> tuple[Role, str] | None:
    """The role of dates and times of which any lies after the time at which the model is asked."""
    from pandas.api import types

    if not types.is_datetime64_any_dtype(values.dtype):
        return None
    share = float(is_later(values, times).mean())
    if share == 0:
        return None
    return "other", (
        f"lies after {times.name!r} in {share_words(share)} of the rows, so it was written later: no input. "
        "If it is a plan that is known beforehand, make it a feature"
    )


def _role(values: pd.Series, labels: pd.Series, times: pd.Series, names_rows: bool) -> tuple[Role, str]:
    known, different = int(values.notna().sum()), values.nunique()
    if names_rows:
        return "key", ""
    if known == 0:
        return "other", "no value at all: no input"
    if different == 1 and known == len(values):
        return "other", "one value only: no input"
    if (_is_text(values) and different > known / 2) or _ID_NAME.search(str(values.name)):
        return "entity", "nearly every row has its own value, or the name says that it names things: no input"
    found = alone_auc(values, labels)
    if found >= PERFECT_AUC:
        return "other", (
            f"tells the target all alone (AUC {found:.3f}): a copy of it, or known only later? "
            "If it is known at the prediction time, make it a feature"
        )
    if not _is_text(values) and abs(values.rank().corr(times.rank())) >= CLOCK_CORRELATION:
        return "other", "grows with time: the benchmark has values that training never saw; no input"
    return "feature", ""


def alone_auc(values: pd.Series, labels: pd.Series) -> float:
    """Area under the curve of the best ranking that this column alone gives, or its nulls alone; 0.5 to 1."""
    if _is_text(values):
        # Without its own label, so that a rare text is no copy of its one row's label.
        groups = labels.groupby(values.fillna("\0"))
        count, total = groups.transform("count"), groups.transform("sum")
        scores = ((total - labels + labels.mean()) / count).rank(pct=True)
        return float(auc(labels.to_numpy(), scores.to_numpy()))
    nulls = values.isna()
    ranks = values.rank(pct=True).astype("float64").fillna(0.0)
    both = [ranks] + ([nulls.astype("float64")] if nulls.any() else [])
    found = [float(auc(labels.to_numpy(), scores.to_numpy())) for scores in both]
    return max(max(value, 1 - value) for value in found)


def _is_text(values: pd.Series) -> bool:
    from pandas.api import types

    return types.is_string_dtype(values.dtype)
