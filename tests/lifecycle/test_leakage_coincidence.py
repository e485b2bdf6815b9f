import numpy as np
import pandas as pd
import polars as pl
import pytest

from trainworthy.lifecycle.leakage.coincidence import coincidental

COLUMNS = ["age", "paid", "owed"]


@pytest.fixture
def file(tmp_path):
    """2,000 customers, each fifth of whom paid and owes nothing, and 50 of the others once more."""
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({"age": generator.integers(20, 60, 2000), "paid": generator.normal(size=2000),
                         "owed": generator.normal(size=2000)})  # fmt: skip
    rows.loc[rows.index % 5 == 0, ["paid", "owed"]] = 0.0
    copies = rows[rows.index % 5 > 0].head(50)
    path = tmp_path / "training.parquet"
    pd.concat([rows, copies]).to_parquet(path, index=False)
    return path


def hashes(path) -> np.ndarray:
    return pl.read_parquet(path).select(COLUMNS).hash_rows().to_numpy()


def test_rows_of_zeros_that_differ_in_one_column_are_coincidental_and_copies_are_not(file):
    of_rows, zeros = hashes(file), pl.read_parquet(file)["paid"].to_numpy() == 0
    repeated = pd.Series(of_rows).duplicated(keep=False).to_numpy()
    found = coincidental(file, COLUMNS, of_rows[repeated])
    assert set(found) == set(of_rows[repeated & zeros])
    assert len(set(of_rows[repeated & ~zeros]) - set(found)) == 50


def test_row_that_was_copied_a_hundred_times_is_no_more_likely_by_it(file):
    rows = pd.read_parquet(file)
    row = rows[rows["paid"] != 0].head(1)
    pd.concat([rows, *[row] * 100]).to_parquet(file, index=False)
    assert len(coincidental(file, COLUMNS, hashes(file)[-1:])) == 0


def test_one_column_and_no_rows_have_no_coincidence(file):
    assert len(coincidental(file, ["age"], hashes(file)[:3])) == 0
    assert len(coincidental(file, COLUMNS, hashes(file)[:0])) == 0
