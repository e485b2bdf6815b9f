"""Rows on their way from a dataset's files into the splits' files, and the columns that are read of both."""

from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy_jobs
from test_record_store import dataset

from trainworthy.lifecycle.contract.model import Column, Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.table import read_table
from trainworthy.lifecycle.data.days import day_of
from trainworthy.lifecycle.data.files import SplitFiles, read_columns, write_split_files
from trainworthy.lifecycle.data.snapshot import with_label, written_splits
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.snapshot import make_snapshot
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case

WORDS = pa.array(["a", "b", "a"])
INSTANTS = pd.to_datetime(["2024-03-01 22:30", "2024-03-02 12:00", "2024-03-03 23:30"], utc=True)


def in_zone(name: str) -> pa.Array:
    return pa.array(INSTANTS, pa.timestamp("us", name))


def write(folder, *columns: pa.Array) -> None:
    """A file for each column, beside a key."""
    for number, column in enumerate(columns):
        key = pa.array(range(number * len(column), (number + 1) * len(column)))
        pq.write_table(pa.table({"key": key, "x": column}), folder / f"{number}.parquet")


def splits_of(source, folder) -> SplitFiles:
    folder.mkdir()
    rows = len(read_columns(source, ["key"]))
    half = rows // 2
    positions = {"training": np.arange(half), "benchmark": np.arange(half, rows)}
    return write_split_files(source, folder, positions, pd.Series(np.arange(rows) % 2, name="late"))


@pytest.mark.parametrize("values", [[0, 1] * 30, [0.0, 1.0, None] * 20, [True, False] * 30])
def test_label_of_its_own_columns_name_replaces_the_column_as_int8(tmp_path, values):
    (source := tmp_path / "files").mkdir()
    rows = pd.DataFrame({"row": range(60), "bought": values, "x": 1.5})
    rows.to_parquet(source / "1.parquet", index=False)
    labelled = with_label(read_columns(source, ["row", "bought"]), Label(name="bought", version=1, column="bought"))
    splits = {"training": labelled.iloc[:20], "benchmark": labelled.iloc[20:]}
    with written_splits(
        StateFolder(tmp_path / "var"), load_use_case(toy_jobs.TOY), source, splits, "bought"
    ) as written:
        assert pq.read_schema(written.path("training")).names == ["row", "bought", "x"]
        for name, expected in splits.items():
            found = pd.read_parquet(written.path(name))
            assert found["bought"].dtype == "int8"
            assert found["bought"].tolist() == expected["bought"].tolist()
            assert found["row"].tolist() == expected["row"].tolist()


CLASSES = tuple(f"class {place}" for place in range(300))


