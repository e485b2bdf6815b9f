"""What `trainworthy new` makes of rows that belong together: keys of several columns, and groups that nobody named."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shop_rows import found, told

from trainworthy.pipeline.scaffold.profile import UseCaseDraft


def draft_of(rows: pd.DataFrame, folder: Path, **fields) -> UseCaseDraft:
    draft, problems = found(rows, folder, time=None, **fields)
    assert problems == []
    assert draft is not None
    return draft


def ratings(users: int = 60, movies: int = 50) -> pd.DataFrame:
    """Each pair of a user and a movie once, with a label that depends on a number with noise."""
    random = np.random.default_rng(0)
    rows = pd.MultiIndex.from_product([range(users), range(movies)], names=["user_id", "movie_id"]).to_frame(
        index=False
    )
    rows["year"] = random.integers(1950, 2000, len(rows)).astype(float)
    rows["liked"] = np.where(rows["year"] + random.normal(scale=20, size=len(rows)) > 1975, "yes", "no")
    return rows.sample(frac=0.5, random_state=0).reset_index(drop=True)


@pytest.mark.parametrize("split", ["hash", "stratified"])
def test_key_of_several_columns_without_times_is_used(tmp_path, split):
    draft = draft_of(ratings(), tmp_path, target="liked", keys=("user_id", "movie_id"), split=split)
    assert draft.key == ("user_id", "movie_id")
    assert "row" not in draft.rows.columns
    # Rows of one movie are not independent, nor are those of one user: the fewer of both are resampled.
    assert (draft.windows.split.by, draft.windows.split.resample_by) == (split, "movie_id")


def test_parts_of_a_key_that_come_again_are_told_as_left_out_with_the_way_back(tmp_path):
    draft = draft_of(ratings(), tmp_path, target="liked", keys=("user_id", "movie_id"))
    for name in draft.key:
        role, remark = remark_on(draft, name)
        assert role == "key"
        assert f"trainworthy contract review shop --column {name} --known PT0S" in remark
    (tmp_path / "alone").mkdir()
    one = draft_of(ratings().assign(visit=range(1500)), tmp_path / "alone", target="liked", keys=("visit",))
    assert remark_on(one, "visit") == ("key", "")
    assert "contract review shop --column movie_id --known PT0S" in remark_on(one, "movie_id")[1]


def test_key_of_which_a_column_has_few_values_is_resampled_by_the_other(tmp_path):
    rows = ratings(users=3, movies=1000)
    draft = draft_of(rows, tmp_path, target="liked", keys=("user_id", "movie_id"))
    assert (draft.key, draft.windows.split.resample_by) == (("user_id", "movie_id"), "movie_id")


def test_key_of_several_columns_that_repeats_is_refused(tmp_path):
    rows = pd.concat([ratings(), ratings().head(2)], ignore_index=True)
    assert "4 rows share theirs" in told(rows, tmp_path, target="liked", time=None, keys=("user_id", "movie_id"))


def recordings(a_class: int = 20, windows: int = 20) -> pd.DataFrame:
    """Windows of recordings of three movements, in no order, with a number whose mean is the recording's."""
    random = np.random.default_rng(0)
    recording = np.repeat(np.arange(3 * a_class), windows)
    rows = pd.DataFrame(
        {
            "level": random.normal(size=3 * a_class)[recording] + random.normal(size=len(recording)),
            "recording": [f"r{number:03}" for number in recording],
            "movement": np.array(["row", "pen", "trap"])[recording % 3],
        }
    )
    return rows.sample(frac=1, random_state=1).reset_index(drop=True)


def remark_on(draft: UseCaseDraft, name: str) -> tuple[str, str]:
    (column,) = (column for column in draft.columns if column.name == name)
    return column.role, column.remark


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("as_number", [False, True])
def test_column_whose_values_have_one_label_each_is_the_group(tmp_path, suffix, as_number):
    rows = recordings()
    if as_number:
        rows["recording"] = rows["recording"].str[1:].astype(int)
    draft = draft_of(rows, tmp_path, target="movement", suffix=suffix)
    assert (draft.windows.split.by, draft.windows.split.group_column) == ("group", "recording")
    told = (
        "left out: rows of one 'recording' have one label: they belong together, so that the split goes by it (--group)"
    )
    assert remark_on(draft, "recording") == ("entity", told)


def test_too_few_values_with_one_label_each_are_told_with_what_is_needed(tmp_path):
    draft = draft_of(recordings(a_class=8, windows=50), tmp_path, target="movement")
    assert draft.windows.split.by != "group"
    role, remark = remark_on(draft, "recording")
    assert role == "entity"
    assert "needs about 60 values, 10 of each class, and it has 24, 8 of one class" in remark


def test_asked_for_split_is_kept_and_the_group_is_told(tmp_path):
    draft = draft_of(recordings(), tmp_path, target="movement", split="hash")
    assert draft.windows.split.by == "hash"
    assert "split by it: --group recording" in remark_on(draft, "recording")[1]


@pytest.mark.parametrize("split", ["hash", None])
def test_column_that_names_whom_rows_are_about_is_no_input_of_a_split_by_chance(tmp_path, split):
    draft = draft_of(ratings(), tmp_path, target="liked", split=split)
    assert (draft.windows.split.by, draft.windows.split.resample_by == "user_id") == (split or "group", split is None)
    role, remark = remark_on(draft, "user_id")
    assert role == "entity"
    assert ("lie in training and in the benchmark. For new ones split by it: --group user_id" in remark) == bool(split)


def test_copy_of_the_label_stays_a_leak_and_no_group(tmp_path):
    rows = recordings().drop(columns="recording")
    place = pd.Series(pd.factorize(rows["movement"], sort=True)[0])
    # A code for each class; and a number of many values, from which the class follows by limits.
    rows["code"] = "c" + place.astype(str)
    rows["score"] = place * 100 + np.random.default_rng(0).integers(0, 30, len(rows))
    draft = draft_of(rows, tmp_path, target="movement")
    assert draft.windows.split.by != "group"
    for name in ("code", "score"):
        role, remark = remark_on(draft, name)
        assert role == "other"
        assert "probably a leak" in remark


def test_column_of_which_a_value_has_two_labels_is_an_input(tmp_path):
    rows = recordings()
    rows.loc[::10, "movement"] = "row"
    draft = draft_of(rows, tmp_path, target="movement")
    assert (draft.windows.split.by, remark_on(draft, "recording")[1][:30]) != (
        "group",
        "left out: rows of one 'recordi",
    )


def test_rows_with_times_stay_split_by_time_and_are_told_of_groups(tmp_path):
    rows = recordings()
    rows["at"] = pd.date_range("2024-01-01", periods=len(rows), freq="3h")
    rows = pd.concat([rows, rows.assign(at=rows["at"] + pd.Timedelta(minutes=1))], ignore_index=True)
    draft, problems = found(rows, tmp_path, target="movement")
    assert problems == []
    assert draft is not None
    assert draft.windows.split.by == "time"
    assert "by: time_and_group" in remark_on(draft, "recording")[1]
