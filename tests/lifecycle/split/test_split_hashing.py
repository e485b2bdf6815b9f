"""Hashes that decide where a row goes may never change: not with a library, a machine, a file or a type."""

import datetime

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.data.split.hashing import deciding_hashes, row_hashes, split_of_hash
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec.split import Shares

FRAME = pd.DataFrame(
    {
        "number": [0, 1, -7],
        "text": ["", "EWR", "Zürich"],
        "time": pd.to_datetime(["1969-12-31T00:00", "2013-09-01T05:15", "2024-02-29T00:00"]),
        "share": [0.5, -2.25, 1e300],
    }
)
SHARES = Shares(validation=0.2, calibration=0.2, benchmark=0.3)


@pytest.mark.parametrize(
    ("columns", "fixed"),
    [
        (["number"], [0xF44AACC80E789C0C, 0xAAC4D7EA38AE112F, 0xEB3C50EC5EDC4037]),
        (["text"], [0x0A905D72EA4DF28D, 0xC0B4F4A62D93000C, 0x6A95AED16B43DBBE]),
        (["time"], [0xA76BD0C4AF08B95F, 0xB96A6C7F746A2ED5, 0x7788D9AF9B524786]),
        (["share"], [0x6034F221F7F6BD22, 0x217058F79DEE6C77, 0x8C2FD957CD3BD2C8]),
        (["number", "text", "time", "share"], [0xEBE3F4C1720F56C8, 0x591F1DE98369BA77, 0x2022741138739822]),
    ],
)
def test_hashes_are_the_fixed_ones(columns, fixed):
    """If this fails, rows move between training and benchmark in every project: raise HASH_VERSION, or mend it."""
    assert row_hashes(FRAME, columns, "salt").tolist() == fixed


def test_splits_of_hashes_are_the_fixed_ones():
    hashes = row_hashes(pd.DataFrame({"row": range(12)}), ["row"], "v1")
    wanted = ["b", "t", "b", "b", "t", "t", "v", "c", "t", "t", "b", "b"]
    assert [name[0] for name in split_of_hash(hashes, SHARES)] == wanted


WHOLE = pd.Series([1, 2, 3])
TEXT = pd.Series(["a", "b"])
DATES = pd.Series(pd.to_datetime(["2013-01-01", "2014-05-06"]))


@pytest.mark.parametrize(
    ("values", "other"),
    [
        (WHOLE, WHOLE.astype("float64")),
        (WHOLE, WHOLE.astype("int32")),
        (WHOLE, WHOLE.astype("uint8")),
        (WHOLE, WHOLE.astype("Int64")),
        (WHOLE, WHOLE.astype("int64[pyarrow]")),
        (WHOLE, WHOLE.astype(object)),
        (WHOLE, WHOLE.astype("category")),
        (TEXT, TEXT.astype(object)),
        (TEXT, TEXT.astype("category")),
        (TEXT, TEXT.astype("string[pyarrow]")),
        (DATES, DATES.dt.date),
        (DATES, DATES.astype("datetime64[ns]")),
        (DATES, DATES.astype("datetime64[s]")),
        (DATES.dt.tz_localize("UTC"), DATES.dt.tz_localize("UTC").dt.tz_convert("America/New_York")),
    ],
)
def test_hash_depends_on_the_value_and_not_on_how_a_file_holds_it(values, other):
    assert (row_hashes(pd.DataFrame({"x": values}), ["x"]) == row_hashes(pd.DataFrame({"x": other}), ["x"])).all()


def test_hash_of_a_whole_number_stays_when_the_column_gains_a_fraction():
    before, after = pd.DataFrame({"x": [1.0, 2.0]}), pd.DataFrame({"x": [1.0, 2.0, 2.5]})
    assert (row_hashes(after, ["x"])[:2] == row_hashes(before, ["x"])).all()


def test_hashes_of_close_values_and_of_swapped_columns_differ():
    many = pd.DataFrame({"a": np.arange(10_000), "b": np.arange(10_000)[::-1]})
    assert len(np.unique(row_hashes(many, ["a", "b"]))) == 10_000
    assert not (row_hashes(many, ["a", "b"]) == row_hashes(many, ["b", "a"])).any()
    assert not (row_hashes(many, ["a"], "v1") == row_hashes(many, ["a"], "v2")).any()


@pytest.mark.parametrize("values", [[datetime.time(3), None], [b"a", b"b"], [1, "a"], [None, None]])
def test_hash_of_any_other_value_is_that_of_its_text(values):
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    hashes = row_hashes(frame, ["x"])
    assert (hashes == row_hashes(frame, ["x"])).all()
    assert (hashes[0] == hashes[1]) == (values[0] == values[1])


def test_shares_are_met_by_hashes():
    split = split_of_hash(row_hashes(pd.DataFrame({"x": np.arange(100_000)}), ["x"], "v1"), SHARES)
    for name in ("training", "validation", "calibration", "benchmark"):
        assert (split == name).mean() == pytest.approx(SHARES.of(name), abs=0.005)


@pytest.mark.parametrize(
    ("columns", "message"), [(["x"], "decides the split and has nulls"), ([], "there is no primary key")]
)
def test_deciding_columns_with_nulls_and_none_at_all_are_refused(columns, message):
    with pytest.raises(DatasetError, match=message):
        deciding_hashes(pd.DataFrame({"x": [1, None]}), columns, "v1")
