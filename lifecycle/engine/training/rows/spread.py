"""Some rows that stand for all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.sampling import evenly_spaced


def spread_rows(data: TrainData | LoadedRows, most: int) -> Tensor:
    """At most `most` row numbers, evenly spaced over all of them, on the CPU: rows may be sorted by time or label."""
    return torch.from_numpy(evenly_spaced(len(data.targets), most))
