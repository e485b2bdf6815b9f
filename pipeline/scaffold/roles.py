"""What each column means: the key, the inputs, and what no model should read; every guess is told."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import pandas as pd
from pandas.api import types

from trainworthy.lifecycle.contract.draft import ColumnDraft
from trainworthy.lifecycle.contract.model import Label, Role
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.leakage.before_split import power_before_split
from trainworthy.lifecycle.leakage.later_times import is_later, share_words
from trainworthy.lifecycle.tasks.free_text import is_free_text
from trainworthy.lifecycle.tasks.kind import Copy
from trainworthy.lifecycle.tasks.probabilities import auc
from trainworthy.pipeline.scaffold.clock import REMARK
from trainworthy.pipeline.scaffold.source import Kind

# Of a column of numbers, where a label has classes.
BINS = 64
# Rank correlation with time from which on a column counts as a clock: the month number of one year has 1.0.
CLOCK_CORRELATION = 0.99
# Rows that a column of whole numbers may be the numbers of. Of fewer, ages or years are all different by chance.
FEWEST_NUMBERED = 50
# Share of numbers from which on a column of texts counts as one of numbers with a few slips.
NEARLY = 0.5
# Other texts among numbers that are shown; more are values, and no mark of missing ones.
MOST_SHOWN = 3
_ONE_VALUE = "one value"
_WORDS = "free text: its words are read, without their order"
ID_NAME = re.compile(r"(^|[_\W])(id|key|uuid|guid)$|^Unnamed: \d+$", re.IGNORECASE)


def find_key(rows: pd.DataFrame, kinds: Mapping[str, Kind], time: str | None, target: str) -> tuple[str, ...]:
    """Columns that name a row: an id, a number for each row, the time, or the time and a text or an id. () if none do.

    `rows` are as the file has them; a measured number is no name, however many values it has, nor are sentences.
    """
    candidates = [name for name in rows.columns if name not in (target, time)]
    texts, ids = (
        [name for name in candidates if kinds[name] == "text" and not (time and is_free_text(rows[name]))],
        [name for name in candidates if ID_NAME.search(name) or numbers_rows(rows[name])],
    )
    timed = () if time is None else ((time,), *((time, name) for name in dict.fromkeys((*texts, *ids))))
    for names in (*((name,) for name in ids), *timed):
        part = rows[list(names)]
        if not part.isna().any(axis=None) and not part.duplicated().any():
            return names
    return ()


def numbers_rows(values: pd.Series) -> bool:
    """Whether a column counts the rows in their order, with more than half of the numbers from its first to its last.

    What is measured in any order does not, were each of its numbers another one: a sweep of speeds is an input.
    """
    if len(values) < FEWEST_NUMBERED or not types.is_integer_dtype(values.dtype) or values.isna().any():
        return False
    in_order = values.is_monotonic_increasing and values.is_unique
    return in_order and int(values.iloc[-1]) - int(values.iloc[0]) < 2 * len(values)


# Of remarks; who drafts for a use case adds its name.
_COMMAND = "contract review"


def column_roles(
    rows: pd.DataFrame,
    *,
    time: str | None,
    day: str | None,
    label: Label,
    key: Sequence[str],
    remark: str,
    group: str | None = None,
    clock: Sequence[str] = (),
    together: Mapping[str, str] | None = None,
    in_order: bool = True,
    use_case: str = "<use case>",
) -> list[ColumnDraft]:
    """The role of each column, with a remark on what was guessed; `remark` is the one on the label's column.

    Without a column `time` the rows count as written in order of time, unless `in_order` is False: then no column is a
    clock. `group` names the column that the rows are split by; `together` has the remarks on columns whose values have
    rows of one label each, `clock` the columns that are made of `time`. Remarks name commands for `use_case`.
    """
    named_roles: dict[str | None, tuple[Role, str]] = {
        time: ("event_time", "when the model is asked"),
        day: ("other", "left out: made by dataset.py; splits and intervals go by whole days"),
        label.column: ("target" if label.greater_than is None else "target_source", remark),
        group: ("entity", "left out: whole groups of it lie in one split, so the model meets new ones only"),
    }
    named_roles |= {name: ("feature", REMARK) for name in clock}
    alike: Mapping[str | None, tuple[Role, str]] = {name: ("entity", note) for name, note in (together or {}).items()}
    fixed = {name: role for name, role in (named_roles | alike).items() if name is not None}
    labelled = with_label(rows, label)
    events = label_events(labelled[label.name], label)
    times = labelled[time] if time is not None else labelled.index.to_series() if in_order else None
    groups = None if group is None else labelled[group]
    # A key that is text, such as a place, may be an input too; a number of a row never is.
    named = [name for name in key if not _is_text(rows[name]) or rows[name].nunique() > len(rows) / 2]
    drafts = []
    for name in rows.columns:
        later = None if time is None else _later(labelled[name], labelled[time])
        # By all rows, as whoever drafts the network asks it.
        is_words = is_free_text(rows[name])
        role, note = (
            fixed.get(name)
            or later
            or _role(labelled[name], events, label.kind.copy, times, name in named, is_words=is_words, groups=groups)
        )
        note = note.replace(_COMMAND, f"trainworthy {_COMMAND} {use_case}")
        if note == _ONE_VALUE:
            note = _one_value(rows[name], labelled[name])
        drafts.append(ColumnDraft(name=name, role=role, remark=note, known=name in clock))
    return drafts


def label_events(labels: pd.Series, label: Label) -> list[pd.Series]:
    """The label's events (Kind.events) as 0 and 1, the main one first."""
    checked = label.kind.checked_labels(labels)
    events = label.kind.events(checked)
    return [pd.Series(event.of_labels(checked).astype("int64"), index=labels.index) for event in events]


