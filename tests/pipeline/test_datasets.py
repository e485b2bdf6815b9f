"""`trainworthy datasets` on real states: what is listed, what differs, and a backfill that nobody declared."""

import re
import shutil

import polars as pl
import pytest
from toy_project import git

from trainworthy.lifecycle.files.versions import read_versions, versions_path
from trainworthy.lifecycle.protocol.records import DatasetVersion
from trainworthy.pipeline.cli import main

# Rewrites the labels of days 60 to 89 (March) as a vendor's correction would.
CORRECTION = ("    date = pd.Timestamp(", "    score = score * (-1 if 60 <= day < 90 else 1)\n    date = pd.Timestamp(")


@pytest.fixture
def here(toy, monkeypatch):
    """The trained toy as this process's settings."""
    monkeypatch.setenv("TRAINWORTHY_VAR", str(toy.var))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(toy.root / "use_cases"))
    return toy


def test_datasets_list_tells_dates_and_who_trained_without_heavy_imports(trained):
    done = trained.toy.call("-X", "importtime", "-m", "trainworthy.pipeline.cli", "datasets")
    assert done.code == 0, done.out
    lines = [line for line in done.out.splitlines() if "import time:" not in line]
    assert "9,600 rows  2024-01-01 to 2024-04-29" in lines[0]
    assert lines[1].strip() == f"toy: promote, model version 1, the champion; run {trained.done.run_id[:8]}"
    assert lines[2].startswith("toy_rows@v2")
    imported = {line.rpartition("|")[2].strip() for line in done.out.splitlines() if "|" in line}
    assert not {"torch", "mlflow", "dagster", "pandas", "polars", "pyarrow", "dvc"} & imported


def test_datasets_diff_of_added_days_is_no_change_of_old_rows(here, capsys):
    assert main(["datasets", "diff", "toy_rows@v1", "toy_rows@v2"]) == 0
    told = capsys.readouterr().out
    assert "12 equal and skipped; compared 0 with 3" in told
    assert "2,400 added, 0 removed, 0 changed" in told
    assert main(["datasets", "diff", "v2", "v1"]) == 0
    assert capsys.readouterr().out == told


def test_datasets_diff_shows_one_table_for_contracts_of_which_nothing_differs(here, capsys):
    """Their labels are not the same, and none of either changed."""
    other = here.folder.with_name("other")
    shutil.copytree(here.folder, other)
    for name, old, new in (
        ("use_case.yaml", "name: toy\n", "name: other\n"),
        ("contract.yaml", "name: positive, version: 1", "name: positive, version: 2"),
    ):
        text = (other / name).read_text()
        assert text.count(old) == 1
        (other / name).write_text(text.replace(old, new))
    assert main(["datasets", "diff", "v1", "v2"]) == 0
    told = capsys.readouterr().out
    assert told.count("rows named by") == 1
    assert "rows named by row_id (other, toy)" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["toy_row", "v1", "v2"], "did you mean 'toy_rows'?"),
        (["v1", "v7"], "no such published version"),
        (["v1", "v1"], "not compared with itself"),
        (["toy_rows@v1", "other@v2"], "two datasets"),
        (["v1"], "two versions of one dataset are needed"),
        (["v1", "v2", "--key", "row"], "did you mean 'row_id'?"),
        (["v1", "v2", "--out", "rows.csv"], "name a .parquet file"),
    ],
)
def test_datasets_diff_of_wrong_words_is_refused_with_a_fix(here, capsys, words, told):
    assert main(["datasets", "diff", *words]) == 1
    assert told in capsys.readouterr().err


