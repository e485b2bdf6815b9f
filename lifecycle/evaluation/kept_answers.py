"""Answers that are kept for later questions: a model's to a suite's rows, and two models' side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.figures import CANDIDATE, CHAMPION
from trainworthy.lifecycle.storage.state import write_atomic

if TYPE_CHECKING:
    import pandas as pd

_ANSWERS, _SEAL = "answers.parquet", "answers.json"
# Parts of the names of columns of an own metric's figures, and of decisions.
_OF_METRIC, _OF_DECISION = 4, 2
# What rows are, whoever answers.
_OF_ROWS = ("row", "group", "label")


def keep_answers(folder: Path, table: pd.DataFrame) -> tuple[Path, str, int]:
    """Write a table of answers and its hash; the hash last, so that what was half written counts as nothing.

    Gives its path, sha256 and bytes.
    """
    import io

    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    path = folder / _ANSWERS
    write_atomic(path, buffer.getvalue())
    sha256 = sha256_file(path)
    write_atomic(folder / _SEAL, json.dumps({"sha256": sha256}).encode())
    return path, sha256, path.stat().st_size


def kept_answers(folder: Path) -> pd.DataFrame | None:
    """The table that was kept; None if there is none, or not with the bytes that were written."""
    import pandas as pd

    path, seal = folder / _ANSWERS, folder / _SEAL
    try:
        same = json.loads(seal.read_text(encoding="utf-8"))["sha256"] == sha256_file(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pd.read_parquet(path) if same else None


def side_by_side(candidate: pd.DataFrame, champion: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    """One table: what names a row, group, label and weight, the candidate's and its baselines' answers, the champion's.

    All have the same rows in the same order. Raises EvaluationError where they do not.
    """
    import pandas as pd

    same = len(candidate) == len(champion) and all(
        candidate[name].reset_index(drop=True).equals(champion[name].reset_index(drop=True)) for name in _OF_ROWS
    )
    if not same:
        raise EvaluationError(
            "candidate and champion did not answer the same rows",
            value=(len(candidate), len(champion)),
            fix="run again: both are scored anew on this run's benchmark",
        )
    theirs = champion[[name for name in champion.columns if model_of(name) == CANDIDATE]]
    theirs = renamed_models(theirs, {CANDIDATE: CHAMPION})
    named = keys.rename(columns={name: f"key:{name}" for name in keys.columns})
    return pd.concat([named.reset_index(drop=True), candidate, theirs], axis=1)


def model_of(column: str) -> str:
    """The model of a column of answers, of own metrics' figures, or of decisions; else what the name begins with."""
    parts = column.split(":")
    return parts[_place(parts)]


def renamed_models(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The table with other names of models in its columns."""
    new_names = {}
    for column in table.columns:
        parts = column.split(":")
        if (model := model_of(column)) in names:
            parts[_place(parts)] = names[model]
            new_names[column] = ":".join(parts)
    return table.rename(columns=new_names)


def _place(parts: Sequence[str]) -> int:
    """Which part of a column's name is the model: metric:<name>:<model>:<n>, decision:<model>, else the first."""
    if parts[0] == "metric" and len(parts) == _OF_METRIC:
        return 2
    return 1 if parts[0] == "decision" and len(parts) == _OF_DECISION else 0
