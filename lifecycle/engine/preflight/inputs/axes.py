"""Are the axes of files exchanged by a reshape, which mixes what they hold, where they ought to be permuted?

`x.reshape(C, T)` of an array `(T, C)` has the shape that a convolution wants, and reads its numbers line by line into
it. The files' own numbers tell: in that order they are the tensor's, and by no permutation of the axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from trainworthy.lifecycle.files.pictures import open_picture
from trainworthy.lifecycle.files.values import is_file_column

CAUSE = "reshape or view has exchanged axes: it reads the numbers line by line into another shape, and mixes them"
FIX = (
    "exchange axes by transpose or permute; reshape only joins axes that lie side by side, or splits one. If the files "
    "are stored so mixed, and this undoes it: preflight: {not_applicable: {inputs.channels_first: why}}"
)
# Files that are read, axes of one at most, of five of which there are 120 orders, and its numbers.
ROWS, MOST_AXES, MOST_NUMBERS = 8, 4, 2**22
# Correlation of the tensor with the file read line by line, and how much less it is with any exchange of its axes.
# Scaled by one number each is 1 where that was done; smooth pictures have 0.3 to 0.6 with another order.
SAME, LESS = 0.95, 0.05
# Numbers of a channel by which it can be scaled by itself.
FEWEST_OF_A_CHANNEL = 8


def reshaped(rows: pd.DataFrame, inputs: Mapping[str, Tensor]) -> list[str]:
    """Which `inputs` of these rows are a file's numbers in another shape, and not with its axes exchanged; in words."""
    found = []
    for column in (str(name) for name in rows if is_file_column(rows[name])):
        files = [path for path in rows[column][:ROWS] if isinstance(path, Path)]
        for name, tensor in inputs.items():
            if len(files) < min(ROWS, len(rows)) or not _is_plain(tensor):
                continue
            if (shape := _mixed(files, tensor[: len(files)])) is not None:
                made = _shape(tuple(tensor.shape[1:]))
                found.append(
                    f"{name} of shape {made} holds {column} of shape {_shape(shape)} with its axes mixed by a reshape"
                )
    return found


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_complex() and tensor.ndim > 2


def _mixed(files: list[Path], values: Tensor) -> tuple[int, ...] | None:
    """The files' shape if all that tell are mixed in the values; None if one is not, or none tells."""
    seen: tuple[int, ...] | None = None
    for path, value in zip(files, values, strict=True):
        raw = _numbers(path, tuple(value.shape))
        if raw is None:
            return None
        made = value.detach().cpu().double().numpy()
        if raw.std() == 0 or made.std() == 0:
            # Of a blank picture any order is the same.
            continue
        if not _is_reshaped(raw, made):
            return None
        seen = raw.shape
    return seen


def _numbers(path: Path, wanted: tuple[int, ...]) -> np.ndarray | None:
    """What a file holds, of an array or a picture with the axes of the wanted shape in any order; None of all else."""
    try:
        if path.suffix == ".npy":
            raw = np.load(path, allow_pickle=False, mmap_mode="r")
            return np.array(raw, dtype=np.float64) if _may_be(raw.shape, wanted) else None
        with open_picture(path) as image:
            shape = (*image.size[::-1], len(image.getbands()))
            return np.asarray(image).astype(np.float64) if _may_be(shape, wanted) else None
    except Exception:  # Texts, and what other checks tell of.
        return None


def _may_be(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether one is the other with axes exchanged; axes of one place hold no order."""
    sides, others = (sorted(side for side in one if side != 1) for one in (shape, wanted))
    return sides == others and 2 <= len(sides) <= MOST_AXES and math.prod(sides) <= MOST_NUMBERS


def _is_reshaped(raw: np.ndarray, made: np.ndarray) -> bool:
    raw, made = raw.squeeze(), made.squeeze()
    orders = [raw.transpose(axes) for axes in permutations(range(raw.ndim))]
    exchanged = max(_alike(order, made) for order in orders if order.shape == made.shape)
    # Whatever was done to the axes before; channels are scaled before the reshape, or after it.
    in_lines = max(
        max(_alike(order.reshape(made.shape), made), _alike(order, made.reshape(order.shape))) for order in orders
    )
    return in_lines > SAME and exchanged < in_lines - LESS


def _alike(one: np.ndarray, other: np.ndarray) -> float:
    """Their correlation, or that of their channels, the shortest axis, each scaled by itself, whichever is larger."""
    axis = int(np.argmin(one.shape))
    whole = [values.ravel() - values.mean() for values in (one, other)]
    if one.size < FEWEST_OF_A_CHANNEL * one.shape[axis]:
        return _cosine(*whole)
    return max(_cosine(*whole), _cosine(_scaled(one, axis), _scaled(other, axis)))


def _scaled(values: np.ndarray, axis: int) -> np.ndarray:
    """Each place of an axis at mean 0 and deviation 1, all as one line; what is constant is 0."""
    others = tuple(other for other in range(values.ndim) if other != axis)
    centred = values - values.mean(others, keepdims=True)
    return (centred / np.maximum(centred.std(others, keepdims=True), 1e-12)).ravel()


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Of two lines; 0 where one of them is 0 or not finite."""
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / size if np.isfinite(size) and size > 0 else 0.0


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
