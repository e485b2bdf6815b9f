"""Rows whose columns lie on the disk are the rows that pandas reads, and take no memory that cannot be taken back."""

import datetime
import errno
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainworthy.lifecycle.data import mapped, rows
from trainworthy.lifecycle.data.mapped import mapped_bytes, mapped_frame
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.protocol.jobs import Rows

WHEN = st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2200, 1, 1))
TYPES = {
    "integer": (pa.int64(), st.integers(-(2**40), 2**40)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "number": (pa.float32(), st.floats(width=32)),
    "boolean": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us"), WHEN),
    "instant": (pa.timestamp("us", "Europe/Berlin"), WHEN),
    "date": (pa.date32(), st.dates()),
    "text": (pa.string(), st.text(max_size=5)),
    "long text": (pa.large_string(), st.text(max_size=40)),
    "category": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b", "ä"])),
    "decimal": (pa.decimal128(12, 2), st.decimals(-1000, 1000, places=2)),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A column of each type, some with nulls, in row groups of any size."""
    count = draw(st.integers(0, 30))
    columns = {}
    for name, (kind, values) in TYPES.items():
        some = st.one_of(st.none(), values) if draw(st.booleans()) else values
        columns[name] = pa.array(draw(st.lists(some, min_size=count, max_size=count)), kind)
    return pa.table(columns)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), group=st.integers(1, 12), statistics=st.booleans(), data=st.data())
def test_mapped_rows_are_those_that_pandas_reads(table, group, statistics, data, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(mapped, "BATCH_ROWS", 7)
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=group, write_statistics=statistics)
    columns = data.draw(st.permutations(table.column_names))
    whole = pd.read_parquet(path, columns=columns)
    pd.testing.assert_frame_equal(mapped_frame(path, columns, tmp_path / "out"), whole)
    chosen = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table))))
    some = mapped_frame(path, columns, tmp_path / "out", chosen)
    pd.testing.assert_frame_equal(some, whole.iloc[chosen].reset_index(drop=True))
    # As a batch takes them.
    order = np.random.default_rng(0).permutation(len(some))
    pd.testing.assert_frame_equal(some.iloc[order], whole.iloc[chosen].reset_index(drop=True).iloc[order])
    assert list((tmp_path / "out").iterdir()) == []


def test_mapped_rows_lie_on_the_disk_and_not_in_memory(tmp_path: Path):
    rows_of_file, path = 4_000_000, tmp_path / "rows.parquet"
    table = pa.table({"x": pa.array(np.arange(rows_of_file) % 1000, pa.float64()), "t": ["abcdefgh"] * rows_of_file})
    pq.write_table(table, path)
    del table
    before = _anonymous_bytes()
    frame = mapped_frame(path, ["x", "t"], tmp_path)
    frame = frame[["t", "x"]]
    assert mapped_bytes() < 10_000_000
    assert float(frame["x"].sum()) == rows_of_file / 1000 * sum(range(1000))
    assert set(frame["t"].iloc[::1000]) == {"abcdefgh"}
    # Of 96 MB, what the numbers take was read now; what cannot be taken back is a fraction.
    assert mapped_bytes() > 8 * rows_of_file * 0.9
    assert _anonymous_bytes() - before < 40_000_000


def _anonymous_bytes() -> int:
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def test_mapped_rows_of_a_split_hold_what_read_rows_gives_and_a_full_disk_stays_one(tmp_path: Path, monkeypatch):
    path, named = tmp_path / "split.parquet", Rows(features=("x", "shop"), label="y", group="day")
    frame = pd.DataFrame({"day": ["a", "b"], "y": [0, 1], "x": [0.5, 1.5], "shop": ["s", None], "other": [1, 2]})
    frame.to_parquet(path)
    pd.testing.assert_frame_equal(read_rows(str(path), named, mapped_in=tmp_path / "out"), read_rows(str(path), named))

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rows, "mapped_frame", full)
    with pytest.raises(OSError, match="No space left"):
        read_rows(str(path), named, mapped_in=tmp_path / "out")
    monkeypatch.undo()
    path.write_bytes(b"no Parquet")
    with pytest.raises(DatasetError, match="cannot be read"):
        read_rows(str(path), named, mapped_in=tmp_path / "out")
