import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.evaluation.changes import (
    altered_share,
    changed,
    changes_of,
    exchange,
    exchanged,
    refused_share,
    spread,
)
from trainworthy.lifecycle.protocol.jobs import InputColumn

NUMBER = InputColumn(name="x", logical_type="number")
WHOLE = InputColumn(name="x", logical_type="integer", limits={"minimum": 0.0})
TEXT = InputColumn(name="x", logical_type="string", allowed=("a", "b", "c"), closed=True)
FLAG = InputColumn(name="x", logical_type="boolean", nullable=False)


def numbers(rows: int = 20_000) -> pd.Series:
    return pd.Series(np.random.default_rng(1).normal(5.0, 2.0, rows), name="x")


def test_jitter_moves_a_number_by_a_tenth_of_the_training_rows_spread():
    values = numbers()
    moved = changed(values, "jitter", NUMBER, values, 7) - values
    assert moved.mean() == pytest.approx(0.0, abs=0.01)
    assert moved.std() == pytest.approx(0.2, rel=0.03)
    # The same for the same seed, and missing ones stay missing.
    holed = values.mask(values > 6)
    again = changed(holed, "jitter", NUMBER, values, 7)
    assert again.isna().equals(holed.isna())


def test_spread_is_that_of_the_middle_and_outliers_do_not_move_it():
    values = numbers()
    wild = values.copy()
    wild[:50] = 1e9
    assert spread(wild) == pytest.approx(spread(values), rel=0.02) == pytest.approx(2.0, rel=0.05)
    assert spread(pd.Series([3.0] * 90 + [5.0] * 10)) == pytest.approx(0.6)
    assert spread(pd.Series([None, None], dtype="float64")) == 0.0


def test_whole_numbers_stay_whole_and_within_the_contracts_limits():
    values = pd.Series([0, 1, 2, 3] * 50, name="x")
    jittered = changed(values, "jitter", WHOLE, pd.Series([0, 40]), 0)
    assert jittered.dtype == values.dtype
    assert jittered.min() == 0
    assert not jittered.equals(values)
    assert changed(values, "thousandth", WHOLE, values, 0).tolist() == [0] * 200
    assert changed(values, "thousandfold", WHOLE, values, 0).tolist() == (values * 1000).tolist()
    # What the type cannot hold becomes a float, not another number.
    assert changed(pd.Series([2**60]), "thousandfold", WHOLE, values, 0)[0] == pytest.approx(2**60 * 1000.0)


@pytest.mark.parametrize("top", [1, 2, 3, 9])
def test_whole_numbers_of_little_spread_move_by_one_both_ways(top):
    values = pd.Series(np.random.default_rng(0).integers(0, top + 1, 4_000), name="x")
    steps = changed(values, "jitter", WHOLE.model_copy(update={"limits": {}}), values, 0) - values
    assert set(steps) == {-1, 1}
    assert steps.mean() == pytest.approx(0, abs=0.06)
    # At a limit of the contract they go back from it.
    bounded = WHOLE.model_copy(update={"limits": {"minimum": 0.0, "maximum": float(top)}})
    found = changed(values, "jitter", bounded, values, 0)
    assert (found.min(), found.max()) == (0, top)
    assert set(found - values) == {-1, 1}
    only = WHOLE.model_copy(update={"limits": {"minimum": 0.0, "maximum": 0.0}})
    assert set(changed(0 * values, "jitter", only, values, 0)) == {0}


@pytest.mark.parametrize(
    ("values", "found", "share"),
    [
        (pd.Series([1, 2]), pd.Series([1.0, 2.0]), 0.0),
        (pd.Series([1, 2]), pd.Series([1, 3], dtype="Int64"), 0.5),
        (pd.Series([1.0, None]), pd.Series([None, None], dtype=object), 0.5),
        (pd.Series([None, None], dtype=object), pd.Series([np.nan, np.nan]), 0.0),
        (pd.Series([1, None], dtype="Int64"), pd.Series([1.0, np.nan]), 0.0),
        (pd.Series(["a", "b"], dtype="category"), pd.Series(["a", "c"], dtype="category"), 0.5),
        (pd.Series(["a", "b"], dtype="category"), pd.Series(["a", "b"], dtype="str"), 0.0),
        (pd.Series([True, None], dtype=object), pd.Series([False, True]), 1.0),
        (pd.Series(pd.to_datetime(["2020-01-01"])), pd.Series([pd.NaT]), 1.0),
    ],
)
def test_share_of_values_that_are_others_is_by_value_whatever_the_types(values, found, share):
    assert altered_share(values, found) == share


