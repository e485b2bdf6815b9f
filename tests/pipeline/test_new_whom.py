"""What `trainworthy new` makes of a column that names whom rows are about, though its name does not say so."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shop_rows import found

from trainworthy.pipeline.scaffold.profile import UseCaseDraft
from trainworthy.pipeline.scaffold.whom import find_whom


def intervals(patients: int = 400, seed: int = 0) -> pd.DataFrame:
    """A row a patient and interval at risk, in no order; `age` and `weight` are whole numbers of the patient."""
    generator = np.random.default_rng(seed)
    pid = np.repeat(np.arange(patients), generator.integers(1, 8, patients))
    rows = pd.DataFrame({f"x{n}": generator.normal(size=patients)[pid].round(2) for n in range(5)})
    rows["age"], rows["pid"] = generator.integers(20, 90, patients)[pid], pid
    rows["cost"] = generator.integers(0, 1000, patients)[pid]
    rows["period"] = rows.groupby(pid).cumcount()
    rows["died"] = np.where(rows["x0"] + generator.normal(size=len(rows)) > 1, "yes", "no")
    return rows.sample(frac=1, random_state=0).reset_index(drop=True)


def draft_of(rows: pd.DataFrame, folder: Path, **fields) -> UseCaseDraft:
    draft, problems = found(rows, folder, **({"target": "died", "time": None} | fields))
    assert problems == []
    assert draft is not None
    return draft


def remark_on(draft: UseCaseDraft, name: str) -> tuple[str, str]:
    (column,) = (column for column in draft.columns if column.name == name)
    return column.role, column.remark


def names(rows: pd.DataFrame, target: str = "died") -> list[str]:
    return [whom.name for whom in find_whom(rows, target, ())]


@pytest.mark.parametrize("as_text", [False, True])
def test_column_whose_rows_agree_in_most_others_is_the_group_and_no_input(tmp_path, as_text):
    rows = intervals()
    if as_text:
        rows["pid"] = "p" + rows["pid"].astype(str)
    draft = draft_of(rows, tmp_path)
    assert (draft.windows.split.by, draft.windows.split.group_column) == ("group", "pid")
    role, remark = remark_on(draft, "pid")
    assert role == "entity"
    assert "rows of one 'pid' agree in 7 of the 7 columns that can tell" in remark
    assert "The split goes by it (--group)" in remark
    # What is the patient's is an input, though many values of it are one patient's.
    assert {remark_on(draft, name)[0] for name in ("age", "cost", "period", "x0")} == {"feature"}


def test_asked_for_split_by_chance_is_kept_and_the_group_is_told(tmp_path):
    draft = draft_of(intervals(), tmp_path, split="hash")
    assert draft.windows.split.by == "hash"
    role, remark = remark_on(draft, "pid")
    assert role == "entity"
    assert "Split by it: --group pid" in remark


def test_another_group_that_was_asked_for_is_kept(tmp_path):
    draft = draft_of(intervals(), tmp_path, group="age")
    assert draft.windows.split.group_column == "age"
    assert "the split goes by 'age'" in remark_on(draft, "pid")[1]


def test_split_by_time_is_kept_and_the_way_to_keep_patients_apart_is_told(tmp_path):
    rows = intervals().assign(at=lambda made: pd.Timestamp("2024-01-01") + pd.to_timedelta(made.index // 16, unit="D"))
    draft = draft_of(rows, tmp_path, time="at", keys=("at", "pid", "period"))
    assert draft.windows.split.by == "time"
    (tmp_path / "own").mkdir()
    draft = draft_of(rows.assign(visit_id=range(len(rows))), tmp_path / "own", time="at", keys=("visit_id",))
    role, remark = remark_on(draft, "pid")
    assert role == "entity"
    assert "by: time_and_group" in remark


def test_column_whose_values_were_permuted_names_nothing():
    # Without the number, and with none of the patient's that is nearly one.
    rows = intervals().drop(columns="cost")
    assert names(rows) == ["pid"]
    assert names(rows.assign(pid=np.random.default_rng(1).permutation(rows["pid"]))) == []


def test_household_of_alike_people_is_found_before_its_people():
    rows = intervals()
    generator = np.random.default_rng(2)
    rows["house"] = rows["pid"] // 3
    for name in ("x0", "x1", "x2", "x3", "x4"):
        rows[name] = generator.normal(size=400)[rows["house"]]
    assert names(rows) == ["house", "pid"]


def test_another_name_of_the_same_is_left_out_too_and_a_measure_of_it_is_not():
    rows = intervals()
    codes = np.random.default_rng(3).permutation(400)
    rows = rows.assign(called="p" + pd.Series(codes[rows["pid"]]).astype(str), wealth=1_000_003 * codes[rows["pid"]])
    assert set(names(rows)) == {"pid", "called"}


def test_districts_months_and_numbers_that_others_follow_from_name_nothing():
    generator = np.random.default_rng(0)
    count = 6000
    speed = generator.integers(0, 300, count)
    rows = pd.DataFrame({
        "district": generator.integers(0, 100, count), "month": generator.integers(1, 121, count),
        "speed": speed, "power": speed**2 + generator.normal(size=count), "torque": speed // 10,
        "heat": np.sqrt(speed), "noise": speed // 30, "died": generator.integers(0, 2, count),
    })  # fmt: skip
    rows["region"] = rows["district"] // 10
    rows["season"] = rows["month"] % 12 // 3
    for n in range(4):
        rows[f"x{n}"] = generator.normal(size=count)
    assert names(rows) == []
    assert names(rows[["speed", "power", "torque", "heat", "noise", "died"]]) == []


def test_rows_that_were_copied_make_no_name_of_their_numbers():
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({f"x{n}": generator.normal(size=1000) for n in range(5)})
    rows = rows.assign(income=generator.integers(0, 10**6, 1000), died=generator.integers(0, 2, 1000))
    assert names(pd.concat([rows] * 3, ignore_index=True)) == []


def test_few_columns_or_few_values_are_no_evidence():
    assert names(intervals()[["pid", "x0", "x1", "died"]]) == []
    assert names(intervals(patients=50)) == []


def test_measure_of_things_that_no_column_names_is_an_input():
    rows = intervals().drop(columns=["pid", "age", "cost"])
    of_patient = rows["x0"].rank(method="dense").astype(int)
    rows["size_m2"] = np.random.default_rng(1).integers(20, 5_000, of_patient.max() + 1)[of_patient]
    assert names(rows) == []


def test_attribute_of_a_part_of_the_key_is_no_name():
    rows = intervals().rename(columns={"pid": "store"})
    generator = np.random.default_rng(2)
    rows["district"] = generator.integers(0, 80, rows["store"].max() + 1)[rows["store"]]
    assert [whom.name for whom in find_whom(rows, "died", ("store", "period"))] == []
