"""What differs between two versions: rows by key, labels, schema; files of equal content are never read."""

import numpy as np
import polars as pl
import pytest

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.data.difference import VersionFiles, compare
from trainworthy.lifecycle.data.row_differences import changed_rows, shifts
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import content_hash

LATE = Label(name="late", version=1, column="delay", greater_than=15)


def month(number, rows=40, **changes):
    frame = pl.DataFrame(
        {
            "id": np.arange(rows) + 1000 * number,
            "carrier": [f"C{row % 3}" for row in range(rows)],
            "delay": [None if row == 5 else float(row) for row in range(rows)],
        }
    )
    return frame.with_columns(**changes) if changes else frame


def version(folder, told="d@v1", **files):
    folder.mkdir(parents=True)
    for name, frame in files.items():
        frame.write_parquet(folder / f"{name}.parquet")
    return VersionFiles(told, folder, content_hash(folder))


def both(tmp_path, old, new):
    return version(tmp_path / "old", **old), version(tmp_path / "new", "d@v2", **new)


def differs(tmp_path, old, new, key=("id",), label=LATE):
    pair = both(tmp_path, old, new)
    return compare(*pair, key, label), *pair


def test_compare_of_an_added_file_reads_no_equal_file(tmp_path, monkeypatch):
    read = []
    real = pl.read_parquet
    monkeypatch.setattr(pl, "read_parquet", lambda path, **keys: read.append((path.name, keys)) or real(path, **keys))
    found, _, _ = differs(tmp_path, {"jan": month(1)}, {"jan": month(1), "feb": month(2)})
    assert (len(found.added), len(found.removed), len(found.changed), dict(found.labels)) == (40, 0, 0, {})
    assert found.files.equal == ("jan.parquet",)
    # Of equal files the key alone, for duplicates.
    assert {keys["columns"][0] for name, keys in read if name == "jan.parquet"} == {"id"}


def test_compare_of_rewritten_labels_names_rows_and_labels(tmp_path):
    delay = pl.when(pl.col("id").is_between(1010, 1012)).then(99.0).otherwise(pl.col("delay"))
    found, old, new = differs(tmp_path, {"jan": month(1)}, {"jan": month(1, delay=delay), "feb": month(2)})
    assert (len(found.added), len(found.removed), len(found.changed)) == (40, 0, 3)
    assert found.labels == {(0, 1): 3}
    rows = changed_rows(found, old, new, ["id"], LATE)
    changed = rows.filter(pl.col("what") == "changed")
    assert changed["id"].to_list() == [1010, 1011, 1012]
    assert changed["columns"].to_list() == ["delay"] * 3
    assert changed.select("label_before", "label_after").unique().rows() == [(0, 1)]
    assert rows["what"].to_list().count("added") == 40
    assert changed_rows(found, old, new, ["id"], LATE, most=2).height == 4


def test_compare_of_a_change_that_leaves_the_label_counts_rows_alone(tmp_path):
    found, _, _ = differs(tmp_path, {"jan": month(1)}, {"jan": month(1, delay=pl.col("delay") - 0.25)})
    assert (len(found.changed), sum(found.labels.values())) == (39, 0)


def test_compare_of_labels_that_came_or_went_tells_them_apart(tmp_path):
    delay = pl.when(pl.col("id") == 1005).then(60.0).when(pl.col("id") == 1030).then(None).otherwise(pl.col("delay"))
    found, _, _ = differs(tmp_path, {"jan": month(1)}, {"jan": month(1, delay=delay)})
    assert found.labels == {(None, 1): 1, (1, None): 1}


def test_compare_of_removed_rows_and_a_moved_row_pairs_by_key(tmp_path):
    jan, feb = month(1), month(2)
    moved = {"jan": jan[1:], "feb": pl.concat([feb, jan[:1]])}
    found, _, _ = differs(tmp_path, {"jan": jan, "feb": feb}, moved)
    assert (len(found.added), len(found.removed), len(found.changed)) == (0, 0, 0)
    (tmp_path / "b").mkdir()
    found, old, new = differs(tmp_path / "b", {"jan": jan}, {"jan": jan[3:]})
    assert len(found.removed) == 3
    assert changed_rows(found, old, new, ["id"], LATE)["id"].to_list() == [1000, 1001, 1002]


