"""Files made from the contract alone, for rows that are: noise in the pinned size, or in a small one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from PIL.Image import fromarray

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.model import Column, Contract

# Rows share them: 64 pictures of 1000 points a side would take seconds to write.
FILES_A_COLUMN = 8
SMALL = (32, 32)
_WORDS = ("rain", "sun", "wind", "first", "second", "never", "always", "early", "late", "one", "two", "many")


def without_size(contract: Contract, columns: Sequence[str]) -> tuple[str, ...]:
    """The arrays among these columns of which nobody can say a shape."""
    return tuple(name for name in columns if (column := contract.column(name)).file == "array" and column.size is None)


def with_sample_files(rows: pd.DataFrame, contract: Contract, folder: Path) -> pd.DataFrame:
    """The rows with a Path in place of each value of a column of files; the files are written to `folder`.

    Arrays need a size (without_size).
    """
    generator, made = np.random.default_rng(0), {}
    for number, column in enumerate(contract.column(str(name)) for name in rows):
        if column.file is None:
            continue
        paths = [_write(column, folder / f"{number}_{file_number}", generator) for file_number in range(FILES_A_COLUMN)]
        known = rows[column.name].notna()
        values = [paths[place % FILES_A_COLUMN] if there else None for place, there in enumerate(known)]
        made[column.name] = pd.Series(values, index=rows.index, dtype=object)
    return with_columns(rows, made)


def _write(column: Column, path: Path, generator: np.random.Generator) -> Path:
    if column.file == "text":
        path = path.with_suffix(".txt")
        path.write_text(" ".join(generator.choice(list(_WORDS), 12)), encoding="utf-8")
        return path
    if column.file == "array":
        path = path.with_suffix(".npy")
        np.save(path, generator.standard_normal(column.size).astype(np.float32), allow_pickle=False)
        return path
    path = path.with_suffix(".png")
    height, width = column.size or SMALL
    shape, most = ((height, width), 2) if column.file == "mask" else ((height, width, 3), 256)
    fromarray(generator.integers(0, most, shape).astype(np.uint8)).save(path, compress_level=1)
    return path