def _later(values: pd.Series, times: pd.Series) -> tuple[Role, str] | None:
    """The role of dates and times of which any lies after the time at which the model is asked."""
    if not types.is_datetime64_any_dtype(values.dtype):
        return None
    share = float(is_later(values, times).mean())
    if share == 0:
        return None
    return "other", (
        f"lies after {times.name!r} in {share_words(share)} of the rows, so it was written later: no input. "
        "If it is a plan that is known beforehand, make it a feature"
    )


def _one_value(values: pd.Series, labelled: pd.Series) -> str:
    """Why a column of one value is left out; where rows without a label have others, that is said."""
    other_values = values[values != labelled.iloc[0]].dropna().astype("str").unique()
    if not len(other_values):
        return f"left out: it is always {str(labelled.iloc[0])!r}"
    shown = ", ".join(repr(value) for value in other_values[:2])
    return f"left out: among labelled rows it is always {str(labelled.iloc[0])!r} (the others, {shown}, have no label)"


def _mostly_numbers(values: pd.Series) -> str:
    """What to know of texts that are nearly all numbers, empty if they are not."""
    numbers, non_numbers = numbers_among(values.dropna().astype("str"))
    if numbers < NEARLY * max(1, numbers + int(non_numbers.sum())):
        return ""
    shown = " and ".join(repr(value) for value in non_numbers.index[:MOST_SHOWN])
    return (
        f", mostly numbers). If it should be a number: the values that are none are {shown}{null_option(non_numbers)}"
    )


def null_option(non_numbers: pd.Series) -> str:
    """How to say that texts among numbers mean missing values; empty where they are too many to mean that."""
    if len(non_numbers) > MOST_SHOWN:
        return ""
    if "--" in non_numbers.index:
        # argparse takes it for the end of options, however it is given.
        return "; if that means a missing value, leave the fields empty"
    options = " ".join(f"--null={shlex.quote(str(text))}" for text in non_numbers.index)
    means = "that means a missing value" if len(non_numbers) == 1 else "these mean missing values"
    return f"; if {means}, draft the use case with {options}"


