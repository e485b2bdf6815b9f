"""Edges of a distribution: wall-clock times that no zone of this machine changes, and whole numbers of any size."""

import time

import pandas as pd
import pytest

from trainworthy.expectations.validate import validate_frame as great_expectations
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.polars_engine import validate_frame as fused
from trainworthy.lifecycle.contract.reference import Bins
from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule


@pytest.fixture
def new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_edges_in_an_hour_that_the_local_clock_skips_still_ascend():
    edges = ("2024-03-10T02:30:00", "2024-03-10T03:10:00")
    assert Bins(edges=edges, counts=(1, 1, 1, 0)).edges == edges


@pytest.mark.usefixtures("new_york")
def test_edges_that_descend_are_refused_also_where_the_local_clock_repeats_an_hour():
    with pytest.raises(ValueError, match="ascend"):
        Bins(edges=("2024-03-10T03:10:00", "2024-03-10T02:30:00"), counts=(1, 1, 1, 0))


@pytest.mark.parametrize("judge", [fused, great_expectations])
@pytest.mark.parametrize(
    ("edge", "moved"),
    [(2**63 + 10, 0), (2**63 - 1, 20), (2**64 - 1, 40), (2**64, 40)],
    ids=lambda value: f"{value:.6g}",
)
def test_distribution_of_large_whole_numbers_counts_what_lies_above_an_edge(judge, edge, moved):
    frame = pd.DataFrame({"x": pd.Series([5] * 40 + [2**63 + 5] * 20 + [2**63 + 20] * 40, dtype="uint64")})
    rule = make_rule("x.distribution", "distribution", ("x",), bound=NO_ROW, edges=[edge], counts=[60, 40, 0])
    columns = (Column(name="x", logical_type="integer", role="feature"),)
    label = Label(name="late", version=1, column="x", greater_than=0.0)
    contract = Contract(name="t", version="1", columns=columns, rules=(rule,), label=label, primary_key=())
    (result,) = judge(frame, contract)
    assert (result.error, result.count) == (None, moved)
