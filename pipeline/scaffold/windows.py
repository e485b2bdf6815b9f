"""How the rows are split in time, and how large a batch and the first stages are, from what the rows hold."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from trainworthy.lifecycle.contract.draft import inline
from trainworthy.lifecycle.contract.model import Label, LabelType
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_by_time, split_by_time_and_group, splits_check
from trainworthy.lifecycle.errors import DatasetError, Problem
from trainworthy.lifecycle.spec.split import (
    BenchmarkWindow,
    GroupSplit,
    HashSplit,
    StratifiedSplit,
    TimeAndGroupSplit,
    TimeSplit,
)
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS

# Shares of the days. An interval needs 8 days; a month of days can seldom tell two models apart, so more is better.
BENCHMARK, VALIDATION, CALIBRATION = 0.18, 0.12, 0.10
LEAST_DAYS, LEAST_ROWS = 40, 1000
# Rows that smoke and pilot should see: fewer say nothing about a network.
SMOKE_ROWS, PILOT_ROWS = 500, 3000
# A pilot of 20 updates of 256 rows had learned nothing on 1,095 training rows, one of 340 updates of 32 rows had.
PILOT_UPDATES, MOST_EPOCHS = 300, 20
BATCH_SIZES = (1024, 256, 128, 64, 32)
# What each split needs of the labels.
OCCUR: dict[LabelType, str] = {
    "event": "both values of the target occur", "number": "the target varies",
    "class": "every class occurs (join rare ones into one)",
    "labels": "every label occurs (leave rare ones out)", "mask": "two classes occur",
    "text": "two different bytes occur",
}  # fmt: skip


@dataclass(frozen=True)
class Windows:
    """What use_case.yaml gets; `training` are the rows that are trained on."""

    split: TimeSplit | GroupSplit | HashSplit | StratifiedSplit
    training: int
    batch_size: int
    epochs: int
    smoke: float
    pilot: float


def choose_windows(rows: pd.DataFrame, day: str, label: Label) -> tuple[Windows | None, list[Problem]]:
    """The windows for these rows; None and why, if they are too short or a split has labels of one value only."""
    labelled = with_label(rows, label)
    days = int((labelled[day].max() - labelled[day].min()).days) + 1 if len(labelled) else 0
    problems = []
    if days < LEAST_DAYS:
        fix = f"give rows of at least {LEAST_DAYS} days: training, validation, calibration and benchmark follow in time"
        fix = f"{fix}; rows that have no order in time go without --time, by --split hash"
        problems.append(Problem("--data", "the labelled rows span too few days", fix, f"{days} days"))
    if len(labelled) < LEAST_ROWS:
        problems.append(too_few(len(labelled), LEAST_ROWS, label))
    if problems:
        return None, problems
    split = _split(days, day)
    try:
        splits = split_by_time(labelled, split)
    except DatasetError as error:
        return None, [Problem("--data", error.problem, error.fix, error.value)]
    check = splits_check(splits, split, label)
    if check.status != "pass":
        return None, [_not_split(check.evidence, splits, labelled, day, label)]
    return windows_of(split, len(splits["training"])), []


def too_few(rows: int, least: int, label: Label) -> Problem:
    """Fewer rows than `least`; of texts these are pieces."""
    if label.type == "text":
        fix = f"give more texts: of at least {least:,} pieces, about 100 kB; fewer train nothing that could be judged"
        return Problem("--data", "the texts are too short or too few", fix, f"{rows:,} different pieces")
    fix = f"give at least {least:,} rows with a label; fewer train nothing that could be judged"
    return Problem("--data", "too few rows have a label", fix, f"{rows:,} rows")


def _not_split(
    evidence: str, splits: Mapping[str, pd.DataFrame], labelled: pd.DataFrame, day: str, label: Label
) -> Problem:
    """Why time can't split these rows; a label that the newest rows cannot have yet is named as such."""
    fix = f"give rows of more days, in which {OCCUR[label.type]} throughout"
    problem = f"can't be split in time: {evidence}"
    target = label.name
    if rare := _far_apart(splits, labelled[day]):
        return Problem("--time", f"{problem}. {rare}", _FIX_OF_FAR_APART)
    newest = splits["benchmark"][target]
    if label.type != "event" or len(newest) == 0 or newest.nunique() != 1 or labelled[target].nunique() != 2:
        return Problem("--data", problem, fix)
    only, last = int(newest.iloc[0]), labelled.loc[labelled[target] != int(newest.iloc[0]), day].max()
    share = float((labelled[target] != only).mean())
    problem = (
        f"{problem}. After {last:%Y-%m-%d} all labels are {only}, while {share:.1%} of all rows have the other: does "
        "the label need time to be known (a return within 90 days, a failure during a follow-up)? Then the newest rows "
        "look alike because their follow-up is short"
    )
    fix = (
        "leave the label of rows empty whose follow-up was not over, or define it for a fixed time after the prediction"
    )
    return Problem("--target", problem, fix, target)


