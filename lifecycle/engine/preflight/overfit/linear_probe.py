"""A line over a few directions of the inputs: what can be learned of rows without learning them by heart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.overfit.substituted_outputs import Outputs
from trainworthy.lifecycle.engine.training.state import TrainData

# A line with an eighth as many parameters as there are label values cannot learn the rows by heart. Without a regard
# to classes, 40 directions learned 320 windows of text with 48 characters to 0.03 nats.
LABELS_A_PARAMETER = 8
# Rows times parameters of a line: wide outputs get fewer directions.
MOST_DIRECTIONS, LARGEST_LINE = 64, 100_000_000
# Values of a column that are told apart, and the columns of all of them.
LEVELS, WIDEST = 32, 4096


def line_basis(data: TrainData, outputs: Outputs, batches: Sequence[Tensor]) -> Tensor:
    """Ones, and as many directions of the inputs as the label values and the outputs' size allow, `(N, 1 + K)`."""
    wide = max(1, sum(outputs.whole(place)[0].numel() for place in outputs.free))
    labels = sum(targets.numel() for targets in outputs.targets)
    fits = min(labels // (LABELS_A_PARAMETER * wide), LARGEST_LINE // (outputs.rows * wide))
    count = max(1, min(fits, MOST_DIRECTIONS))
    columns = directions(data, torch.cat(list(batches)), count)
    return torch.cat([torch.ones(outputs.rows, 1, device=columns.device), columns], 1)


def directions(data: TrainData, rows: Tensor, count: int) -> Tensor:
    """At most `count` directions of the rows' inputs, `(N, count)`, of unit variance; whole numbers as categories."""
    columns = torch.cat([_columns(tensor[rows]) for tensor in data.inputs.values()], 1)
    spread = columns.std(0)
    columns = (columns - columns.mean(0))[:, spread > 1e-9] / spread[spread > 1e-9]
    if columns.shape[1] <= count:
        return columns
    components = torch.pca_lowrank(columns, q=count, center=False)[0]
    return components * len(rows) ** 0.5


def _columns(tensor: Tensor) -> Tensor:
    """An input as float columns, `(N, F)`. Not finite values count as 0."""
    flat = tensor.reshape(len(tensor), -1)
    if flat.is_floating_point():
        # Of very wide inputs every so manieth.
        return flat[:, :: max(1, flat.shape[1] // WIDEST)].float().nan_to_num(0, 0, 0)
    flat = flat[:, : WIDEST // LEVELS].long()
    counted = flat.unique(return_counts=True)
    common = counted[0][counted[1].argsort(descending=True)[:LEVELS]]
    # No values are no columns: torch cannot join a list of none.
    return torch.cat([flat[:, :0].float(), *((flat == value).float() for value in common)], 1)
