"""Means of the label as features: made over all rows, over training rows, of earlier rows, and by chance."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import leakage as tables
from trainworthy.lifecycle.leakage.label_means import exact_means


def ratings(binary: bool, seed: int = 0, rows: int = 4_000) -> pd.DataFrame:
    """The table of the other leakage tests with a shop of each row, whose labels differ."""
    generator = np.random.default_rng(seed)
    shops = generator.integers(0, 150, rows)
    rate = generator.uniform(0.2, 0.8, 150)[shops]
    labels = (generator.random(rows) < rate).astype(float) if binary else 5 * rate + generator.normal(size=rows)
    return pd.DataFrame({"shop": shops, "label": labels, "rate": rate})


def mean_of_all(made):
    return made.groupby("shop")["label"].transform("mean")


def mean_of_others(made):
    sums, counts = (made.groupby("shop")["label"].transform(how) for how in ("sum", "count"))
    return (sums - made["label"]) / (counts - 1)


def mean_of_earlier(made):
    sums = made.groupby("shop")["label"].cumsum() - made["label"]
    counts = made.groupby("shop").cumcount()
    return (sums / counts.where(counts > 0)).fillna(0.5)


def smoothed(made):
    sums, counts = (made.groupby("shop")["label"].transform(how) for how in ("sum", "count"))
    return (sums + 5) / (counts + 10)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("digits", [None, 3, 4])
def test_means_over_all_rows_are_exact_however_they_are_written(binary, digits):
    made = ratings(binary)
    values = mean_of_all(made)
    exact, told = exact_means((values if digits is None else values.round(digits)).to_numpy(), made["label"].to_numpy())
    assert told >= 20
    assert exact >= 0.9 * told


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("made_of", [mean_of_earlier, smoothed, mean_of_others, lambda made: made["rate"]])
def test_rates_of_other_rows_and_honest_scores_are_not(binary, made_of):
    made = ratings(binary)
    for digits in (2, 6):
        exact, told = exact_means(made_of(made).round(digits).to_numpy(), made["label"].to_numpy())
        assert exact < 0.3 * max(told, 1)


def test_values_that_any_mean_is_near_tell_nothing():
    labels = np.random.default_rng(0).integers(0, 2, 10_000).astype(float)
    # Of a half written to one digit, over five thousand rows, every mean is one.
    assert exact_means(np.tile([0.5, 0.4], 5_000), labels) == (0, 0)
    # Nor do rows whose labels are alike, or that stand alone.
    assert exact_means(np.repeat([0.0, 1.0], 50), np.repeat([0.0, 1.0], 50)) == (0, 0)
    assert exact_means(np.arange(100.0), labels[:100]) == (0, 0)


WRITTEN = {
    "the mean": lambda rate: rate,
    "the mean in per cent": lambda rate: (100 * rate).round(2),
    "one less the mean": lambda rate: 1 - rate,
    "one less the mean, in per cent,": lambda rate: 100 - 100 * rate,
}


@pytest.mark.parametrize(("written", "status"), [*((way, "fail") for way in WRITTEN), ("", "pass")])
def test_leakage_names_the_feature_that_is_made_of_the_label(written, status):
    rows = tables.table(7, tables.as_it_is)
    generator = np.random.default_rng(1)
    shops = generator.integers(0, 60, len(rows))
    of_shops = generator.uniform(0, 1, 60)[shops]
    rate = WRITTEN[written](rows["label"].groupby(shops).transform("mean")) if written else of_shops
    alarms = tables.alarms(rows.assign(rate=np.asarray(rate, dtype="float64")))
    found = [one for one in alarms if one.family == "label_mean"]
    assert [(one.status, one.columns) for one in found] == ([("fail", ("rate",))] if status == "fail" else [])
    assert all(f"it is {written} of the label over all rows, held-out ones" in one.evidence for one in found)