_FIX_OF_FAR_APART = (
    "give rows of more of them, if there are any; else leave out --time, and split by what the rows are about "
    "(--group COLUMN) or by chance (--split hash); a split in time with intervals by another column than the day "
    "(resample_by) is written by hand: docs/how-to/splits.md"
)


def _far_apart(splits: Mapping[str, pd.DataFrame], days: pd.Series) -> str:
    """That rows lie years or weeks apart, too few days for intervals by the day; "" where that is not what is wrong."""
    held = (splits[name] for name in ("validation", "benchmark"))
    if not any(len(rows) and rows[days.name].nunique() < MINIMUM_GROUPS for rows in held):
        return ""
    return (
        f"The rows are of {days.nunique():,} different days in {int((days.max() - days.min()).days):,}, such as one a "
        f"week, a month or a year, and an interval needs {MINIMUM_GROUPS} of them in validation, and in the benchmark"
    )


def recurring(rows: pd.DataFrame, label: Label, split: TimeSplit, entities: Sequence[str]) -> Iterator[str]:
    """A line for each of these columns whose values in the benchmark are in training too, and the split for new ones.

    `rows` are with and without a label.
    """
    labelled = with_label(rows, label)
    splits = split_by_time(labelled, split)
    for name in entities:
        later, known = splits["benchmark"][name].dropna().unique(), splits["training"][name].dropna().unique()
        if both := len(set(later) & set(known)):
            yield (
                f"{both:,} of the {len(later):,} values of {name!r} in the benchmark are in training too: right if the "
                f"model serves known ones; for new ones {_for_new(labelled, label, split, name)}"
            )


def _for_new(labelled: pd.DataFrame, label: Label, split: TimeSplit, name: str) -> str:
    """What to write for a benchmark of new values: by time as well, unless too few of the later rows have one."""
    apart = TimeAndGroupSplit.model_validate({**dict(split), "by": "time_and_group", "group": name})
    try:
        enough = splits_check(split_by_time_and_group(labelled, apart), apart, label).status == "pass"
    except DatasetError:
        enough = False
    if not enough:
        return f"begin anew with --group {shlex.quote(name)} in place of --time"
    return f"write split.by: time_and_group and split.group: {inline(name)} in use_case.yaml"


def windows_of(split: TimeSplit | GroupSplit | HashSplit | StratifiedSplit, training: int) -> Windows:
    """The split with batch size, epochs and shares of the first stages for so many training rows."""
    pilot = _share(PILOT_ROWS, training, 0.1, 0.5)
    batch_size, epochs = updates(training, pilot)
    return Windows(
        split=split,
        training=training,
        batch_size=batch_size,
        epochs=epochs,
        smoke=_share(SMOKE_ROWS, training, 0.01, 0.2),
        pilot=pilot,
    )


def updates(training: int, pilot: float, sizes: Sequence[int] | None = None) -> tuple[int, int]:
    """Batch size and epochs for so many training rows: large batches, but PILOT_UPDATES in the pilot's share.

    `sizes` are those to choose from, the largest first; None: BATCH_SIZES.
    """
    large = training > 50_000
    sizes = sizes or (BATCH_SIZES if large else BATCH_SIZES[1:])
    epochs = {size: math.ceil(PILOT_UPDATES / max(1, int(pilot * training) // size)) for size in sizes}
    batch_size = next((size for size in sizes if epochs[size] <= MOST_EPOCHS), sizes[-1])
    return batch_size, max(epochs[batch_size], 4 if large else 8)


def _split(days: int, day: str) -> TimeSplit:
    lengths = {
        "benchmark": max(8, round(BENCHMARK * days)),
        "validation": max(8, round(VALIDATION * days)),
        "calibration": max(4, round(CALIBRATION * days)),
    }
    return TimeSplit(
        by="time",
        column=day,
        embargo="1d",
        validation=f"{lengths['validation']}d",
        calibration=f"{lengths['calibration']}d",
        benchmark=BenchmarkWindow(window=f"{lengths['benchmark']}d", roll="each_version"),
        resample_by=day,
    )


def _share(rows_needed: int, rows: int, least: float, most: float) -> float:
    return round(min(most, max(least, rows_needed / rows)), 2)
