"""Synthetic rows: 120 days, 80 rows a day, a label that depends on two numbers and a shop."""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd


def build(out: Path, days: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = days * 80
    day = np.repeat(np.arange(days), 80)
    shop = generator.choice(["north", "south", "west"], rows)
    x1, x2 = generator.normal(size=rows), generator.normal(size=rows)
    weekly = 0.3 * np.sin(day / 7)
    score = 1.5 * x1 - x2 * (shop == "north") + weekly + generator.normal(size=rows)
    frame = pd.DataFrame(
        {
            "row_id": np.arange(rows),
            "when": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(np.arange(rows) * 18, unit="min"),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D"),
            "shop": shop,
            "x1": x1,
            "x2": x2,
            "score": np.where(generator.random(rows) < 0.02, np.nan, score),
        }
    )
    out.mkdir(parents=True, exist_ok=True)
    for month, part in frame.groupby(frame["day"].dt.strftime("%Y-%m")):
        part.reset_index(drop=True).to_parquet(out / f"{month}.parquet", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--days", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    build(arguments.out, arguments.days, arguments.seed)
