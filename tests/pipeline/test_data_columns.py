"""A typo in contract.yaml is told with the data's name, and never offered as the right one."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy_project import ROOT

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.data_columns import columns_of_data, with_columns_of_data
from trainworthy.resources.settings import read_settings

TOY = ROOT / "tests" / "toy" / "use_cases" / "toy"
CONTRACT = load_contract(TOY / "contract.yaml")
COLUMNS = tuple(column.name for column in CONTRACT.columns)
OTHER = Problem("use_case.yaml: dataset", "there is no such version", "publish it")


def test_contract_whose_columns_are_in_the_data_has_no_problem_more():
    assert with_columns_of_data([OTHER], CONTRACT, [*COLUMNS, "more"]) == [OTHER]
    assert with_columns_of_data([OTHER], CONTRACT, ()) == [OTHER]
    assert with_columns_of_data([OTHER], None, COLUMNS) == [OTHER]


def test_misspelled_column_of_the_contract_is_the_problem_and_not_who_names_it_rightly():
    columns = [name if name != "shop" else "shops" for name in COLUMNS]
    right = Problem(
        "use_case.yaml: benchmark.slices.0", "not a column of contract.yaml", "did you mean 'shop'?", "shops"
    )
    wrong = Problem("use_case.yaml: benchmark.slices.1", "not a column of contract.yaml", "known: …", "nix")
    first, *rest = with_columns_of_data([right, wrong], CONTRACT, columns)
    assert (first.where, first.problem, first.value) == (
        "contract.yaml: columns",
        "the dataset has no such column",
        "shop",
    )
    assert first.fix == "did you mean 'shops'?"
    assert rest == [wrong]


@pytest.mark.parametrize("content", [b"", None])
def test_columns_of_data_are_those_of_the_version_here_and_none_of_files_that_cannot_be_read(
    tmp_path, monkeypatch, content
):
    monkeypatch.setenv("TRAINWORTHY_PROJECT", str(ROOT / "tests" / "toy"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path))
    use_case = load_use_case(TOY)
    assert columns_of_data(use_case, read_settings()) == ()
    declared = use_case.spec.dataset
    version = published_version(use_case.project, declared.name, declared.version)
    folder = Path(tmp_path, "datasets", declared.name, version.content_hash, "files")
    folder.mkdir(parents=True)
    if content is None:
        pq.write_table(pa.table({"shops": [1], "when": [2]}), folder / "part.parquet")
    else:
        (folder / "part.parquet").write_bytes(content)
    assert columns_of_data(use_case, read_settings()) == (() if content is not None else ("shops", "when"))
