"""The logical content hash: blind to how rows are written, sensitive to what they say."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import combined, content_hash


def table(**changes):
    columns = {
        "flag": pa.array([True, None, False]),
        "count": pa.array([1, None, -3], pa.int32()),
        "delay": pa.array([0.5, None, -2.0]),
        "carrier": pa.array(["UA", None, "é"]),
        "blob": pa.array([b"\x00", None, b""]),
        "departure": pa.array([datetime(2013, 1, 1, 5, 15, 0, 1000, UTC), None, datetime(1901, 1, 1, tzinfo=UTC)]),
        "wall": pa.array([datetime(2013, 1, 1), None, datetime(2013, 1, 2)]),
        "day": pa.array([date(2013, 1, 1), None, date(1969, 1, 1)]),
        "clock": pa.array([time(5, 15), None, time(0, 0, 1)]),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")]),
        "wait": pa.array([timedelta(minutes=5), None, timedelta(0)]),
        "nothing": pa.nulls(3),
    }
    return pa.table(columns | changes)


def written(folder: Path, rows: pa.Table, name: str = "2013-01.parquet", **settings) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / name, **settings)
    return folder


@pytest.fixture
def reference(tmp_path):
    return content_hash(written(tmp_path / "reference", table()))


@pytest.mark.parametrize(
    "settings",
    [
        {"compression": "zstd"},
        {"compression": "none", "use_dictionary": False},
        {"row_group_size": 1},
        {"version": "2.6", "data_page_version": "2.0", "write_page_checksum": True},
        {"store_schema": False},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_content_hash_of_other_writer_settings_is_equal(tmp_path, reference, settings):
    rows = table()
    if not settings.get("store_schema", True):
        # Only pyarrow's own schema tells a duration from an integer and a null column from an integer one.
        rows = rows.drop_columns(["wait", "nothing"])
        reference = content_hash(written(tmp_path / "fewer", rows))
    assert content_hash(written(tmp_path / "other", rows, **settings)) == reference


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_content_hash_of_other_timestamp_unit_is_equal(tmp_path, unit):
    whole = pa.array([datetime(2013, 1, 1, 5, 15, tzinfo=UTC), None, datetime(1969, 12, 31, tzinfo=UTC)])
    other = whole.cast(pa.timestamp(unit, "America/New_York"))
    first = content_hash(written(tmp_path / "a", table(departure=whole)))
    assert content_hash(written(tmp_path / "b", table(departure=other))) == first


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_content_hash_of_other_string_storage_is_equal(tmp_path, reference, kind):
    other = table(carrier=table()["carrier"].cast(kind))
    assert content_hash(written(tmp_path / "other", other)) == reference


def test_content_hash_of_pandas_and_pyarrow_files_is_equal(tmp_path):
    rows = pd.DataFrame(
        {
            "delay": [0.5, None, -2.0],
            "carrier": ["UA", None, "é"],
            "origin": pd.Categorical(["JFK", "EWR", "JFK"]),
            "departure": pd.to_datetime(["2013-01-01T05:15Z", None, "2013-12-31T23:59Z"], utc=True),
        }
    )
    (tmp_path / "pandas").mkdir()
    rows.to_parquet(tmp_path / "pandas" / "x.parquet")
    departures = pa.array(rows["departure"].dt.to_pydatetime().tolist(), pa.timestamp("ms", "UTC"), from_pandas=True)
    plain = pa.table(
        {
            "delay": pa.array([0.5, None, -2.0]),
            "carrier": ["UA", None, "é"],
            "origin": ["JFK", "EWR", "JFK"],
            "departure": departures,
        }
    )
    written(tmp_path / "pyarrow", plain, "x.parquet", compression="gzip", row_group_size=2, store_schema=False)
    assert content_hash(tmp_path / "pandas") == content_hash(tmp_path / "pyarrow")


def test_content_hash_of_polars_and_pyarrow_files_is_equal(tmp_path):
    rows = table().drop_columns(["nothing", "wait"]).combine_chunks()
    (tmp_path / "polars").mkdir()
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(pl.col("carrier").cast(pl.Categorical))
    frame.write_parquet(tmp_path / "polars" / "2013-01.parquet", compression="lz4", row_group_size=1)
    plain = written(tmp_path / "pyarrow", rows, compression="zstd", use_dictionary=False, store_schema=False)
    assert content_hash(tmp_path / "polars") == content_hash(plain)


def test_content_hash_of_nan_equals_null(tmp_path, reference):
    """By definition: pandas can't tell the two apart."""
    other = table(delay=pa.array([0.5, float("nan"), -2.0]))
    assert content_hash(written(tmp_path / "other", other)) == reference


