import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import toy_jobs
from test_record_store import dataset

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.data.snapshot import install_snapshot, snapshot_is_whole, written_splits
from trainworthy.lifecycle.data.split import SPLITS
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.protocol.records import SnapshotBody
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case


def write(state: StateFolder, splits: Path) -> SnapshotBody:
    """The snapshot of a dataset that holds the splits' rows, a file a split."""
    use_case = load_use_case(toy_jobs.TOY)
    contract, label = load_contract(use_case.contract_path), "positive"
    with tempfile.TemporaryDirectory() as name:
        frames, first = {}, 0
        for split in sorted(SPLITS):
            rows = pd.read_parquet(splits / f"{split}.parquet")
            rows.drop(columns=label).to_parquet(Path(name, f"{split}.parquet"), index=False)
            frames[split] = rows.set_index(pd.RangeIndex(first, first := first + len(rows)))
        with written_splits(state, use_case, Path(name), frames, label) as written:
            return install_snapshot(state, use_case, contract, dataset(), frames, written, first)


def write_often(root: Path, splits: Path) -> set[str]:
    """Write the same snapshot ten times, and hold its files against the record each time."""
    state = StateFolder(root)
    bodies = [write(state, splits) for _ in range(10)]
    return {found.content_hash for found in bodies if snapshot_is_whole(state, found.splits)}


@pytest.fixture
def state(tmp_path):
    return StateFolder(tmp_path / "var")


def folders(state: StateFolder) -> list[str]:
    return [path.name for path in state.folder("snapshots", "toy").iterdir()]


def test_snapshot_is_written_below_its_content_hash_and_nothing_else_is_left(state, splits):
    body = write(state, splits)
    assert folders(state) == [body.content_hash]
    assert snapshot_is_whole(state, body.splits)
    training = body.splits["training"]
    rows = pd.read_parquet(state.absolute(training.file.path))
    assert training.rows == len(rows) > 0
    assert training.positives == rows["positive"].sum()
    assert training.groups == rows["day"].nunique()
    assert training.start == rows["day"].min().isoformat()
    assert body.benchmark == "toy 2024-04-10 to 2024-04-29, positive v1"


def test_equal_rows_have_equal_addresses_and_one_changed_value_another(state, splits, tmp_path):
    first = write(state, splits)
    assert write(state, splits).content_hash == first.content_hash
    other = toy_jobs.copy_splits(
        splits, tmp_path / "other", validation=lambda rows: rows.assign(x1=rows["x1"].where(rows.index != 5, 0.5))
    )
    assert write(state, other).content_hash != first.content_hash


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-1]), Path.unlink])
def test_damaged_snapshot_is_noticed_and_written_anew(state, splits, damage):
    body = write(state, splits)
    path = state.absolute(body.splits["validation"].file.path)
    damage(path)
    assert not snapshot_is_whole(state, body.splits)
    again = write(state, splits)
    assert again.content_hash == body.content_hash
    assert snapshot_is_whole(state, again.splits)
    assert folders(state) == [body.content_hash]


def test_failed_write_leaves_nothing(state, splits, monkeypatch):
    def fails(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("trainworthy.lifecycle.data.snapshot.content_hash", fails)
    with pytest.raises(OSError, match="disk full"):
        write(state, splits)
    assert folders(state) == []


def test_snapshot_written_by_two_processes_at_once_is_whole_for_both(state, splits):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        both = [pool.submit(write_often, state.root, splits) for _ in range(2)]
        found = [future.result(timeout=60) for future in both]
    assert found[0] == found[1]
    assert len(found[0]) == 1
    assert folders(state) == list(found[0])


def test_dataset_folder_is_read_file_after_file_and_an_empty_one_refused(tmp_path):
    with pytest.raises(DatasetError, match="no Parquet file"):
        read_columns(tmp_path)
    for number in (2, 1):
        pd.DataFrame({"row": [number]}).to_parquet(tmp_path / f"{number}.parquet")
    assert read_columns(tmp_path)["row"].tolist() == [1, 2]
