"""The folder of failing rows: whole, of one judgement only, whoever else writes it at the same time."""

import multiprocessing

import pandas as pd
import polars as pl
import pytest

from trainworthy.lifecycle.contract import failing_rows
from trainworthy.lifecycle.contract.failing_rows import write_failing_rows
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.polars_engine import validate_files
from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule

LOW = make_rule("low.range", "range", ("low",), bound=NO_ROW, minimum=0)
CODE = make_rule("code.unique", "unique", ("code",), bound=NO_ROW)


@pytest.fixture
def rows(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    pd.DataFrame({"row": range(60), "low": [-1, 1, 2] * 20, "code": [0, *range(59)]}).to_parquet(folder / "a.parquet")
    return folder


def contract(*rules, sensitive=""):
    names = ("row", "low", "code")
    columns = [Column(name=name, logical_type="integer", role="feature", sensitive=name == sensitive) for name in names]
    label = Label(name="late", version=1, column="low", greater_than=0.0)
    return Contract(name="t", version="1", columns=tuple(columns), rules=rules, label=label, primary_key=("row",))


def judge(rows, target, *rules, sensitive=""):
    judged = contract(*rules, sensitive=sensitive)
    return write_failing_rows(rows, judged, validate_files(rows, judged), target)


def held(target):
    return sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))


def test_failing_rows_of_an_earlier_judgement_do_not_stay(rows, tmp_path):
    target = tmp_path / "validation" / "hash"
    judge(rows, target, LOW, CODE)
    assert held(target) == ["code.unique.parquet", "low.range.parquet"]
    judge(rows, target, LOW.model_copy(update={"id": "renamed"}), CODE)
    assert held(target) == ["code.unique.parquet", "renamed.parquet"]
    judge(rows, target, LOW, CODE, sensitive="low")
    assert held(target) == ["code.unique.parquet"]
    judge(rows, target, make_rule("low.nulls", "nulls", ("low",), bound=NO_ROW))
    assert held(target.parent) == ["hash"]


def test_failing_rows_of_a_healthy_dataset_make_no_folder(rows, tmp_path):
    assert judge(rows, tmp_path / "validation" / "hash", make_rule("a", "nulls", ("low",), bound=NO_ROW)) == ()
    assert not (tmp_path / "validation").exists()


def test_failing_rows_written_while_another_process_writes_them_too_are_whole(rows, tmp_path, monkeypatch):
    target, real = tmp_path / "validation" / "hash", failing_rows._failing

    def with_another(*given):
        found = real(*given)
        yield next(found)
        monkeypatch.setattr(failing_rows, "_failing", real)
        judge(rows, target, LOW, CODE)
        yield from found

    results = validate_files(rows, contract(LOW, CODE))
    monkeypatch.setattr(failing_rows, "_failing", with_another)
    found = write_failing_rows(rows, contract(LOW, CODE), results, target)
    assert [(each.rule, each.rows) for each in found] == [("low.range", 20), ("code.unique", 2)]
    assert [len(pl.read_parquet(target / each.file)) for each in found] == [20, 2]
    assert held(target.parent) == ["hash", "hash/code.unique.parquet", "hash/low.range.parquet"]


def test_failing_rows_installed_by_several_processes_at_once_are_those_of_one(tmp_path):
    target = tmp_path / "hash"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=install_often, args=(tmp_path, target, str(number))) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(held(target)) == 2
    assert len({name.rsplit(".", 1)[-1] for name in held(target)}) == 1


def install_often(folder, target, name):
    for number in range(200):
        scratch = folder / f"{name}-{number}"
        written = scratch / "written"
        written.mkdir(parents=True)
        for file in ("a", "b"):
            (written / f"{file}.{name}").touch()
        failing_rows._install(written, target, scratch)
