"""The network's own tensors as a table, so that references can be fitted on what the network sees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from trainworthy.lifecycle.engine.training.judging.places import channels_of, with_channels
from trainworthy.lifecycle.engine.training.judging.references import ReferenceRows
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.scoring import chunk_rows
from trainworthy.lifecycle.task import Task
from trainworthy.lifecycle.tasks.baselines import MOST_TREE_CATEGORIES

# Columns of the table. A picture of 28 x 28 gives every seventh of its 784 numbers.
MOST_COLUMNS = 128
# Of a tensor with the points of a mask; and rows of a stage, which have as many points as a reference is fitted on.
MOST_CHANNELS, MOST_POINT_ROWS = 16, 1000
# Numbers of a table, of 8 bytes each; it lies in memory a few times over. Of more rows nobody asks.
MOST_NUMBERS = 2**25


def tensor_rows(
    task: Task, preprocessing: Mapping[str, Any], stage: pd.DataFrame, validation: pd.DataFrame, columns: Rows
) -> ReferenceRows | None:
    """Both as tables of what to_tensors makes of them; None where its tensors hold no number for each row,
    and of too many rows."""
    if (len(stage) + len(validation)) * MOST_COLUMNS > MOST_NUMBERS:
        return None
    with random_kept():
        tables = [_table(task, preprocessing, rows[list(columns.features)]) for rows in (stage, validation)]
    return _as_rows(tables, stage, validation, columns)


def point_rows(
    task: Task, preprocessing: Mapping[str, Any], stage: pd.DataFrame, validation: pd.DataFrame, columns: Rows,
    points: tuple[int, ...], grid: tuple[int, int],
) -> ReferenceRows | None:  # fmt: skip
    """Both as what to_tensors makes of them at the points of a mask, each row an array `(*grid, channels)`.

    `points` are a mask's height and width. None where no tensor of numbers has its points in the order of a picture,
    and of too many rows.
    """
    with random_kept():
        one = _grids(task, preprocessing, stage[list(columns.features)].iloc[:1], points, grid)
        numbers = sum(array.size for array in one.iloc[0]) if len(one) else 0
        if (len(stage) + len(validation)) * numbers > MOST_NUMBERS:
            return None
        tables = [
            _grids(task, preprocessing, rows[list(columns.features)], points, grid) for rows in (stage, validation)
        ]
    return _as_rows(tables, stage, validation, columns)


def _as_rows(
    tables: list[pd.DataFrame], stage: pd.DataFrame, validation: pd.DataFrame, columns: Rows
) -> ReferenceRows | None:
    """The tables with the rows' labels and groups; None where they have no column."""
    names = [name for name in tables[0] if name in tables[1]]
    if not names:
        return None
    codes = {name: str for name in names if _few_categories(tables[0][name].to_numpy())}
    of_rows = {column: f"of rows: {column}" for column in dict.fromkeys((columns.label, columns.group))}
    stage_table, validation_table = (
        table[names].astype(codes).join(rows[list(of_rows)].rename(columns=of_rows).reset_index(drop=True))
        for table, rows in zip(tables, (stage, validation), strict=True)
    )
    renamed = {"features": tuple(names), "label": of_rows[columns.label], "group": of_rows[columns.group]}
    return ReferenceRows(
        stage_table, validation_table, columns.model_copy(update={**renamed, "files": (), "label_file": None})
    )


def _table(task: Task, preprocessing: Mapping[str, Any], features: pd.DataFrame) -> pd.DataFrame:
    """What to_tensors makes of the rows, some of them at a time: each of a row's numbers as a column."""
    chunk = chunk_rows(task.to_tensors(features.iloc[:1], preprocessing))
    some = (features.iloc[start : start + chunk] for start in range(0, len(features), chunk))
    parts = [pd.DataFrame(flat(task.to_tensors(rows, preprocessing), len(rows), MOST_COLUMNS)) for rows in some]
    return pd.concat(parts, ignore_index=True)


def _grids(
    task: Task, preprocessing: Mapping[str, Any], features: pd.DataFrame, points: tuple[int, ...], grid: tuple[int, int]
) -> pd.DataFrame:
    """Of each tensor of numbers with these points a column of arrays, the means of what lies in a place of the grid."""
    chunk = chunk_rows(task.to_tensors(features.iloc[:1], preprocessing))
    columns: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(features), chunk):
        some = features.iloc[start : start + chunk]
        for name, tensor in task.to_tensors(some, preprocessing).items():
            layout = channels_of(tensor, points) if tensor.is_floating_point() and len(tensor) == len(some) else None
            if layout is not None:
                small = functional.adaptive_avg_pool2d(with_channels(tensor, layout)[:, :MOST_CHANNELS].float(), grid)
                columns.setdefault(name, []).extend(small.movedim(1, -1).cpu().numpy())
    return pd.DataFrame({name: pd.Series(arrays, dtype=object) for name, arrays in columns.items()})


def flat(inputs: Mapping[str, Tensor], rows: int, most: int) -> dict[str, np.ndarray]:
    """Numbers of the tensors of so many rows, each `(N,)`, by tensor and place; at most about so many, evenly spread.

    Floats, and integers as they are. What is no plain tensor of one part a row is left out.
    """
    plain = {
        name: tensor.reshape(rows, -1)
        for name, tensor in inputs.items()
        if tensor.layout is torch.strided and not tensor.is_complex() and tensor.ndim and len(tensor) == rows
    }
    every = max(1, math.ceil(sum(table.shape[1] for table in plain.values()) / most))
    columns: dict[str, np.ndarray] = {}
    for name, table in plain.items():
        some = table[:, ::every]
        numbers = (some.double() if some.is_floating_point() else some.long()).cpu().numpy()
        columns |= {f"{name} {place * every}": numbers[:, place] for place in range(some.shape[1])}
    return columns


def _few_categories(values: np.ndarray) -> bool:
    """Whether integers are codes of so few things that a model can know each."""
    return values.dtype == np.int64 and len(np.unique(values)) <= MOST_TREE_CATEGORIES