@pytest.mark.parametrize(
    ("label", "values", "expected", "kind"),
    [
        (Label(name="y", version=1, column="sold", type="number"), [71_400, -300, 0.23, 5e9] * 15, None, "float64"),
        (Label(name="y", version=1, column="sold", type="number"), list(range(1000, 1060)), None, "float64"),
        (Label(name="y", version=1, column="sold", type="class", classes=CLASSES), [*CLASSES[:30], *CLASSES[-30:]],
         [*range(30), *range(270, 300)], "int16"),
        (Label(name="y", version=1, column="sold", type="labels", classes=("a", "b", "a b"), separator="|"),
         ["a", "b|a", "", "a b|a"] * 15, ["100", "110", "000", "101"] * 15, "str"),
        (Label(name="y", version=1, column="sold", greater_than=300), [71_400, 300, 301.5, -4] * 15,
         [1, 0, 1, 0] * 15, "int8"),
    ],
    ids=["large, negative and fractions", "whole numbers", "300 classes", "labels", "event"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["y", "sold"])
def test_label_of_every_type_is_written_as_the_dataset_has_it(tmp_path, label, values, expected, kind, name):
    label = label.model_copy(update={"name": name})
    (source := tmp_path / "files").mkdir()
    pd.DataFrame({"row": range(60), "sold": values}).to_parquet(source / "1.parquet", index=False)
    labelled = with_label(read_columns(source, ["row", "sold"]), label)
    splits = {"training": labelled.iloc[::2], "benchmark": labelled.iloc[1::2]}
    with written_splits(StateFolder(tmp_path / "var"), load_use_case(toy_jobs.TOY), source, splits, name) as written:
        found = pd.concat([pd.read_parquet(written.path(split)) for split in splits]).sort_values("row")
    assert found[name].dtype == kind
    assert found[name].tolist() == (values if expected is None else expected)


def test_value_that_is_none_of_the_label_s_classes_is_told_and_not_shown():
    label = Label(name="y", version=1, column="ill", type="class", classes=("no", "yes"))
    with pytest.raises(DatasetError, match="2 rows") as raised:
        with_label(pd.DataFrame({"ill": ["no", "secret", None, "other"]}), label)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("wrong", ["secret", "no|secret", "no|no", "no|", "|", "no|yes|no", " no"])
def test_text_that_names_no_label_or_one_twice_is_told_and_not_shown(wrong):
    label = Label(name="y", version=1, column="ill", type="labels", classes=("no", "yes"), separator="|")
    with pytest.raises(DatasetError, match="1 rows") as raised:
        with_label(pd.DataFrame({"ill": ["no", wrong, None, "yes|no"]}), label)
    assert "secret" not in str(raised.value)


def test_snapshot_of_a_label_of_its_own_columns_name_is_made(tmp_path, splits):
    state, use_case = StateFolder(tmp_path / "var"), load_use_case(toy_jobs.TOY)
    version = dataset()
    (source := state.absolute(version.path)).mkdir(parents=True)
    days = pd.concat([pd.read_parquet(path) for path in sorted(splits.glob("*.parquet"))]).drop(columns="score")
    days.to_parquet(source / "rows.parquet", index=False)
    contract = load_contract(use_case.contract_path)
    columns = [one for one in contract.columns if one.name != "score"]
    target = Column(name="positive", logical_type="integer", role="target", available_at="P1D")
    label = Label(name="positive", version=1, column="positive")
    own = contract.model_copy(update={"columns": (*columns, target), "label": label})
    healthy = CheckResult(name="contract", status="pass")
    checks, body = make_snapshot(state, use_case, own, version, lambda folder, contract: healthy)
    assert stopping(checks) == ()
    assert body is not None
    assert (body.splits["training"].positives or 0) > 0


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (WORDS, WORDS.dictionary_encode(), pa.string()),
        (in_zone("UTC"), in_zone("Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.array([1, 2, 3], pa.int32()), pa.array([1.5, None, 2.0]), pa.float64()),
        (pa.nulls(3), WORDS.dictionary_encode(), pa.dictionary(pa.int32(), pa.string())),
        (in_zone("Europe/Berlin"), in_zone("Europe/Berlin"), pa.timestamp("us", "Europe/Berlin")),
    ],
    ids=["text and categories", "two zones", "integers and floats", "nulls and categories", "one zone"],
)
def test_files_that_the_contract_takes_as_one_type_are_written_as_it(tmp_path, first, second, kind):
    (source := tmp_path / "files").mkdir()
    write(source, first, second)
    assert read_table(source).conflicts == {}
    written = splits_of(source, tmp_path / "splits")
    parts = [pq.read_table(written.path(name))["x"] for name in ("training", "benchmark")]
    assert {part.type for part in parts} == {kind}
    assert [value for part in parts for value in part.to_pylist()] == [*first.to_pylist(), *second.to_pylist()]


def test_columns_of_two_zones_are_read_as_the_times_that_the_splits_hold(tmp_path):
    (source := tmp_path / "files").mkdir()
    write(source, in_zone("UTC"), in_zone("Europe/Berlin"))
    found = read_columns(source, ["x"])["x"]
    assert found.tolist() == [*INSTANTS, *INSTANTS]
    written = splits_of(source, tmp_path / "splits")
    days = [day_of(written.read(name, ["x"]), "x") for name in ("training", "benchmark")]
    assert day_of(found.to_frame(), "x").tolist() == pd.concat(days).tolist()


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (WORDS, pa.array([1, 2, 3]), "x: holds integer and string"),
        (in_zone("UTC"), pa.array([date(2024, 3, 1)] * 3), "x: holds date and timestamp"),
    ],
)
def test_files_without_a_common_type_are_refused_with_the_contracts_words(tmp_path, first, second, problem):
    (source := tmp_path / "files").mkdir()
    write(source, first, second)
    with pytest.raises(DatasetError, match="don't fit together") as refused:
        splits_of(source, tmp_path / "splits")
    assert problem in str(refused.value)
