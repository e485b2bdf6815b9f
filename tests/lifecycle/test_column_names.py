"""Columns whose names are a user's, whatever they are."""

import ast
from pathlib import Path

import pandas as pd

from trainworthy.lifecycle.columns import with_columns

ROOT = Path(__file__).parents[2]


def test_columns_are_set_whatever_they_are_called_and_the_rows_given_stay():
    rows = pd.DataFrame({"self": [1, 2], "other": [3.0, 4.0]}, index=[7, 8])
    changed = with_columns(rows, {"self": pd.Series(["b", "a"], index=[8, 7]), "cls": 0})
    assert changed.to_dict("list") == {"self": ["a", "b"], "other": [3.0, 4.0], "cls": [0, 0]}
    assert list(changed) == ["self", "other", "cls"]
    assert list(changed.index) == [7, 8]
    assert rows.to_dict("list") == {"self": [1, 2], "other": [3.0, 4.0]}


def test_no_code_hands_over_columns_as_keywords():
    """A column `self` is one argument twice: a training ended by it after its pilot. Benchmarks name their own."""
    folders = ("lifecycle", "assets", "pipeline", "resources", "expectations")
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if ".assign(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "assign"
        if any(keyword.arg is None for keyword in node.keywords)
    ]
    assert calls == []
