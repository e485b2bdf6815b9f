"""What a job is told of columns that are files."""

from types import SimpleNamespace

from trainworthy.assets.training_job import _files
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.protocol.records import DatasetVersion
from trainworthy.lifecycle.storage.state import StateFolder


def column(name: str, role: str, file: str | None = "picture") -> Column:
    return Column.model_validate({"name": name, "logical_type": "string", "role": role, "file": file})


def test_a_picture_that_is_no_feature_any_more_stays_a_path_for_the_champion_that_reads_it(tmp_path):
    (tmp_path / "datasets").mkdir()
    record = DatasetVersion.model_construct(path="datasets")
    run = SimpleNamespace(
        use_case=SimpleNamespace(name="toy", spec=SimpleNamespace(split=SimpleNamespace(resample_by="film"))),
        workspace=SimpleNamespace(
            state=StateFolder(tmp_path), records=SimpleNamespace(get=lambda *identity: record)
        ),
    )  # fmt: skip
    contract = Contract(
        name="toy", version="1", rules=(), primary_key=("row_id",), label=Label(name="late", version=1, column="label"),
        columns=(
            column("row_id", "key", None), column("picture", "other"), column("depth", "feature"),
            column("film", "other"), column("label", "target", None),
        ),
    )  # fmt: skip
    found = _files(run, contract, SimpleNamespace(parents={"dataset": "d1"}))  # pyright: ignore[reportArgumentType]
    assert (found["files"], found["label_file"]) == (("picture", "depth"), None)
    assert found["files_root"] == str(tmp_path / "datasets")
