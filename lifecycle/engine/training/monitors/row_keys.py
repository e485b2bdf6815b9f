"""Which rows of a batch an alarm names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.protocol.jobs import TrainJob

NAMED_ROWS = 20


class NamedRows(NamedTuple):
    """Keys of rows, and whether they were chosen for inputs that are not finite; None where nobody looked."""

    keys: tuple[dict[str, Any], ...]
    not_finite: bool | None


NO_ROWS = NamedRows((), None)


def named_rows(prepared: Prepared, job: TrainJob, numbers: Sequence[int], losses: Tensor | None) -> NamedRows:
    """Keys of rows with inputs that are not finite; else of those of the highest losses, one not finite before all.

    In the order of their numbers where no row's loss is known.
    """
    if not numbers:
        return NO_ROWS
    batch = torch.tensor(numbers)
    bad = torch.zeros(len(batch), dtype=torch.bool)
    # to_tensors may draw, and the training may go on.
    with random_kept():
        for tensor in prepared.data.take(batch.to(prepared.data.targets.device)).inputs.values():
            if tensor.is_floating_point():
                bad |= ~torch.isfinite(tensor).flatten(1).all(dim=1).cpu()
    chosen = batch[bad] if bool(bad.any()) else batch[_by_loss(losses, len(batch))]
    return NamedRows(keys_of(prepared, job, chosen[:NAMED_ROWS].tolist()), bool(bad.any()))


def keys_of(prepared: Prepared, job: TrainJob, numbers: Sequence[int]) -> tuple[dict[str, str], ...]:
    """The rows' keys as text; columns that the contract calls sensitive are none of `job.rows.keys`."""
    keys = prepared.rows.iloc[list(numbers)][list(job.rows.keys)]
    return tuple({str(name): str(value) for name, value in row.items()} for row in keys.to_dict("records"))


def _by_loss(losses: Tensor | None, rows: int) -> Tensor:
    """Numbers of the batch's rows, the highest loss first."""
    if losses is None or len(losses) != rows:
        return torch.arange(rows)
    return losses.detach().double().cpu().nan_to_num(nan=torch.inf).argsort(descending=True, stable=True)
