"""Who judges the rows, what the check says of it, and where all failing rows lie."""

import importlib.util
import shutil

import pandas as pd
import polars as pl
import pytest

from trainworthy.assets.snapshot import checked_contract, validator
from trainworthy.lifecycle.contract.failing_rows import file_name
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.result import MAX_NAMED_ROWS
from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule
from trainworthy.lifecycle.errors import SettingsError, UseCaseError
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.spec.use_case import chosen_engine
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import PRODUCT

TOY = PRODUCT / "tests" / "toy" / "use_cases" / "toy"
RULES = (
    make_rule("low.range", "range", ("low",), bound=NO_ROW, minimum=0),
    make_rule("../odd name", "unique", ("code",), bound=NO_ROW),
    make_rule("secret.allowed", "allowed", ("secret",), bound=NO_ROW, values=["a"]),
    make_rule("low.nulls", "nulls", ("low",), bound=NO_ROW),
)


def judged(tmp_path, engine="auto"):
    """The check of 300 rows, of which 100 are below 0, 2 share a code, and one holds a secret."""
    folder = tmp_path / "rows"
    folder.mkdir(exist_ok=True)
    rows = pd.DataFrame({"row": range(300), "low": [-1, 1, 2] * 100, "secret": ["a"] * 299 + ["hunter2"]})
    rows["code"] = rows["row"].replace(299, 7)
    rows[:150].to_parquet(folder / "part-1.parquet")
    rows[150:].to_parquet(folder / "part-2.parquet")
    columns = [
        Column(name=name, logical_type="integer", role="feature", sensitive=name == "secret") for name in rows.columns
    ]
    label = Label(name="late", version=1, column="low", greater_than=0.0)
    contract = Contract(name="t", version="1", columns=tuple(columns), rules=RULES, label=label, primary_key=("row",))
    return checked_contract(StateFolder(tmp_path / "var"), "toy", "0123456789abcdef" * 4, engine, folder, contract)


@pytest.mark.parametrize(("engine", "words"), [("auto", "fused"), ("great_expectations", "Great Expectations")])
def test_contract_check_names_its_engine_and_every_failing_row_lies_in_a_file(tmp_path, engine, words):
    check = judged(tmp_path, engine)
    assert check.status == "fail"
    assert words in check.evidence
    details = {detail["rule"]: detail for detail in check.details}
    low = details["low.range"]
    assert [row["row"] for row in low["rows"]] == list(range(0, 3 * MAX_NAMED_ROWS, 3))
    assert low["failing_rows"]["rows"] == low["unexpected"] == 100
    found = pl.read_parquet(tmp_path / "var" / low["failing_rows"]["file"])
    assert found.columns == ["row", "low"]
    assert found["row"].to_list() == list(range(0, 300, 3))
    twins = pl.read_parquet(tmp_path / "var" / details["../odd name"]["failing_rows"]["file"])
    assert twins.rows() == [(7, 7), (299, 7)]
    assert "failing_rows" not in details["low.nulls"]


def test_failing_rows_of_a_sensitive_column_lie_nowhere_and_names_stay_in_the_folder(tmp_path):
    check = judged(tmp_path)
    assert "failing_rows" not in next(detail for detail in check.details if detail["rule"] == "secret.allowed")
    files = [path for path in (tmp_path / "var").rglob("*") if path.is_file()]
    assert {path.parent for path in files} == {tmp_path / "var" / "validation" / "toy" / "0123456789abcdef"}
    assert len(files) == 2
    assert all(b"hunter2" not in path.read_bytes() for path in files)


def test_failing_rows_interrupted_leave_nothing_half_written(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("no space left")

    # Comes after the first rule's file was begun; Great Expectations finds its 20 rows without it.
    monkeypatch.setattr("trainworthy.lifecycle.contract.failing_rows.is_duplicate", broken)
    with pytest.raises(OSError, match="no space"):
        judged(tmp_path, "great_expectations")
    assert not [path for path in (tmp_path / "var").rglob("*") if path.is_file()]


def test_file_name_two_odd_ids_never_share_a_file():
    names = {file_name(make_rule(name, "nulls", ("a",), bound=NO_ROW)) for name in ("a/b", "a_b", "a b", "..", ".a")}
    assert len(names) == 5
    assert all("/" not in name and not name.startswith(".") for name in names)


def test_validator_spark_that_is_not_installed_says_what_to_install(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("trainworthy.assets.snapshot.find_spec", lambda name: None if name == "pyspark" else real(name))
    with pytest.raises(SettingsError, match=r"(?s)pyspark.*pip install -e '\.\[spark\]'"):
        validator("spark")


@pytest.fixture
def with_engine(tmp_path):
    """The toy use case with an engine declared."""

    def make(engine):
        folder = tmp_path / "use_cases" / "toy"
        shutil.copytree(TOY, folder, dirs_exist_ok=True)
        text = (TOY / "use_case.yaml").read_text()
        (folder / "use_case.yaml").write_text(f"{text}validation: {{engine: {engine}}}\n")
        return load_use_case(folder)

    return make


def test_engine_is_declared_in_use_case_yaml_and_is_no_identity(with_engine):
    plain, other = load_use_case(TOY), with_engine("great_expectations")
    assert chosen_engine(plain.spec.validation.engine) == "fused"
    assert chosen_engine(other.spec.validation.engine) == "great_expectations"
    assert [declared_sections(plain, step) for step in STEPS] == [declared_sections(other, step) for step in STEPS]


def test_engine_unknown_is_refused(with_engine):
    with pytest.raises(UseCaseError, match=r"validation\.engine"):
        with_engine("pandas")
