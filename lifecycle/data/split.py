"""Splits by time: training, validation, calibration and benchmark follow each other, the embargo apart."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from lifecycle.checks import CheckResult, holds
from lifecycle.errors import DatasetError
from lifecycle.evaluation.interval import MINIMUM_GROUPS
from lifecycle.use_case import SplitSpec, days

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("training", "validation", "calibration", "benchmark")


def split_columns(spec: SplitSpec) -> tuple[str, ...]:
    """The columns that decide where a row goes, and its group."""
    return (spec.column, spec.resample_by)


def split_by_time(frame: pd.DataFrame, spec: SplitSpec) -> dict[str, pd.DataFrame]:
    """Rows of each split, by whole days of spec.column, so that no tie is cut.

    The benchmark is the newest window; calibration, validation and training lie before it, each
    after a gap of the embargo. Rows inside a gap belong to no split. Raises DatasetError if the rows
    do not span enough days.
    """
    day = day_of(frame, spec.column)
    gap, ends = days(spec.embargo), int(day.max())
    cuts: dict[str, tuple[int, int]] = {}
    lengths = {"benchmark": spec.benchmark.window, "calibration": spec.calibration, "validation": spec.validation}
    for name, length in lengths.items():
        cuts[name] = (ends - days(length) + 1, ends)
        ends = cuts[name][0] - gap - 1
    first = int(day.min())
    if ends < first:
        raise DatasetError(
            "the rows span too few days for the declared splits",
            value=f"{int(day.max()) - first + 1} days",
            fix="use a later dataset version, or shorter validation, calibration or benchmark windows",
        )
    cuts["training"] = (first, ends)
    return {name: frame[(day >= cuts[name][0]) & (day <= cuts[name][1])] for name in SPLITS}


def splits_check(splits: dict[str, pd.DataFrame], spec: SplitSpec, label: str) -> CheckResult:
    """Fails if a split is empty or has one class only, or if two splits overlap or lie closer than the embargo.

    Validation and benchmark are judged with intervals by group, so they need enough groups: found missing after the
    pilot, it would have cost the pilot.
    Looks at the rows that were cut, not at how they were cut.
    """
    problems = [f"{name} has no rows" for name in SPLITS if not len(splits[name])]
    problems += [
        f"{name} has one class only" for name in SPLITS if len(splits[name]) and splits[name][label].nunique() < 2
    ]
    for name in ("validation", "benchmark"):
        groups = int(splits[name][spec.resample_by].nunique())
        if len(splits[name]) and groups < MINIMUM_GROUPS:
            problems.append(f"{name} has {groups} groups of {spec.resample_by}; intervals need {MINIMUM_GROUPS}")
    if not problems:
        spans = {name: day_of(splits[name], spec.column) for name in SPLITS}
        for before, after in itertools.pairwise(SPLITS):
            gap = int(spans[after].min()) - int(spans[before].max()) - 1
            if gap < days(spec.embargo):
                problems.append(f"{before} ends {gap} whole days before {after}; the embargo is {spec.embargo}")
    told = "; ".join(problems) or ", ".join(f"{name} {span(splits[name], spec.column)}" for name in SPLITS)
    fix = "use other windows in split, or a dataset version with more rows" if problems else ""
    return holds("splits", not problems, evidence=told, fix=fix)


def span(rows: pd.DataFrame, column: str) -> str:
    """First and last value of a column, as text."""
    return f"{rows[column].min()} to {rows[column].max()}"


def day_of(frame: pd.DataFrame, column: str) -> pd.Series:
    """Number of the day of a date or timestamp, in the column's own time zone. Raises DatasetError."""
    import pandas as pd

    values = frame[column]
    if pd.api.types.infer_dtype(values, skipna=True) == "date":
        # Parquet's date32 is read as Python dates.
        values = pd.to_datetime(values)
    if not pd.api.types.is_datetime64_any_dtype(values):
        fix = "name a date or timestamp column in split.column"
        raise DatasetError(f"the split column {column} is not a date or timestamp", value=str(values.dtype), fix=fix)
    if values.isna().any() or not len(values):
        fix = "require the column in contract.yaml"
        raise DatasetError(f"the split column {column} is empty or has nulls", value=int(values.isna().sum()), fix=fix)
    local = values.dt.tz_localize(None)
    return (local.dt.normalize() - pd.Timestamp(0)).dt.days
