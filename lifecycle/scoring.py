"""Where to run, and the answers of a model to rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.errors import SettingsError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainworthy.lifecycle.task import Task
    from trainworthy.lifecycle.tasks import Kind

# Rows that become tensors at once: so many of a table, fewer where a row is a picture.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 64 * 2**20


def choose_device(declared: str, processes: int = 1) -> str:
    """`cpu` or `cuda`. Raises SettingsError if CUDA is declared and there is none, or not one for each process."""
    import torch

    available = torch.cuda.is_available()
    if declared == "cuda" and not available:
        raise SettingsError(
            "compute.device is cuda, and torch sees no CUDA device here",
            value=f"torch {torch.__version__}",
            fix="set compute.device to auto or cpu, or run where a GPU and a CUDA build of torch are",
        )
    device = "cuda" if declared != "cpu" and available else "cpu"
    if device == "cuda" and torch.cuda.device_count() < processes:
        raise SettingsError(
            f"compute.processes is {processes}, each of which needs a GPU of its own",
            value=f"torch sees {torch.cuda.device_count()} here",
            fix="lower compute.processes, set compute.device to cpu, or run where there are as many GPUs",
        )
    return device


def predict_rows(
    task: Task,
    model: torch.nn.Module,
    preprocessing: Mapping[str, Any],
    features: pd.DataFrame,
    device: str,
    kind: Kind,
) -> np.ndarray:
    """Answers of the kind, `(N, *answer_shape)`, float64, in evaluation mode; the model's mode is put back."""
    was_training = model.training
    model.eval()
    try:
        return in_chunks(features, task, preprocessing, model, device, lambda raw, _: kind.of_predict(raw))
    finally:
        model.train(was_training)


def in_chunks(
    features: pd.DataFrame,
    task: Task,
    preprocessing: Mapping[str, Any],
    model: Callable[[dict[str, Tensor]], Tensor],
    device: str,
    made: Callable[[np.ndarray, slice], np.ndarray],
) -> np.ndarray:
    """What `made` makes of what predict gives of any callable's outputs, and of the numbers of its rows.

    At most CHUNK_ROWS rows and CHUNK_BYTES of inputs at a time.
    """
    import torch

    parts, chunk = [], _chunk_rows(features, task, preprocessing)
    with torch.no_grad():
        for start in range(0, len(features), chunk):
            rows = slice(start, start + chunk)
            inputs = task.to_tensors(features.iloc[rows], preprocessing)
            outputs = model({name: tensor.to(device) for name, tensor in inputs.items()})
            parts.append(made(as_array(task.predict(outputs)), rows))
    return np.concatenate(parts) if parts else np.zeros(0)


def as_array(answers: Tensor) -> np.ndarray:
    """On the CPU; numpy has no half precision of all kinds."""
    return (answers.float() if answers.is_floating_point() and answers.itemsize < 4 else answers).cpu().numpy()


def _chunk_rows(features: pd.DataFrame, task: Task, preprocessing: Mapping[str, Any]) -> int:
    """Rows of a chunk, by the bytes of one row's inputs."""
    if len(features) < 2:
        return CHUNK_ROWS
    return chunk_rows(task.to_tensors(features.iloc[:1], preprocessing))


def chunk_rows(inputs: Mapping[str, Tensor]) -> int:
    """Rows of a chunk, by the bytes of one row of these inputs, each `(N, ...)`."""
    row_bytes = sum(math.prod(tensor.shape[1:]) * tensor.element_size() for tensor in inputs.values())
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, row_bytes)))