def test_swapped_values_are_other_ones_as_frequent_as_among_the_others_of_the_training_rows():
    training = pd.Series(["a"] * 600 + ["b"] * 300 + ["c"] * 100, name="x")
    values = pd.Series(["a"] * 9_000 + ["b"] * 9_000 + ["never seen", None] * 2_000, name="x")
    swapped = changed(values, "swapped", TEXT, training, 3)
    assert (swapped != values).all()
    of_a, of_b, of_others = swapped[:9_000], swapped[9_000:18_000], swapped[18_000:]
    assert (of_a == "b").mean() == pytest.approx(0.75, abs=0.02)
    assert (of_b == "a").mean() == pytest.approx(6 / 7, abs=0.02)
    assert (of_others == "a").mean() == pytest.approx(0.6, abs=0.03)
    assert swapped.dtype == values.dtype
    flags = pd.Series([True, False] * 10, name="x")
    assert (changed(flags, "swapped", FLAG, flags, 0) == ~flags).all()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pd.Series([1, 2]), "float64"),
        (pd.Series([1.5, 2.5]), "float64"),
        (pd.Series(["a", "b"]), "str"),
        (pd.Series([True, False]), "object"),
        (pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"])), "datetime64[us]"),
    ],
)
def test_missing_values_have_the_form_that_a_file_gives_them(values, dtype):
    found = changed(values, "missing", NUMBER, values, 0)
    assert found.isna().all()
    assert found.dtype == dtype


def test_each_type_of_column_has_the_changes_that_mean_something_for_it():
    assert changes_of(NUMBER, numbers()) == ("jitter", "thousandfold", "thousandth", "missing")
    assert "swapped" in changes_of(WHOLE, pd.Series([0, 1] * 50))
    assert changes_of(TEXT, pd.Series(["a"])) == ("swapped", "unknown", "missing")
    assert changes_of(InputColumn(name="x", logical_type="date"), pd.Series(dtype="object")) == ("missing",)


def test_share_that_the_contract_refuses_is_counted_by_its_limits_values_and_nulls():
    bounded = NUMBER.model_copy(update={"limits": {"minimum": 0.0, "exclusive_maximum": 10.0}, "nullable": False})
    assert refused_share(pd.Series([-1.0, 0.0, 9.0, 10.0, None]), bounded, "jitter") == pytest.approx(0.6)
    assert refused_share(pd.Series([-1.0, None]), NUMBER, "jitter") == 0.0
    assert refused_share(pd.Series(["a", "d", None]), TEXT, "swapped") == pytest.approx(1 / 3)
    assert refused_share(pd.Series(["z"]), TEXT, "unknown") == 1.0


def test_exchanged_values_are_the_same_in_other_places():
    values = numbers(500)
    found = exchanged(values, exchange(500, 5))
    assert sorted(found) == sorted(values)
    assert (found != values).mean() > 0.9
    assert found.index.equals(values.index)
    assert exchanged(values, exchange(500, 5)).equals(found)


@pytest.mark.parametrize("dtype", ["str", "object", "category"])
def test_texts_of_any_dtype_are_swapped_and_unknown(dtype):
    values = pd.Series(["a", "b", "c"] * 20, name="x", dtype=dtype)
    assert (changed(values, "unknown", TEXT, values, 0) == "a value that no row has").all()
    swapped = changed(values, "swapped", TEXT, values, 0).astype("str")
    assert (swapped != values.astype("str")).all()
    assert changed(values, "missing", TEXT, values, 0).isna().all()


@pytest.mark.parametrize("dtype", ["int64", "int32", "Int64", "float32", "float64"])
def test_numbers_of_any_dtype_are_moved_and_scaled(dtype):
    values = pd.Series([1, 5, 9] * 20, name="x").astype(dtype)
    assert changed(values, "thousandfold", NUMBER, values, 0).tolist() == [1000, 5000, 9000] * 20
    assert changed(values, "jitter", NUMBER, values, 0).notna().all()
    assert changed(values, "missing", NUMBER, values, 0).isna().all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"])
def test_whole_numbers_at_both_ends_of_their_type_are_moved_beyond_it(dtype):
    limits = np.iinfo(dtype)
    values = pd.Series([limits.min, limits.max] * 20, name="x", dtype=dtype)
    found = changed(values, "jitter", WHOLE, pd.Series(np.arange(0, 1_000)), 0)
    beyond = changed(values, "thousandfold", WHOLE, values, 0)
    assert (found.notna().all(), found.dtype) == (True, "float64")
    assert beyond.tolist() == [float(limits.min) * 1000, float(limits.max) * 1000] * 20
    inside = pd.Series([limits.max // 2] * 20, name="x", dtype=dtype)
    assert changed(inside, "jitter", WHOLE, pd.Series([1, 2]), 0).dtype == dtype
    assert (
        changed(pd.Series([limits.max // 1000 + 1], dtype=dtype), "thousandfold", WHOLE, values, 0).dtype == "float64"
    )
