"""Rows for `trainworthy new`, and what would be written for them, without DVC."""

from pathlib import Path

import numpy as np
import pandas as pd

from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.table_profile import find_out


def table(days: int = 60, a_day: int = 20) -> pd.DataFrame:
    """Healthy rows: a key, a time, inputs of several types, and a target of two texts."""
    generator = np.random.default_rng(1)
    rows = days * a_day
    x = generator.normal(size=rows)
    return pd.DataFrame(
        {
            "visit_id": np.arange(rows),
            "at": pd.Timestamp("2024-01-01T00:00:00") + pd.to_timedelta(np.arange(rows) * 1440 // a_day, unit="min"),
            "x": x,
            "place": generator.choice(["north", "south"], rows),
            "bought": np.where(x + generator.normal(size=rows) > 0, "yes", "no"),
        }
    )


def found(rows: pd.DataFrame, tmp_path: Path, *, suffix: str = ".parquet", **fields):
    """What would be written for the rows, without DVC."""
    path = tmp_path / f"rows{suffix}"
    rows.to_csv(path, index=False) if suffix == ".csv" else rows.to_parquet(path, index=False)
    asked = {"target": "bought", "time": "at", "positive": None, "keys": (), "owner": None}
    (tmp_path / "work").mkdir()
    return find_out(Request(name="shop", data=path, **(asked | fields)), path, tmp_path / "work")


def roles(rows: pd.DataFrame, tmp_path: Path, **fields) -> dict[str, str]:
    result, problems = found(rows, tmp_path, **fields)
    assert problems == []
    assert result is not None
    return {column.name: column.role for column in result.columns}


def told(rows: pd.DataFrame, tmp_path: Path, **fields) -> str:
    """All problems as one text."""
    result, problems = found(rows, tmp_path, **fields)
    assert result is None
    assert all(problem.fix for problem in problems)
    return "\n".join(map(str, problems))
