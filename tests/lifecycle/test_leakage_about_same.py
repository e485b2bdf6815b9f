"""Rows of a split by chance that come again since they are about the same thing are told from coarse ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import leakage as tables
from trainworthy.lifecycle.leakage.battery import leakage_findings
from trainworthy.lifecycle.leakage.coincidence import expected_meetings
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.spec.split import GroupSplit, HashSplit, Shares, SplitSpec

SHARES = Shares(validation=0.15, calibration=0.1, benchmark=0.2)
BY_CHANCE = HashSplit(by="hash", salt="v1", shares=SHARES, resample_by="row_id")
BY_GROUP = GroupSplit(by="group", group="pid", salt="v1", shares=SHARES, resample_by="pid")


def intervals(patients: int = 1500) -> pd.DataFrame:
    """A row a patient and interval at risk; all but the interval is the patient's, and the event ends the rows."""
    generator = np.random.default_rng(0)
    pid = np.repeat(np.arange(patients), generator.integers(1, 6, patients))
    rows = pd.DataFrame({f"x{n}": generator.normal(size=patients)[pid].round(2) for n in range(10)})
    rows["sex"] = generator.choice(["f", "m"], patients)[pid]
    rows["pid"], rows["period"] = pid, rows.groupby(pid).cumcount()
    last = ~pd.Series(pid).duplicated(keep="last")
    return rows.assign(label=(last & (generator.random(len(rows)) < 0.6)).astype("int8"))


def coarse(columns: int = 10, values: int = 3) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({f"x{n}": np.minimum(generator.poisson(0.4, 5000), values - 1) for n in range(columns)})
    return rows.assign(label=(generator.random(5000) < 0.2).astype("int8"))


def of_cities() -> pd.DataFrame:
    """Ten numbers that are each city's, and one of few values that is the row's."""
    generator = np.random.default_rng(0)
    city = generator.integers(0, 80, 5000)
    rows = pd.DataFrame({f"x{n}": generator.normal(size=80)[city] for n in range(10)})
    return rows.assign(rooms=generator.integers(1, 6, 5000), label=(generator.random(5000) < 0.2).astype("int8"))


def mostly_zeros() -> pd.DataFrame:
    """Four fifths bought nothing and differ in their age and place alone."""
    generator = np.random.default_rng(0)
    nothing = generator.random(5000) < 0.8
    rows = pd.DataFrame({f"x{n}": np.where(nothing, 0, generator.normal(size=5000)) for n in range(10)})
    rows["age"], rows["place"] = generator.integers(18, 90, 5000), generator.choice(["north", "south"], 5000)
    return rows.assign(label=(generator.random(5000) < 0.2).astype("int8"))


def near(rows: pd.DataFrame, folder: Path, split: SplitSpec = BY_CHANCE, group: str | None = None) -> Leak:
    """What near_duplicates finds, rows split by chance or by the group."""
    of_group = pd.factorize(rows[group])[0] if group else np.arange(len(rows))
    drawn = np.random.default_rng(1).choice(list(tables.SHARES), of_group.max() + 1, p=[0.55, 0.15, 0.1, 0.2])
    rows = rows.assign(row_id=np.arange(len(rows)), split=drawn[of_group])
    contract = tables.contract_of(rows)
    (found,) = (
        one for one in leakage_findings(tables.written(rows, folder), contract, split)
        if one.family == "near_duplicates"
    )  # fmt: skip
    return found


def test_rows_of_a_patient_on_both_sides_of_a_split_by_chance_are_told_with_the_column(tmp_path):
    found = near(intervals(), tmp_path)
    assert (found.status, found.columns) == ("warning", ("pid",))
    assert "rows come again because they are about the same pid" in found.evidence
    assert "trainworthy new --group pid" in found.fix
    assert found.observed is not None
    assert found.observed > 0.6


def test_without_a_column_that_names_them_the_rows_are_told_all_the_same(tmp_path):
    found = near(intervals().drop(columns="pid"), tmp_path)
    assert (found.status, found.columns) == ("warning", ())
    assert "about the same things" in found.evidence
    assert "give the rows a column that names what each is about" in found.fix


def test_rows_of_a_patient_that_lie_in_one_split_pass(tmp_path):
    assert near(intervals(), tmp_path, BY_GROUP, "pid").status == "pass"


@pytest.mark.parametrize("healthy", [coarse, of_cities, mostly_zeros])
def test_coarse_rows_that_repeat_by_chance_pass(tmp_path, healthy):
    found = near(healthy(), tmp_path)
    assert found.status == "pass"
    # They do come again.
    assert "training rows equal one another up to 100.00%" in found.evidence


def test_one_row_a_patient_passes(tmp_path):
    assert near(intervals().drop_duplicates("pid"), tmp_path).status == "pass"


def test_expected_meetings_are_those_of_the_column_that_makes_them_likeliest():
    # Of 4 different rows (one twice) the first column halves them, the second tells them apart.
    halves, apart = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 2, 3, 3])
    assert expected_meetings([halves, apart]) == pytest.approx([0, 0, 0, 0, 0])
    assert expected_meetings([halves, np.array([0, 1, 0, 1, 1])]) == pytest.approx([0.25] * 5)
    assert expected_meetings([halves]) == pytest.approx([0, 0, 0, 0, 0])
