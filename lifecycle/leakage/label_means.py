"""L2: a feature that is the mean of the label over rows that share something, the row itself and held-out ones too.

A shop's return rate, a movie's mean rating, made over the whole table: where such a feature has one value, the labels
of its rows have exactly that mean. A rate of earlier rows comes near it, as near as so many labels bear, and not to the
last digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.leakage.binning import HELD_SPLITS, LabelledRows, as_numbers
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "label_mean"
# Values that are looked at, and the share of them that have to be exact: rows that a dataset leaves out spoil some.
FEWEST_VALUES, MOST_EXACT = 20, 0.5
# A value tells if labels bear its mean so many times less well than it is written: by chance one in ten is exact.
TELLS = 10.0
# Digits after the point that count as rounded; more are those of a computation in 32 bits.
DIGITS, OF_A_FLOAT = 6, 1e-6
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
    if kind.answer_shape != () or not numbers:
        evidence = "no feature is a number" if kind.answer_shape == () else "the label is no number, nor yes or no"
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence=evidence)]
    found = list(_found(written, rows, [name for name in numbers if _could_be(rows, name)], label, contract))
    if found:
        return found
    evidence = f"none of {len(numbers)} numbers is the mean of the label over the rows that share its value"
    return [Leak(taxon="L2", family=FAMILY, status="pass", evidence=evidence)]


def _could_be(rows: LabelledRows, name: str) -> bool:
    """Whether labels follow the feature one to one, as far as the main event of a sample tells: a rise, and ties."""
    values = as_numbers(rows.training[name])
    if values is None:
        return False
    known = np.isfinite(values)
    spread, different = float(values[known].std()) if known.any() else 0.0, len(np.unique(values[known]))
    if spread == 0 or different < FEWEST_VALUES or different > known.sum() / 2:
        return False
    return float(np.corrcoef(values[known], rows.training_labels[known])[0, 1]) > 0


def _found(
    written: SplitFiles, rows: LabelledRows, names: Sequence[str], label: str, contract: Contract
) -> Iterator[Leak]:
    for name in names:
        parts = {split: written.read(split, [name, label]) for split in ("training", *HELD_SPLITS)}
        every = pd.concat(parts.values(), ignore_index=True)
        for held, frame in ((True, every), (False, parts["training"])):
            labels = contract.label.kind.checked_labels(frame[label].to_numpy()).astype("float64")
            exact, told = exact_means(frame[name].to_numpy("float64", na_value=np.nan), labels)
            if told >= FEWEST_VALUES and exact >= MOST_EXACT * told:
                over = "all rows, held-out ones and the row itself among them" if held else "training rows, itself too"
                evidence = f"in {exact:,} of {told:,} values it is the mean of the label over {over}"
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
