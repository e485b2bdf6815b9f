"""A drafted contract: its rows keep it, another unit does not, and names stay what they are."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from trainworthy.expectations.validate import validate_frame
from trainworthy.lifecycle.contract.draft import ColumnDraft, contract_text, draft_contract, inline
from trainworthy.lifecycle.contract.model import Contract, Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.result import contract_check

TEXTS = ("a", "no", "1", "1.0", "a: b", "a #b", "'q'", '"', "x\ny", "\u2028", "  lead", "- x", "!tag", "\x07", "", "~",
         "é", "2024-01-01", "<script>", "{{ x }}", "[", "*a", "&a", "%", "@", "`", "a\tb", "\\")  # fmt: skip


def frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    rows = 400
    return pd.DataFrame(
        {
            "row": range(rows),
            "at": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(np.arange(rows), unit="h"),
            "metres": np.where(generator.random(rows) < 0.2, np.nan, generator.uniform(0.5, 2.1, rows)),
            "degrees": generator.uniform(-20, 30, rows),
            "place": generator.choice(["north", "south"], rows),
            "label": pd.array(generator.integers(0, 2, rows), dtype="Int64"),
        }
    )


ROLES = {"row": "key", "at": "event_time", "label": "target"}


def drafted(rows: pd.DataFrame, tmp_path: Path) -> Contract:
    columns = [ColumnDraft(name=name, role=ROLES.get(name, "feature"), remark="a remark") for name in rows.columns]
    label = Label(name="label", version=1, column="label")
    document = draft_contract(rows, name="draft", purpose="Tests.", columns=columns, key=["row"], label=label)
    path = tmp_path / "contract.yaml"
    path.write_text(contract_text(document, columns, "A heading\nof two lines"), encoding="utf-8")
    assert yaml.safe_load(path.read_text()) == document
    contract = load_contract(path)
    assert contract.unreviewed_features == contract.feature_columns
    return contract


def status(rows: pd.DataFrame, contract: Contract) -> str:
    return contract_check(validate_frame(rows, contract)).status


def test_draft_is_kept_by_its_own_rows(tmp_path):
    assert status(frame(), drafted(frame(), tmp_path)) == "pass"


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.assign(metres=rows["metres"] * 100),
        lambda rows: rows.assign(degrees=rows["degrees"] * 9 / 5 + 132),
        lambda rows: rows.assign(metres=np.nan),
        lambda rows: rows.assign(degrees=rows["degrees"].where(rows.index > 3)),
        lambda rows: rows.assign(place=rows["place"].str.upper()),
        lambda rows: rows.assign(at=pd.Timestamp("1970-01-01", tz="UTC")),
        lambda rows: rows.assign(label=rows["label"] + 1),
        lambda rows: rows.assign(row=0),
        lambda rows: rows.head(100),
    ],
)
def test_draft_is_broken_by_rows_of_another_kind(tmp_path, change):
    assert status(change(frame()), drafted(frame(), tmp_path)) == "fail"


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.assign(degrees=rows["degrees"] + 10),
        lambda rows: rows.assign(place=rows["place"].where(rows.index > 5, "west")),
        lambda rows: rows.assign(label=rows["label"].where(rows.index > 5)),
    ],
)
def test_draft_leaves_room_for_the_next_version(tmp_path, change):
    assert status(change(frame()), drafted(frame(), tmp_path)) == "pass"


@pytest.mark.parametrize("values", [0.0, -3.0, 1e-9, 1e12, -1e6])
def test_draft_of_a_constant_number_is_kept(tmp_path, values):
    rows = frame().assign(degrees=values)
    assert status(rows, drafted(rows, tmp_path)) == "pass"


@pytest.mark.parametrize("scale", [1e-7, 0.003, 1.0, 77.7, 123456.0, 1e11])
def test_draft_of_numbers_of_any_size_is_kept(tmp_path, scale):
    rows = frame().assign(degrees=lambda r: r["degrees"] * scale)
    assert status(rows, drafted(rows, tmp_path)) == "pass"


@pytest.mark.parametrize("text", TEXTS)
def test_draft_text_on_one_line_is_read_back_as_it_was(text):
    for value in (text, [text], {"key": [text]}):
        written = inline(value)
        assert "\n" not in written
        assert yaml.safe_load(f"key: {written}  # a remark") == {"key": value}


def test_draft_keeps_hostile_column_names(tmp_path):
    rows = frame().rename(columns={"place": 'x\ny: "q" #', "metres": "<b>"})
    assert {'x\ny: "q" #', "<b>"} < set(drafted(rows, tmp_path).feature_columns)