def test_silent_backfill_is_caught_by_publish_by_diff_and_by_the_step(here, capsys, tmp_path):
    # As on a machine that published v2: DVC holds it, whatever becomes of the code.
    assert main(["datasets", "diff", "v1", "v2"]) == 0
    here.edit("dataset.py", *CORRECTION)
    publish = ["datasets", "publish", "toy_rows", "v3", "days=160", "seed=1"]
    assert main(publish) == 1
    assert "toy_rows@v3 changes or lacks files of toy_rows@v2" in capsys.readouterr().err
    assert main([*publish, "--backfill", "the vendor corrected March"]) == 0
    # Published elsewhere, or edited since: nothing in the entry says so.
    path = versions_path(here.root)
    declared = path.read_text()
    path.write_text(re.sub(r", backfill: \{.*?\}", "", declared))
    assert read_versions(here.root)["toy_rows"]["v3"].backfill is None
    here.edit("use_case.yaml", "version: v1", "version: v3")
    out = tmp_path / "rows.parquet"
    assert main(["datasets", "diff", "toy_rows", "v2", "v3", "--out", str(out)]) == 1
    told = capsys.readouterr().out
    assert "UNDECLARED: toy_rows@v3 changes what toy_rows@v2 holds" in told
    assert "score in " in told
    rows = pl.read_parquet(out)
    changed = rows.filter(pl.col("what") == "changed")
    assert changed["row_id"].min() == 60 * 80
    assert changed["row_id"].max() < 90 * 80
    assert (changed["label_before"] != changed["label_after"]).all()
    assert rows.filter(pl.col("what") == "added").height == 800
    stopped = here.materialize("dataset")
    assert stopped.code == 1
    assert "toy_rows@v3 changes or lacks files of v2, v1 without declaring it" in stopped.out
    path.write_text(declared)
    assert main(["datasets", "diff", "v2", "v3"]) == 0
    assert "v3 is a declared backfill of v2: the vendor corrected March" in capsys.readouterr().out
    passed = here.materialize("dataset")
    assert passed.code == 0, passed.out
    record = here.records.newest("toy", "dataset")
    assert isinstance(record, DatasetVersion)
    assert record.backfill is not None
    assert record.backfill.told == "declared backfill of v2: the vendor corrected March"
    (check,) = [check for check in record.checks if check.name == "backfill"]
    assert (check.status, "(3 files differ)" in check.evidence) == ("pass", True)


def test_datasets_diff_of_files_that_were_taken_out_is_told_and_exits_1(here, capsys):
    assert main(["datasets", "diff", "v1", "v2"]) == 0
    here.edit(
        "dataset.py", "for start in range(0, days, 10):", "for start in [*range(0, 60, 10), *range(70, days, 10)]:"
    )
    publish = ["datasets", "publish", "toy_rows", "v3", "days=150", "seed=1"]
    assert main(publish) == 1
    assert "changes or lacks files of toy_rows@v2" in capsys.readouterr().err
    assert main([*publish, "--backfill", "these days were a trial"]) == 0
    path = versions_path(here.root)
    path.write_text(re.sub(r", backfill: \{.*?\}", "", path.read_text()))
    assert main(["datasets", "diff", "v2", "v3"]) == 1
    told = capsys.readouterr().out
    assert "0 added, 800 removed, 0 changed" in told
    assert "UNDECLARED: toy_rows@v3 changes what toy_rows@v2 holds" in told


def test_datasets_diff_by_a_sensitive_column_is_refused_and_writes_nothing(here, capsys, tmp_path):
    out = tmp_path / "rows.parquet"
    feature = "logicalType: string\n        required: true\n        customProperties: ["
    here.edit("contract.yaml", feature, f"{feature}{{property: sensitive, value: true}}, ")
    assert main(["datasets", "diff", "v1", "v2", "--key", "row_id,shop", "--out", str(out)]) == 1
    told = capsys.readouterr()
    assert "a sensitive column can't name rows" in told.err
    assert not out.exists()
    assert main(["datasets", "diff", "v1", "v2", "--key", "row_id"]) == 0


@pytest.mark.parametrize("checkout", ["without git", "shallow"])
def test_datasets_and_preflight_work_without_git_and_in_a_shallow_clone(toy, tmp_path, checkout):
    if checkout == "shallow":
        git(toy.root, "commit", "--allow-empty", "--quiet", "--message", "second")
        git(tmp_path, "clone", "--quiet", "--depth", "1", toy.root.as_uri(), "clone")
        shutil.rmtree(toy.root)
        (tmp_path / "clone").rename(toy.root)
    else:
        shutil.rmtree(toy.root / ".git")
    # An image's first run: nothing but DVC's objects is there.
    for name in ("datasets", "snapshots", "records", "preflight"):
        shutil.rmtree(toy.var / name, ignore_errors=True)
    listed = toy.call("-m", "trainworthy.pipeline.cli", "datasets")
    assert (listed.code, "toy_rows@v1" in listed.out) == (0, True), listed.out
    done = toy.run("preflight_toy")
    assert done.code == 0, done.out
    record = toy.record(done.run_id, "preflight")
    assert (record.passed, record.provenance.git_commit is None) == (True, checkout == "without git")
    assert "building toy_rows" not in done.out


def test_folder_beside_the_project_is_imported_by_its_whole_path(monkeypatch, tmp_path, capsys):
    given = []
    monkeypatch.setattr("trainworthy.pipeline.datasets.publish_dataset", lambda *all_of_it: given.append(all_of_it))
    monkeypatch.chdir(tmp_path)
    assert main(["datasets", "publish", "roads", "v1", "--from", "my_data/roads"]) == 0
    assert main(["datasets", "publish", "roads", "v2", "--from", "s3://bucket/roads"]) == 0
    assert [one[3] for one in given] == [str(tmp_path / "my_data/roads"), "s3://bucket/roads"]
