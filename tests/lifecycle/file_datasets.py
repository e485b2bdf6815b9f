"""Tiny datasets whose rows name files, made with numpy: for the tests of everything that reads such rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

SIDE = 8


def picture(label: int, seed: int, side: int = SIDE) -> Image.Image:
    """Noise that is brighter at the top for label 1, at the bottom for label 0; RGB."""
    values = np.random.default_rng(seed).integers(0, 120, (side, side, 3))
    half = slice(0, side // 2) if label else slice(side // 2, side)
    values[half] += 100
    return Image.fromarray(values.astype(np.uint8), "RGB")


def picture_dataset(folder: Path, rows: int = 40, side: int = SIDE) -> pd.DataFrame:
    """Write `rows` PNG pictures of two classes in turn and the Parquet file that names them; its rows."""
    (folder / "files").mkdir(parents=True)
    for row in range(rows):
        picture(row % 2, row, side).save(folder / "files" / f"{row:04}.png")
    table = pd.DataFrame(
        {
            "row_id": np.arange(rows),
            "picture": [f"files/{row:04}.png" for row in range(rows)],
            "label": np.arange(rows) % 2,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(rows) // 4, unit="D"),
        }
    )
    table.to_parquet(folder / "rows.parquet", index=False)
    return table
