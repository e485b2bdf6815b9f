"""Values that a list does not hold are told by name, alike by both engines, and never of a sensitive column."""

from pathlib import Path

import pandas as pd
import pytest

from trainworthy.expectations import validate as great_expectations
from trainworthy.lifecycle.contract import polars_engine
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.result import contract_check
from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule

ENGINES = [polars_engine, great_expectations]
ROWS = pd.DataFrame(
    {
        "shop": ["north"] * 50 + ["south"] * 40 + ["west"] * 30 + ["rare"] * 19,
        "size": [1] * 50 + [2] * 40 + [3] * 49,
    }
)


def judged(engine, folder: Path, frame: pd.DataFrame, *rules, sensitive: str = ""):
    """Rows in two files: a value's rows add up over them."""
    frame[::2].to_parquet(folder / "part-1.parquet", index=False)
    frame[1::2].to_parquet(folder / "part-2.parquet", index=False)
    columns = tuple(
        Column(name=name, logical_type="string", role="other", sensitive=name == sensitive) for name in frame
    )
    label = Label(name="late", version=1, column="size")
    contract = Contract(name="t", version="1", columns=columns, rules=rules, label=label, primary_key=())
    return contract_check(engine.validate_files(folder, contract))


def allowed(column: str, *values):
    return make_rule(f"{column}.allowed", "allowed", (column,), "warning", values=list(values), bound=NO_ROW)


@pytest.mark.parametrize("engine", ENGINES)
def test_unlisted_values_are_named_with_their_rows_and_rare_ones_counted(engine, tmp_path):
    check = judged(engine, tmp_path, ROWS, allowed("shop", "north"))
    assert check.evidence.endswith("shop.allowed: 89 of 139 rows (64 %): south in 40, west in 30 and 1 more")
    assert check.details[0]["unlisted"] == {"south": 40, "west": 30}


@pytest.mark.parametrize("engine", ENGINES)
def test_unlisted_keys_of_another_table_and_numbers_are_named(engine, tmp_path):
    known = make_rule("shops", "references", ("shop",), "warning", keys=[["north"], ["rare"], ["west"]], bound=NO_ROW)
    check = judged(engine, tmp_path, ROWS, known, allowed("size", 1, 2))
    assert [item["unlisted"] for item in check.details] == [{"south": 40}, {"3": 49}]


@pytest.mark.parametrize("engine", ENGINES)
def test_unlisted_values_of_a_sensitive_column_are_not_named(engine, tmp_path):
    check = judged(engine, tmp_path, ROWS, allowed("shop", "north"), sensitive="shop")
    assert "89 of 139" in check.evidence
    assert "south" not in str(check.model_dump())


@pytest.mark.parametrize("engine", ENGINES)
def test_unlisted_rare_values_alone_are_not_in_the_evidence(engine, tmp_path):
    check = judged(engine, tmp_path, ROWS, allowed("shop", "north", "south", "west"))
    assert check.evidence.endswith("19 of 139 rows (13.7 %)")
    assert "unlisted" not in check.details[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_unlisted_values_are_shown_short_and_without_control_characters(engine, tmp_path):
    frame = pd.DataFrame({"shop": ["\x1b[2J"] * 30 + ["x" * 500] * 20, "size": 1})
    check = judged(engine, tmp_path, frame, allowed("shop", "north"))
    assert list(check.details[0]["unlisted"]) == [r"'\x1b[2J'", "x" * 40 + "…"]
    assert "\x1b" not in check.evidence
