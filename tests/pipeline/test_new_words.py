"""What `trainworthy new` says where it goes no further: what is in the way, and a way that there is."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shop_rows import table, told

from trainworthy.pipeline.scaffold.request import Request, request_problems
from trainworthy.resources.settings import read_settings


@pytest.mark.parametrize(
    ("suffix", "words"),
    [
        (".npy", ("names arrays (.npy)", "docs/how-to/files.md")),
        (".wav", ("names files that no dataset reads: .wav", "docs/how-to/files.md")),
    ],
)
def test_column_of_files_that_are_not_drafted_is_told_as_such(tmp_path, suffix, words):
    (tmp_path / "windows").mkdir()
    rows = table(days=2)
    rows["window"] = [f"windows/{number}{suffix}" for number in range(len(rows))]
    for name in rows["window"]:
        np.save((tmp_path / name).open("wb"), np.zeros(2))
    text = told(rows.drop(columns="at"), tmp_path, time=None)
    assert all(word in text for word in words), text
    assert "several kinds" not in text


def test_arrays_beside_a_table_are_described_where_the_message_says():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "files.md"
    assert "### Arrays beside a table" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("given", "where"), [("group", "--group"), ("split", "--split")])
def test_option_that_goes_with_no_time_is_named_itself(tmp_path, given, where):
    fields = {"target": "bought", "time": "at", "positive": None, "keys": (), "owner": None, given: "hash"}
    request = Request(name="shop", data=tmp_path / "rows.csv", **fields)
    (problem,) = request_problems(request, read_settings(), ())
    assert (problem.where, problem.problem) == (where, "and --time exclude each other")
    assert f"leave out {where}" in problem.fix


def test_rows_of_a_year_each_are_told_of_other_splits_and_not_of_more_days(tmp_path):
    rows = table(days=60, a_day=20)
    rows["at"] = pd.to_datetime(1980 + np.arange(len(rows)) % 17, format="%Y")
    text = told(rows, tmp_path)
    assert "17 different days in 5,844, such as one a week, a month or a year" in text
    assert "leave out --time" in text
    assert "--group COLUMN" in text
    assert "give rows of more days" not in text
