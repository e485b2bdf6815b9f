"""Which values of a column share a code, and what a linear model is given."""

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.tasks.baselines import ridge
from trainworthy.lifecycle.tasks.encoding import MINIMUM_FREQUENCY, fit_encoding

# Of each value as many rows as a category needs.
REPEATED = MINIMUM_FREQUENCY


def codes_of(values: list[object], dtype: str = "object") -> list[int]:
    """A code for each of these values, which all are frequent."""
    rows = pd.DataFrame({"c": pd.Series(values * REPEATED, dtype=dtype)})
    _, codes = fit_encoding(rows, ["c"]).encode(rows)
    return codes[: len(values), 0].tolist()


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (["b", "a", None], [2, 1, 0]),
        # Another type and the same text are one category; equal numbers of other types are other texts.
        ([1, "1", True, "True"], [0, 0, 1, 1]),
        ([[1, 2], [3], [1, 2]], [0, 1, 0]),
    ],
)
def test_values_of_one_text_share_a_code(values, codes):
    assert codes_of(values) == codes


def test_categories_and_nullable_text_have_the_codes_of_plain_text():
    values = ["b", "a", None]
    assert codes_of(values, "category") == codes_of(values, "string") == codes_of(values)


def test_a_missing_number_that_no_training_row_had_is_taken_for_the_mean():
    x = np.linspace(0, 1, 50)
    predict = ridge(pd.DataFrame({"x": x}), ["x"], 3 * x, seed=0)
    assert predict(pd.DataFrame({"x": [np.nan]})) == pytest.approx([1.5])


def test_a_missing_number_has_a_weight_of_its_own_where_training_rows_had_it():
    x = np.where(np.arange(300) % 3 == 0, np.nan, 1.0)
    labels = np.where(np.isnan(x), 7.0, 2.0)
    predict = ridge(pd.DataFrame({"x": x}), ["x"], labels, seed=0)
    assert predict(pd.DataFrame({"x": [np.nan, 1.0]})) == pytest.approx([7, 2], abs=0.1)
