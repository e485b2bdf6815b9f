"""Synthetic rows: 80 a day, a label that depends on two numbers and a shop."""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd


def build(out: Path, days: int, seed: int) -> None:
    """A file for every ten days; a day's rows depend on the seed and the day alone."""
    out.mkdir(parents=True, exist_ok=True)
    for start in range(0, days, 10):
        block = pd.concat([one_day(day, seed) for day in range(start, start + 10)], ignore_index=True)
        block.to_parquet(out / f"days-{start:03d}.parquet", index=False)


def one_day(day: int, seed: int, rows: int = 80) -> pd.DataFrame:
    generator = np.random.default_rng([seed, day])
    shop = generator.choice(["north", "south", "west"], rows)
    x1, x2 = generator.normal(size=rows), generator.normal(size=rows)
    score = 1.5 * x1 - x2 * (shop == "north") + 0.3 * np.sin(day / 7) + generator.normal(size=rows)
    date = pd.Timestamp("2024-01-01") + pd.Timedelta(days=day)
    return pd.DataFrame(
        {
            "row_id": day * rows + np.arange(rows),
            "when": date.tz_localize("UTC") + pd.to_timedelta(np.arange(rows) * 15, unit="min"),
            "day": date,
            "shop": shop,
            "x1": x1,
            "x2": x2,
            "score": np.where(generator.random(rows) < 0.02, np.nan, score),
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--days", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    build(arguments.out, arguments.days, arguments.seed)
