"""How rows without times are split: by whole groups where a column names them, else by strata or the key's hash."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split.by_stratum import split_by_stratum
from trainworthy.lifecycle.data.split.check import splits_check
from trainworthy.lifecycle.data.split.hashing import split_by_group, split_by_hash
from trainworthy.lifecycle.errors import DatasetError, Problem
from trainworthy.lifecycle.spec.split import GroupSplit, HashSplit, Shares, StratifiedSplit
from trainworthy.pipeline.scaffold.windows import LEAST_ROWS, OCCUR, Windows, too_few, windows_of

if TYPE_CHECKING:
    from pathlib import Path


SHARES = Shares(validation=0.15, calibration=0.1, benchmark=0.2)
SALT = "v1"
# Of fewer rows of a class in the benchmark, a hash may leave too few there; strata give each split its share.
FEW_OF_A_CLASS = 200
# Groups need so many values, none of more than a tenth of the rows, and more than one row on average.
LEAST_GROUPS, LARGEST_GROUP, ROWS_A_GROUP = 60, 0.1, 1.2
# A mask is as many labels as it has pixels. Of 200, the benchmark has 40 and training 110.
LEAST_MASKS = 200
_GROUP_NAME = re.compile(
    r"(^|[_\W])(customer|client|patient|user|person|account|household|device|machine|store|shop|vehicle|school)s?"
    r"([_\W]?(id|key|uuid|guid|no|nr|number))?$|[_\W](id|key|uuid|guid)$",
    re.IGNORECASE,
)


def find_group(rows: pd.DataFrame, target: str, key: Sequence[str]) -> str | None:
    """A column that names whom a row is about, several rows each; None if none does."""
    for name in rows.columns:
        if name == target or name in key or not _GROUP_NAME.search(str(name)) or rows[name].isna().any():
            continue
        if are_groups(rows[name]):
            return str(name)
    return None


def are_groups(values: pd.Series) -> bool:
    """Whether there are enough values, none of them too large, and several rows of one."""
    sizes = values.value_counts()
    return bool(
        len(sizes) >= LEAST_GROUPS
        and sizes.iloc[0] <= LARGEST_GROUP * len(values)
        and len(values) >= ROWS_A_GROUP * len(sizes)
    )


def first_shares(
    rows: pd.DataFrame, label: Label, key: Sequence[str], groups: Sequence[str | None], split_kind: str | None
) -> tuple[str | None, Windows | None, list[Problem]]:
    """The first of `groups` whose split leaves each part enough, with the split; else the last one, and why not."""
    group, windows, problems = None, None, []
    for group in groups:
        windows, problems = choose_shares(rows, label, key, group, split_kind)
        if windows is not None:
            break
    return group, windows, problems


def choose_shares(
    rows: pd.DataFrame,
    label: Label,
    key: Sequence[str],
    group: str | None,
    split_kind: str | None,
    folder: Path | None = None,
) -> tuple[Windows | None, list[Problem]]:
    """The split for these rows; None and the reasons if there are too few, or a split has labels of one value only.

    `key` are the columns that name each row; `split_kind` is hash or stratified where that was asked for, `group` what
    whole groups go by; masks lie in `folder`.
    """
    labelled, least = with_label(rows, label, folder), LEAST_MASKS if label.type == "mask" else LEAST_ROWS
    if len(labelled) < least:
        return None, [too_few(len(labelled), least, label)]
    windows, problems = None, []
    for resample_by in resampled_by(labelled, key):
        windows, problems = _shares(labelled, label, key, group, split_kind, resample_by)
        if windows is not None or group is not None:
            break
    return windows, problems


def resampled_by(rows: pd.DataFrame, key: Sequence[str]) -> list[str]:
    """The key's columns by which intervals may resample, the best first.

    Rows that share a value of one of them, such as all ratings of a user, are not independent. So the column of the
    fewest values is asked first; it may have too few for an interval.
    """
    return sorted(key, key=lambda name: rows[name].nunique())


def _shares(
    labelled: pd.DataFrame,
    label: Label,
    key: Sequence[str],
    group: str | None,
    split_kind: str | None,
    resample_by: str,
) -> tuple[Windows | None, list[Problem]]:
    """The split with intervals by `resample_by`, where no group is named; None and why it can't be."""
    split = _split(labelled, label, resample_by, group, split_kind)
    try:
        splits = _rows_of(labelled, split, key, label)
    except DatasetError as error:
        return None, [Problem("--data", error.problem, error.fix, error.value)]
    check = splits_check(splits, split, label, key)
    if check.status != "pass":
        fix = _fix_of_few(labelled, label, group)
        return None, [Problem("--data", f"can't be split by {split.by}: {check.evidence}", fix)]
    return windows_of(split, len(splits["training"])), []


def _fix_of_few(labelled: pd.DataFrame, label: Label, group: str | None) -> str:
    """What to do where a split has too little: of few groups no number of rows helps."""
    more_rows = f"give more rows, in each split of which {OCCUR[label.type]}"
    if group is None:
        return more_rows
    groups = labelled[group].nunique()
    if groups >= LEAST_GROUPS:
        return f"{more_rows}, or name a --group of more values"
    return (
        f"name a --group of more values: {group} has {groups}, of which each split takes whole ones, and about "
        f"{LEAST_GROUPS} are needed. Parts of these will do (a day, a scene, a chapter), or no --group if rows of one "
        "are not alike"
    )


def _rows_of(
    labelled: pd.DataFrame, split: GroupSplit | HashSplit | StratifiedSplit, key: Sequence[str], label: Label
) -> dict[str, pd.DataFrame]:
    if isinstance(split, GroupSplit):
        return split_by_group(labelled, split)
    if isinstance(split, HashSplit):
        return split_by_hash(labelled, split, key)
    return split_by_stratum(labelled, split, key, label)


def _split(
    labelled: pd.DataFrame, label: Label, resample_by: str, group: str | None, split_kind: str | None
) -> GroupSplit | HashSplit | StratifiedSplit:
    if group is not None:
        return GroupSplit(by="group", group=group, salt=SALT, shares=SHARES, resample_by=group)
    counts = label.kind.class_rows(label.kind.checked_labels(labelled[label.name].to_numpy()))
    # Of texts these are bytes, and a split needs none of them.
    few = label.type != "text" and len(counts) > 0 and counts.min() * SHARES.benchmark < FEW_OF_A_CLASS
    if split_kind == "stratified" or (split_kind is None and few):
        return StratifiedSplit(by="stratified", salt=SALT, shares=SHARES, resample_by=resample_by)
    return HashSplit(by="hash", salt=SALT, shares=SHARES, resample_by=resample_by)
