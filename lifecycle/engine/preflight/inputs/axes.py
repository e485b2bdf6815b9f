"""Are the axes of files exchanged by a reshape, which mixes what they hold, where they ought to be permuted?

`x.reshape(C, T)` of an array `(T, C)` has the shape that a convolution wants, and reads its numbers line by line into
it. The files' own numbers tell: in that order they are the tensor's, and by no permutation of the axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from trainworthy.lifecycle.files.pictures import open_picture
from trainworthy.lifecycle.files.values import is_file_column

CAUSE = "reshape or view has exchanged axes: it reads the numbers line by line into another shape, and mixes them"
FIX = "exchange axes by transpose or permute; reshape only joins axes that lie side by side, or splits one"
# Files that are read, and axes of one at most: of five there are 120 orders.
ROWS, MOST_AXES = 8, 4
# Correlation of the tensor with the file read line by line, and how much less it is with any exchange of its axes.
# Scaled by one number each is 1 where that was done; smooth pictures have 0.3 to 0.6 with another order.
SAME, LESS = 0.95, 0.05


def reshaped(rows: pd.DataFrame, inputs: Mapping[str, Tensor]) -> list[str]:
    """Which `inputs` of these rows are a file's numbers in another shape, and not with its axes exchanged; in words."""
    found = []
    for column in (str(name) for name in rows if is_file_column(rows[name])):
        files = [path for path in rows[column][:ROWS] if isinstance(path, Path)]
        if len(files) < min(ROWS, len(rows)) or not (numbers := _numbers(files)):
            continue
        for name, tensor in inputs.items():
            values = [one.numpy() for one in tensor[: len(files)].detach().cpu().double()]
            if all(_is_reshaped(*pair) for pair in zip(numbers, values, strict=True)):
                shapes = f"{name} of shape {_shape(values[0])} holds {column} of shape {_shape(numbers[0])}"
                found.append(f"{shapes} with its axes mixed by a reshape")
    return found


def _numbers(files: list[Path]) -> list[np.ndarray]:
    """What they hold, of arrays and pictures; nothing where one is another kind of file, or can't be read."""
    read = []
    for path in files:
        try:
            if path.suffix == ".npy":
                read.append(np.load(path, allow_pickle=False).astype(np.float64))
            else:
                with open_picture(path) as image:
                    read.append(np.asarray(image).astype(np.float64))
        except Exception:  # Texts, and what other checks tell of.
            return []
    return read


def _is_reshaped(raw: np.ndarray, made: np.ndarray) -> bool:
    # Axes of one place hold no order.
    raw, made = raw.squeeze(), made.squeeze()
    if sorted(raw.shape) != sorted(made.shape) or not 2 <= raw.ndim <= MOST_AXES:
        return False
    orders = [raw.transpose(axes) for axes in permutations(range(raw.ndim))]
    exchanged = max(_alike(order, made) for order in orders if order.shape == made.shape)
    # Whatever was done to the axes before.
    in_lines = max(_alike(order.reshape(made.shape), made) for order in orders)
    return in_lines > SAME and exchanged < in_lines - LESS


def _alike(one: np.ndarray, other: np.ndarray) -> float:
    """Their correlation; 0 where one of them is constant or not finite."""
    flat = [values.ravel() - values.mean() for values in (one, other)]
    size = float(np.linalg.norm(flat[0]) * np.linalg.norm(flat[1]))
    return float(flat[0] @ flat[1]) / size if np.isfinite(size) and size > 0 else 0.0


def _shape(values: np.ndarray) -> str:
    return f"({', '.join(map(str, values.shape))})"
