"""L2: a feature that is the mean of the label over rows that share something, the row itself and held-out ones too.

A shop's return rate, a movie's mean rating, made over the whole table: where such a feature has one value, the labels
of its rows have exactly that mean. A rate of earlier rows comes near it, as near as so many labels bear, and not to the
last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.leakage.binning import HELD_SPLITS, LabelledRows, as_numbers
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "label_mean"
# Values that are looked at, and the share of them that have to be exact: rows that a dataset leaves out spoil some.
FEWEST_VALUES, MOST_EXACT = 20, 0.5
# A value tells if labels bear its mean so many times less well than it is written: by chance one in ten is exact.
TELLS = 10.0
# How far from one the rise of a sample may lie, and so many of its standard errors: part of the rows are held out.
NEAR, CHANCE = 0.2, 5.0
# Digits after the point that count as rounded; more are those of a computation in 32 bits.
DIGITS, OF_A_FLOAT = 6, 1e-6
# How a share of events may be written: what it is, in words, and the share by what is written.
Written = tuple[str, Callable[[np.ndarray], np.ndarray]]
AS_IT_IS: Written = ("the mean", lambda values: values)
OF_EVENTS: tuple[Written, ...] = (
    AS_IT_IS,
    ("the mean in per cent", lambda values: values / 100),
    ("one less the mean", lambda values: 1 - values),
    ("one less the mean, in per cent,", lambda values: 1 - values / 100),
)
FIX = (
    "take the column out of the features, or compute it without the row itself and without held-out rows: of earlier "
    "rows alone, or of training rows in fit_preprocessing"
)


def label_means(written: SplitFiles, rows: LabelledRows, contract: Contract, columns: Sequence[str]) -> list[Leak]:
    """One finding for each feature that is such a mean, or one that none is.

    `columns` are the features that do not decide the label alone. All rows of those are read whose sample could be one.
    """
    kind, label = contract.label.kind, contract.label.name
    numbers = [name for name in columns if contract.column(name).logical_type in ("number", "integer")]
    if contract.label.type not in ("event", "number") or not numbers:
        evidence = "the label is no number, nor yes or no" if numbers else "no feature is a number"
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence=evidence)]
    sample = kind.checked_labels(rows.training[label].to_numpy()).astype("float64")
    ways = OF_EVENTS if contract.label.type == "event" else (AS_IT_IS,)
    could_be = {name: some for name in numbers if (some := [way for way in ways if _could_be(rows, name, sample, way)])}
    found = list(_found(written, could_be, label, contract))
    if found:
        return found
    evidence = f"none of {len(numbers)} numbers is the mean of the label over the rows that share its value"
    return [Leak(taxon="L2", family=FAMILY, status="pass", evidence=evidence)]


def _could_be(rows: LabelledRows, name: str, labels: np.ndarray, way: Written) -> bool:
    """Whether evenly drawn labels `(N,)` rise by the feature one to one, as they do by means of theirs, but for chance.

    In all rows there are several of a value; of a sample each may have one.
    """
    values = as_numbers(rows.training[name])
    if values is None:
        return False
    values = way[1](values)
    known, is_whole = np.isfinite(values), len(values) == rows.training_counts.sum()
    different = len(np.unique(values[known]))
    if different < FEWEST_VALUES or (is_whole and different > known.sum() / 2) or values[known].std() == 0:
        return False
    even = known & rows.training_even
    feature, label = values[even] - values[even].mean(), labels[even] - labels[even].mean()
    if (squares := float(feature @ feature)) == 0:
        return False
    slope = float(feature @ label) / squares
    return abs(slope - 1) <= NEAR + CHANCE * float((label - slope * feature).std()) / math.sqrt(squares)


def _found(
    written: SplitFiles, ways: Mapping[str, Sequence[Written]], label: str, contract: Contract
) -> Iterator[Leak]:
    splits = ("training", *HELD_SPLITS)
    stored = {split: written.read(split, [label])[label] for split in splits} if ways else {}
    by_split = {
        split: contract.label.kind.checked_labels(part.to_numpy()).astype("float64") for split, part in stored.items()
    }
    for name, some in ways.items():
        parts = {split: written.read(split, [name])[name].to_numpy("float64", na_value=np.nan) for split in splits}
        for held, (words, share) in product((True, False), some):
            chosen = splits if held else splits[:1]
            values, labels = (np.concatenate([of[split] for split in chosen]) for of in (parts, by_split))
            exact, told = exact_means(share(values), labels)
            if told >= FEWEST_VALUES and exact >= MOST_EXACT * told:
                over = "all rows, held-out ones and the row itself among them" if held else "training rows, itself too"
                evidence = f"in {exact:,} of {told:,} values it is {words} of the label over {over}"
                yield Leak(
                    taxon="L2", family=FAMILY, status="fail", columns=(name,), observed=exact / told,
                    threshold=MOST_EXACT, evidence=evidence, fix=FIX,
                )  # fmt: skip
                break


def exact_means(values: np.ndarray, labels: np.ndarray) -> tuple[int, int]:
    """How many values `(N,)` are the mean of the labels `(N,)` of their rows, and of how many that could be told.

    It can't where all labels of a value are alike, or so many rows have it that any mean would be as near.
    """
    known = np.isfinite(values)
    different, codes = np.unique(values[known], return_inverse=True)
    counts = np.bincount(codes)
    means = np.bincount(codes, labels[known]) / counts
    squares = np.bincount(codes, (labels[known] - means[codes]) ** 2)
    error = np.sqrt(squares / np.maximum(counts - 1, 1) / counts)
    precision = np.maximum(_written_to(different), OF_A_FLOAT * np.abs(different))
    tells = (counts > 1) & (error > TELLS * precision)
    return int((np.abs(means - different)[tells] <= precision[tells]).sum()), int(tells.sum())


def _written_to(values: np.ndarray) -> float:
    """Half a unit of the last digit that the values are written to."""
    for digits in range(DIGITS):
        if np.abs(values - values.round(digits)).max(initial=0.0) < 1e-9:
            return 0.5 * 10.0**-digits
    return 0.5 * 10.0**-DIGITS
