"""Columns of the splits' rows as cells: the bins and categories in which the target's share is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.sampling import evenly_spread
from trainworthy.lifecycle.tasks.kind import COPY_OF_CLASSES, Copy, Kind

# Enough for shares within 0.01 of the truth, and 45 columns of them cost a third of a CPU second.
TRAINING_ROWS, HELD_ROWS = 40_000, 16_000
# Of a rarer label more rows are taken, up to as many a split: rates within it are then known within 0.02.
RARE_ROWS = 2_000
HELD_SPLITS = ("validation", "calibration", "benchmark")
# No feature is judged by the labels of the benchmark: it is met once, by a candidate. duplicates.py alone reads
# them, and label_means.py, which asks whether a feature was made of them.
SCORED_SPLITS = ("validation", "calibration")
NUMERIC_BINS, MOST_VALUES = 64, 2_048


@dataclass(frozen=True)
class Cells:
    """One column: the cell of each row, 0 … count - 1. Cell 0 is null; the last is for values not in training.

    Cells of an ordered column follow its values. `distinct` is the number of values in the training rows.
    """

    training: np.ndarray
    held: np.ndarray
    count: int
    ordered: bool
    distinct: int


@dataclass(frozen=True)
class EventLabels:
    """An event of the label (Kind.events): 1 where it holds, of the training rows and of the held rows."""

    name: str
    training: np.ndarray
    held: np.ndarray


@dataclass(frozen=True)
class LabelledRows:
    """Rows of training and of the held splits, in the order in which they are written.

    Labels are those of the main event of the training rows' labels (Kind.events), 1 where it holds; `events` has the
    labels of training and held rows for each event, the main one first. `scored` are the held rows whose labels a
    column may be measured by. An `even` row is one of a sample that is evenly spread; the others are more rows of the
    rarer label, so shares of labels hold among even rows only, and rates within a label among all. `counts` are all
    rows of each label in the whole split, (of 0, of 1), read or not; `training_share` is that of the even rows.
    """

    training: pd.DataFrame
    held: pd.DataFrame
    training_labels: np.ndarray
    held_labels: np.ndarray
    held_split: np.ndarray
    scored: np.ndarray
    training_even: np.ndarray
    held_even: np.ndarray
    training_counts: np.ndarray
    scored_counts: np.ndarray
    training_share: float
    events: tuple[EventLabels, ...]
    copy: Copy = COPY_OF_CLASSES


def read_labelled(written: SplitFiles, columns: list[str], label: str, kind: Kind) -> LabelledRows:
    """About TRAINING_ROWS training rows and HELD_ROWS of each held split, evenly spread, and more of a rare label."""
    needed = list(dict.fromkeys([*columns, label]))
    most = {"training": TRAINING_ROWS} | dict.fromkeys(HELD_SPLITS, HELD_ROWS)
    stored = {name: kind.checked_labels(written.read(name, [label])[label].to_numpy()) for name in most}
    events = kind.events(stored["training"])
    labels = {name: events[0].of_labels(split_labels).astype(np.int64) for name, split_labels in stored.items()}
    counts = {name: np.bincount(split_labels, minlength=2) for name, split_labels in labels.items()}
    chosen = {
        name: sampled(split_labels, most[name], RARE_ROWS if name in ("training", *SCORED_SPLITS) else 0)
        for name, split_labels in labels.items()
    }
    parts = {name: written.read(name, needed, rows).reset_index(drop=True) for name, (rows, _) in chosen.items()}
    split = np.repeat(HELD_SPLITS, [len(parts[name]) for name in HELD_SPLITS])

    def held(values: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([values[name][chosen[name][0]] for name in HELD_SPLITS])

    training, held_stored = stored["training"][chosen["training"][0]], held(stored)
    return LabelledRows(
        training=parts["training"],
        held=pd.concat([parts[name] for name in HELD_SPLITS], ignore_index=True),
        training_labels=labels["training"][chosen["training"][0]],
        held_labels=held(labels),
        held_split=split,
        scored=np.isin(split, SCORED_SPLITS),
        training_even=chosen["training"][1],
        held_even=np.concatenate([chosen[name][1] for name in HELD_SPLITS]),
        training_counts=counts["training"],
        scored_counts=sum((counts[name] for name in SCORED_SPLITS), np.zeros(2, dtype=np.int64)),
        training_share=int(chosen["training"][1].sum()) / max(len(labels["training"]), 1),
        events=tuple(
            EventLabels(event.name, *(event.of_labels(part).astype(np.int64) for part in (training, held_stored)))
            for event in events
        ),
        copy=kind.copy,
    )


def sampled(labels: np.ndarray, most: int, rare: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending numbers of the rows to read, and which of them are the evenly spread ones, at most `most`.

    Where these hold fewer than `rare` rows of the rarer label, others of it are added, evenly spread among themselves.
    """
    even = evenly_spread(len(labels), most)
    rarer = int(2 * labels.sum() < len(labels))
    if len(even) == len(labels) or int((labels[even] == rarer).sum()) >= rare:
        return even, np.ones(len(even), dtype=bool)
    of_label = np.flatnonzero(labels == rarer)
    rows = np.union1d(even, of_label[evenly_spread(len(of_label), rare)])
    return rows, np.isin(rows, even)


