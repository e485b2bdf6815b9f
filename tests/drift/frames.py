"""Synthetic days of a shop: a season, a weekly rhythm, days that differ, a heavy tail, gaps in a sensor."""

from pathlib import Path

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.rule import LogicalType
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.spec.split import BenchmarkWindow, TimeSplit

START = pd.Timestamp("2024-01-01")
WINDOW = 28
SPLIT = TimeSplit(
    by="time",
    column="day",
    embargo="1d",
    validation="14d",
    calibration="14d",
    benchmark=BenchmarkWindow(window=f"{WINDOW}d", roll="each_version"),
    resample_by="day",
)
FEATURES = ("shop", "temperature", "distance", "amount", "score", "flag", "sensor", "empty", "constant")


def shop_rows(days: int = 196, rows_a_day: int = 150, seed: int = 0) -> pd.DataFrame:
    """About `rows_a_day` rows a day; the newest 28 days are the window."""
    generator = np.random.default_rng(seed)
    sizes = generator.poisson(rows_a_day * np.where(np.arange(days) % 7 < 5, 1.1, 0.75))
    day = np.repeat(np.arange(days), sizes)
    rows = len(day)
    weather = generator.normal(0, 4, days)[day]
    return pd.DataFrame(
        {
            "day": START + pd.to_timedelta(day, unit="D"),
            "shop": generator.choice(["north", "south", "west", "east"], rows, p=[0.5, 0.3, 0.15, 0.05]),
            "temperature": 60 + 25 * np.sin(day / 58) + weather + generator.normal(0, 3, rows),
            "distance": generator.integers(50, 3000, rows),
            "amount": np.exp(generator.normal(3, 2, rows)),
            "score": np.clip(generator.normal(0, 1, rows) + 0.3 * generator.normal(0, 1, days)[day], -8, 8),
            "flag": (generator.random(rows) < 0.02).astype(float),
            "sensor": np.where(generator.random(rows) < 0.05, np.nan, 1000 + weather + generator.normal(0, 5, rows)),
            "empty": np.nan,
            "constant": 7,
            "late": (generator.random(rows) < 0.3).astype("int8"),
        }
    )


def newest(rows: pd.DataFrame, days: int = WINDOW) -> pd.Series:
    """True for the rows of the newest days."""
    return rows["day"] > rows["day"].max() - pd.Timedelta(days=days)


def written(rows: pd.DataFrame, folder: Path) -> SplitFiles:
    """The rows as a snapshot's splits: the window, two weeks each of calibration and validation, the rest."""
    folder.mkdir(parents=True, exist_ok=True)
    last = rows["day"].max()
    age = (last - rows["day"]).dt.days
    for name, low, high in (
        ("benchmark", 0, 27), ("calibration", 29, 42), ("validation", 44, 57), ("training", 59, 10**6),
    ):  # fmt: skip
        rows[(age >= low) & (age <= high)].to_parquet(folder / f"{name}.parquet", index=False)
    return SplitFiles(folder)


def contract(**changes: dict) -> Contract:
    """The features and their label; `changes` are fields of a column by its name."""
    kinds: dict[str, LogicalType] = {"shop": "string", "distance": "integer", "constant": "integer"}
    columns = [
        Column(name=name, logical_type=kinds.get(name, "number"), role="feature", **changes.get(name, {}))
        for name in FEATURES
    ]
    columns.append(Column(name="late", logical_type="integer", role="target"))
    label = Label(name="late", version=1, column="late")
    return Contract(name="shop", version="1", columns=tuple(columns), rules=(), label=label, primary_key=())