@pytest.mark.parametrize(
    "rewritten",
    [
        month(1)[::-1],
        month(1, id=pl.col("id").cast(pl.Int32)),
        month(1, carrier=pl.col("carrier").cast(pl.Categorical)),
        month(1, id=pl.col("id").cast(pl.String)),
        month(1, delay=pl.col("delay").fill_null(float("nan"))),
    ],
    ids=["order", "width", "category", "text", "nan"],
)
def test_compare_of_equal_rows_written_otherwise_finds_no_changed_row(tmp_path, rewritten):
    found, _, _ = differs(tmp_path, {"jan": month(1)}, {"jan": rewritten, "feb": month(2)})
    assert (len(found.removed), len(found.changed), sum(found.labels.values())) == (0, 0, 0)


def test_compare_of_another_schema_tells_each_column(tmp_path):
    other = month(1, extra=pl.lit(1), delay=pl.col("delay").cast(pl.Float32)).drop("carrier")
    found, _, _ = differs(tmp_path, {"jan": month(1)}, {"jan": other})
    assert found.removed_columns == ("carrier",)
    assert set(found.schema) == {
        "column added: extra (Int32)", "column removed: carrier (String)", "type of delay: Float64 → Float32",
    }  # fmt: skip


def test_compare_counts_rows_that_repeat_a_key_across_files(tmp_path):
    again = month(2, id=pl.when(pl.col("id") < 2003).then(pl.col("id") - 1000).otherwise(pl.col("id")))
    found, _, _ = differs(tmp_path, {"jan": month(1)}, {"jan": month(1), "feb": again})
    assert (found.old_duplicates, found.new_duplicates) == (0, 3)


def test_compare_by_several_columns_and_null_keys(tmp_path):
    frame = month(1, carrier=pl.when(pl.col("id") == 1007).then(None).otherwise(pl.col("carrier")))
    found, _, _ = differs(tmp_path, {"jan": frame}, {"jan": frame.with_columns(delay=pl.lit(1.0))}, ("carrier", "id"))
    assert (len(found.added), len(found.removed), len(found.changed)) == (0, 0, 39)


def test_compare_by_a_column_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="did you mean 'carrier'"):
        differs(tmp_path, {"jan": month(1)}, {"jan": month(1)}, ("carier",))


def test_shifts_put_the_column_that_moved_first_and_need_enough_rows(tmp_path):
    generator = np.random.default_rng(1)
    old = pl.DataFrame({"id": np.arange(4000), "delay": generator.normal(size=4000), "place": ["a", "b"] * 2000})
    new = pl.DataFrame(
        {"id": np.arange(4000, 6000), "delay": generator.normal(2, size=2000), "place": ["a", "b"] * 1000}
    )
    found, before, after = differs(tmp_path, {"jan": old}, {"jan": old, "feb": new}, label=None)
    rows = {row.column: row for row in shifts(found, before, after, None, ["id"])}
    assert next(iter(rows)) == "delay"
    assert rows["delay"].psi > 1
    assert rows["place"].psi < 0.01
    assert rows["delay"].new_mean == pytest.approx(2, abs=0.1)
    few, before, after = differs(tmp_path / "few", {"jan": old}, {"jan": old, "feb": new[:19]}, label=None)
    assert shifts(few, before, after, None, ["id"]) == []


def test_shifts_of_few_healthy_rows_are_small(tmp_path):
    generator = np.random.default_rng(0)
    numbers = {f"x{place}": generator.normal(size=4025) for place in range(40)}
    rows = pl.DataFrame({"id": np.arange(4025), **numbers})
    found, before, after = differs(tmp_path, {"jan": rows[:4000]}, {"jan": rows[:4000], "feb": rows[4000:]}, label=None)
    told = [row.psi for row in shifts(found, before, after, None, ["id"])]
    # 25 rows in 10 bins show 0.36 by chance alone.
    assert np.median(told) < 0.1


def test_compare_of_a_column_that_one_new_file_lacks_names_the_file(tmp_path):
    found, _, _ = differs(tmp_path, {"jan": month(1)}, {"jan": month(1), "feb": month(2).drop("carrier")})
    assert found.removed_columns == ("carrier",)
    assert found.schema == ("column missing in feb.parquet: carrier",)