def numbers_among(texts: pd.Series) -> tuple[int, pd.Series]:
    """How many texts are numbers, and how often each of the others occurs, the most frequent first."""
    is_number = pd.to_numeric(texts, errors="coerce").notna()
    return int(is_number.sum()), texts[~is_number].value_counts()


def _role(
    values: pd.Series,
    events: Sequence[pd.Series],
    copy: Copy,
    times: pd.Series | None,
    names_rows: bool,
    *,
    is_words: bool,
    groups: pd.Series | None,
) -> tuple[Role, str]:
    known, different = int(values.notna().sum()), values.nunique()
    if names_rows:
        # What comes again in other rows names a thing, and rows only together with others.
        return "key", "" if different == known else f"left out: a part of the key. {_to_know(values)}"
    if known == 0:
        return "other", "left out: no labelled row has a value"
    if different == 1 and known == len(values):
        return "other", _ONE_VALUE
    if ID_NAME.search(str(values.name)):
        return "entity", (f"left out: its name says that it is an identifier. {_to_know(values)}")
    if numbers_rows(values):
        return "entity", "left out: it numbers the rows"
    if is_words:
        return "feature", _WORDS
    if _is_text(values) and different > known / 2:
        return "entity", f"left out: looks like an identifier (many different texts{_mostly_numbers(values) or ')'}"
    if copy.of_one_event:
        best_auc = max(alone_auc(values, event) for event in events)
    else:
        best_auc = least_alone_auc(values, events, copy.auc)
    if best_auc >= copy.auc:
        return "other", (
            f"left out: alone it predicts the target almost perfectly (AUC {best_auc:.3f}), probably a leak. "
            "If it is known when you predict, set role: feature in contract.yaml"
        )
    power = power_before_split(values, events, copy, groups)
    if power is not None and power.decides:
        return "other", (
            f"left out: one set of its values decides the target (Youden's J {power.youden:.2f}), probably a leak. "
            "If it is known when you predict and truly decides, give it role: feature and decidesLabel: why in "
            "contract.yaml"
        )
    if times is not None and not _is_text(values) and abs(values.rank().corr(times.rank())) >= CLOCK_CORRELATION:
        return "other", "left out: grows with time, so the benchmark has values that training never saw"
    return "feature", ""


def _to_know(values: pd.Series) -> str:
    """How a column that names things becomes an input."""
    command = f"{_COMMAND} --column {shlex.quote(str(values.name))} --known PT0S"
    return f"If a model shall know its values (users, products): {command}"


def least_alone_auc(values: pd.Series, events: Sequence[pd.Series], perfect: float) -> float:
    """The least AUC of this column alone over the label's events, or that of the first where it is below `perfect`.

    From `perfect` on (Kind.copy) a column is a copy of the target; on flights nothing else has as much. What is known
    only afterwards can lie far below (departure delay: 0.89), so the review stays.

    A copy of the label decides each class, and the tails of a number as well as its middle; an honest strong input only
    some of them.
    """
    # Of three events or more a class may lie between two others, which no ranking of numbers sets apart.
    ranked = _binned(values) if len(events) > 2 and not _is_text(values) and _exclude_each_other(events) else values
    least = 1.0
    for event in events:
        least = min(least, alone_auc(ranked, event))
        if least < perfect:
            break
    return least


def _exclude_each_other(events: Sequence[pd.Series]) -> bool:
    """True for classes, of which a row has one at most; False for a number above limits."""
    return bool((sum(events[1:], events[0]) <= 1).all())


def _binned(values: pd.Series) -> pd.Series:
    """Numbers and times as texts: each its own where there are few, else bins of equal mass; null stays."""
    known = values.nunique()
    places = values.rank(method="dense") if known <= BINS else (values.rank(pct=True) * BINS).round()
    return places.astype("str").where(values.notna())


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
    areas = [float(auc(labels.to_numpy(), scores.to_numpy())) for scores in both]
    return max(max(value, 1 - value) for value in areas)


def _is_text(values: pd.Series) -> bool:
    return types.is_string_dtype(values.dtype)
