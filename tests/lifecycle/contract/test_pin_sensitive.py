"""The pinned reference of a sensitive column gives nobody away: round edges, no small bin, every row counted."""

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.contract.model import Column
from trainworthy.lifecycle.contract.pin import bins_of
from trainworthy.lifecycle.errors import DatasetError

RANDOM = np.random.default_rng(0)


def bins(values, kind, sensitive=True):
    return bins_of(pd.Series(values), Column(name="x", logical_type=kind, role="other", sensitive=sensitive))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (RANDOM.lognormal(10, 1, 5000), "number"),
        (RANDOM.normal(0, 1e-4, 999), "number"),
        (np.append(RANDOM.normal(size=400), [np.inf] * 30), "number"),
        (RANDOM.integers(1_000, 90_000, 700), "integer"),
        (RANDOM.integers(2**62, 2**63 - 1, 700), "integer"),
    ],
)
def test_pinned_edges_of_a_sensitive_number_have_two_significant_digits(values, kind):
    found = bins(values, kind)
    assert len(found.edges) > 3
    assert all(float(f"{edge:.1e}") == edge for edge in found.edges)
    assert all(isinstance(edge, int) == (kind == "integer") for edge in found.edges)
    places = np.searchsorted(np.array(found.edges), values, side="right")
    assert list(found.counts) == [*np.bincount(places, minlength=len(found.edges) + 1).tolist(), 0]
    assert min(found.counts[:-1]) >= 20


def test_pinned_edges_that_coincide_once_they_are_round_are_one():
    assert bins(RANDOM.uniform(100, 150, 1000), "number").edges == (110.0, 120.0, 130.0, 140.0)


@pytest.mark.parametrize(("kind", "unit"), [("date", "D"), ("timestamp", "s")])
def test_pinned_edges_of_sensitive_instants_are_round(kind, unit):
    born = pd.Series(pd.Timestamp("1950-01-01") + pd.to_timedelta(RANDOM.integers(0, 20_000, 3000), unit="D"))
    instants = born if kind == "date" else born + pd.to_timedelta(RANDOM.integers(1, 86_400, 3000), unit="s")
    found = bins(instants, kind)
    since = [(pd.Timestamp(edge) - pd.Timestamp(0)) // pd.Timedelta(1, unit) for edge in found.edges]
    assert len(since) > 3
    step = 1000 if kind == "date" else 10**8
    assert [edge % step for edge in since] == [0] * len(since)
    places = np.searchsorted(pd.to_datetime(list(found.edges)), instants, side="right")
    assert list(found.counts) == [*np.bincount(places, minlength=len(since) + 1).tolist(), 0]
    assert min(found.counts[:-1]) >= 20


def test_pinned_edges_of_other_columns_are_exact():
    values = RANDOM.lognormal(10, 1, 500)
    assert set(bins(values, "number", sensitive=False).edges) <= set(values)


def test_pin_of_fewer_sensitive_values_than_may_be_told_is_refused():
    with pytest.raises(DatasetError, match="fewer than 20"):
        bins([7.0] * 19 + [None] * 100, "number")
