"""Where to run, and the answers of a model to rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lifecycle.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch
    from torch import Tensor

    from lifecycle.task import Task

# Rows that become tensors at once: so many of a table, fewer where a row is a picture.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 256 * 2**20


def choose_device(declared: str) -> str:
    """`cpu` or `cuda`. Raises SettingsError if CUDA is declared and there is none."""
    import torch

    available = torch.cuda.is_available()
    if declared == "cuda" and not available:
        raise SettingsError(
            "compute.device is cuda, and torch sees no CUDA device here",
            value=f"torch {torch.__version__}",
            fix="set compute.device to auto or cpu, or run where a GPU and a CUDA build of torch are",
        )
    return "cuda" if declared != "cpu" and available else "cpu"


def predict_rows(
    task: Task, model: torch.nn.Module, preprocessing: Mapping[str, Any], features: pd.DataFrame, device: str
) -> np.ndarray:
    """Answers `(N,)` or `(N, K)`, float64, in evaluation mode; the model's mode is put back."""
    was_training = model.training
    model.eval()
    try:
        return in_chunks(features, task, preprocessing, model, device)
    finally:
        model.train(was_training)


def in_chunks(
    features: pd.DataFrame,
    task: Task,
    preprocessing: Mapping[str, Any],
    model: Callable[[dict[str, Tensor]], Tensor],
    device: str,
) -> np.ndarray:
    """What predict makes of any callable's outputs, at most CHUNK_ROWS rows and CHUNK_BYTES of inputs at a time."""
    import numpy as np
    import torch

    parts, chunk = [], _chunk_rows(features, task, preprocessing)
    with torch.no_grad():
        for start in range(0, len(features), chunk):
            inputs = task.to_tensors(features.iloc[start : start + chunk], preprocessing)
            outputs = model({name: tensor.to(device) for name, tensor in inputs.items()})
            parts.append(task.predict(outputs).double().cpu().numpy())
    return np.concatenate(parts) if parts else np.zeros(0)


def _chunk_rows(features: pd.DataFrame, task: Task, preprocessing: Mapping[str, Any]) -> int:
    """Rows of a chunk, by the bytes of one row's inputs."""
    if len(features) < 2:
        return CHUNK_ROWS
    return chunk_rows(task.to_tensors(features.iloc[:1], preprocessing))


def chunk_rows(inputs: Mapping[str, Tensor]) -> int:
    """Rows of a chunk, by the bytes of one row of these inputs, each `(N, ...)`."""
    row_bytes = sum(math.prod(tensor.shape[1:]) * tensor.element_size() for tensor in inputs.values())
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row_bytes)))
