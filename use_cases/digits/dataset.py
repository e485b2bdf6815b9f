"""Builds the dataset `digits`: 1,797 handwritten digits of 8 x 8 points, as scikit-learn's package holds them.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998 (CC BY 4.0). Who wrote which is
not recorded. The digits stand in the order in which they were taken, so that neighbours are mostly of one hand: a
`sheet` is 18 neighbours, and a sheet is never split.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.datasets import load_digits

SHEET_ROWS = 18
PIXELS = tuple(f"p{row}{column}" for row in range(8) for column in range(8))


def build(out: Path, rows: int) -> None:
    """One file of the first `rows` digits: a key, the sheet, the ink of each point from 0 to 16, and the digit."""
    out.mkdir(parents=True, exist_ok=True)
    found: Any = load_digits()
    table = pd.DataFrame(found.data[:rows].astype("int64"), columns=list(PIXELS))
    table.insert(0, "picture", range(len(table)))
    table.insert(1, "sheet", table["picture"] // SHEET_ROWS)
    table.assign(digit=found.target[:rows].astype("int64")).to_parquet(out / "digits.parquet", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    arguments = parser.parse_args()
    build(arguments.out, arguments.rows)
