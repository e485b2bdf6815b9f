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


def test_key_of_which_a_column_has_few_values_is_resampled_by_the_other(tmp_path):
    rows = ratings(users=3, movies=1000)
    draft = draft_of(rows, tmp_path, target="liked", keys=("user_id", "movie_id"))
    assert (draft.key, draft.windows.split.resample_by) == (("user_id", "movie_id"), "movie_id")


def test_key_of_several_columns_that_repeats_is_refused(tmp_path):
    rows = pd.concat([ratings(), ratings().head(2)], ignore_index=True)
    assert "4 rows share theirs" in told(rows, tmp_path, target="liked", time=None, keys=("user_id", "movie_id"))