def cells_of(training: pd.Series, held: pd.Series) -> Cells:
    """Values as cells of their own where there are few, else numbers and times in bins of equal mass."""
    numbers, held_numbers = as_numbers(training), as_numbers(held)
    if numbers is None or held_numbers is None:
        return _of_texts(training, held)
    known = np.unique(numbers[~np.isnan(numbers)])
    edges = known
    if len(known) > NUMERIC_BINS:
        edges = np.unique(np.quantile(numbers[~np.isnan(numbers)], np.linspace(0, 1, NUMERIC_BINS + 1)[1:-1]))
    return Cells(_binned(numbers, edges), _binned(held_numbers, edges), len(edges) + 2, True, len(known))


def values_of(training: pd.Series, held: pd.Series, cells: Cells) -> Cells | None:
    """A binned column with each value as a cell of its own: a code hides what neighbours share. None if too many."""
    if not cells.ordered or not NUMERIC_BINS < cells.distinct <= MOST_VALUES:
        return None
    return _of_texts(training, held)


def as_numbers(values: pd.Series) -> np.ndarray | None:
    """Numbers, booleans, times and durations as float64 with NaN for null; None for anything else."""
    types = pd.api.types
    if types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values):
        numbers = values.astype("int64").to_numpy().astype(np.float64)
        return np.where(values.isna(), np.nan, numbers)
    if types.is_numeric_dtype(values) or types.is_bool_dtype(values):
        floats = values.to_numpy(np.float64, na_value=np.nan)
        return np.where(np.isinf(floats), np.sign(floats) * np.finfo(np.float64).max, floats)
    return None


def _binned(numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(numbers), 0, np.searchsorted(edges, numbers, side="right") + 1)


def _of_texts(training: pd.Series, held: pd.Series) -> Cells:
    """Each of the most frequent values of training its own cell; a null is a cell too."""
    codes, names = pd.factorize(training)
    distinct = len(names)
    counts = np.bincount(codes[codes >= 0], minlength=distinct)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MOST_VALUES])
    names = pd.Index(_plain(names))[frequent]
    place = np.full(distinct + 1, len(frequent) + 1)
    place[frequent] = np.arange(len(frequent)) + 1
    place[-1] = 0
    places = names.get_indexer(pd.Index(_plain(held)))
    held_codes = np.where(held.isna().to_numpy(), 0, np.where(places < 0, len(frequent) + 1, places + 1))
    return Cells(place[codes], held_codes, len(frequent) + 2, False, distinct)


def _plain(values: Any) -> Any:
    return pd.Series(values).astype(object) if not isinstance(values, pd.Series) else values.astype(object)