@pytest.mark.parametrize(
    "changes",
    [
        {"flag": pa.array([True, None, True])},
        {"count": pa.array([1, None, -4], pa.int32())},
        {"count": pa.array([1, 0, -3], pa.int32())},
        {"count": pa.array([1, None, -3], pa.int64())},
        {"delay": pa.array([0.5, 0.0, -2.0])},
        {"delay": pa.array([0.5, None, -2.0000000000000004])},
        {"delay": pa.array([0.5, None, -2.0], pa.float32())},
        {"carrier": pa.array(["UA", "", "é"])},
        {"carrier": pa.array(["U", None, "Aé"])},
        {"carrier": pa.array([b"UA", None, "é".encode()])},
        {"departure": table()["departure"].cast(pa.timestamp("us"))},
        {"wall": pa.array([datetime(2013, 1, 1, 0, 0, 0, 1), None, datetime(2013, 1, 2)])},
        {"day": pa.array([date(2013, 1, 2), None, date(1969, 1, 1)])},
        {"clock": pa.array([time(5, 16), None, time(0, 0, 1)])},
        {"price": pa.array([Decimal("1.51"), None, Decimal("-2.25")])},
        {"nothing": pa.array([None, None, None], pa.string())},
        {"extra": pa.array([1, 2, 3])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_content_hash_of_other_rows_differs(tmp_path, reference, changes):
    assert content_hash(written(tmp_path / "other", table(**changes))).sha256 != reference.sha256


def test_content_hash_of_other_row_order_column_name_or_place_differs(tmp_path, reference):
    rows = table()
    names = rows.column_names
    others = [
        rows.take([1, 0, 2]),
        rows.rename_columns([name.upper() for name in names]),
        rows.select(names[::-1]),
        rows.slice(0, 2),
    ]
    hashes = [content_hash(written(tmp_path / str(place), other)).sha256 for place, other in enumerate(others)]
    assert len({reference.sha256, *hashes}) == len(others) + 1


def test_content_hash_of_other_file_name_or_cut_differs(tmp_path, reference):
    renamed = content_hash(written(tmp_path / "renamed", table(), "2013-02.parquet"))
    nested = content_hash(written(tmp_path / "nested" / "year", table()).parent)
    cut = written(tmp_path / "cut", table().slice(0, 2))
    written(cut, table().slice(2), "2013-02.parquet")
    assert len({reference.sha256, renamed.sha256, nested.sha256, content_hash(cut).sha256}) == 4
    assert nested.files[0].name == "year/2013-01.parquet"


def test_content_hash_is_the_published_encoding(reference):
    """Guards FORMAT: a change of the encoding invalidates every published version, and must not pass unseen."""
    assert reference.rows == 3
    assert reference.sha256 == "c14c67e7e5d246d215b742b37824202930cd96dd61f31eab07721a4bda8733b9"


def test_combined_does_not_depend_on_the_order_of_files(tmp_path):
    folder = written(tmp_path, table())
    content = content_hash(written(folder, table().slice(1), "2013-02.parquet"))
    assert combined(reversed(content.files)) == content
    assert content.rows == 5


def test_content_hash_of_empty_rows_counts_their_columns(tmp_path):
    first = content_hash(written(tmp_path / "a", table().slice(0, 0)))
    second = content_hash(written(tmp_path / "b", table(carrier=pa.array([1, 2, 3])).slice(0, 0)))
    assert first.rows == 0
    assert first.sha256 != second.sha256


def test_content_hash_of_empty_or_missing_folder_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with refused(DatasetError, "dataset.no_parquet"):
            content_hash(folder)


def test_content_hash_of_a_foreign_file_is_refused(tmp_path):
    (written(tmp_path, table()) / "notes.txt").write_text("x")
    with refused(DatasetError, "dataset.foreign_file") as caught:
        content_hash(tmp_path)
    assert caught.value.value == ["notes.txt"]


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_content_hash_of_a_truncated_file_is_refused(tmp_path, keep):
    path = written(tmp_path, table()) / "2013-01.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with refused(DatasetError, "dataset.unreadable_file") as caught:
        content_hash(tmp_path)
    assert caught.value.value == str(path)


def test_content_hash_of_a_nested_column_is_refused(tmp_path):
    with refused(DatasetError, "dataset.column_type"):
        content_hash(written(tmp_path, pa.table({"path": [[1, 2], [3]]})))
