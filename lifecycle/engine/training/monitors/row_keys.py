"""Which rows of a batch an alarm names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.random_state import random_state, restore_random
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob

NAMED_ROWS = 20


class NamedRows(NamedTuple):
    """Keys of rows, and whether they were chosen for inputs that are not finite; None where nobody looked."""

    keys: tuple[dict[str, Any], ...]
    not_finite: bool | None


NO_ROWS = NamedRows((), None)


def row_keys_of(job: TrainJob, prepared: Prepared, plan: Plan) -> Callable[[TrainState], NamedRows]:
    """What names rows of the batch that was seen last, by key.

    Those with inputs that are not finite; else those of the highest losses, one that is not finite before all.
    """

    def named(state: TrainState) -> NamedRows:
        # to_tensors may draw, and the training may go on.
        drawn = random_state()
        try:
            return looked_up(state)
        finally:
            restore_random(drawn)

    def looked_up(state: TrainState) -> NamedRows:
        batch = plan.batch(min(state.step, plan.last_step - 1))
        bad = torch.zeros(len(batch), dtype=torch.bool)
        for tensor in prepared.data.take(batch).inputs.values():
            if tensor.is_floating_point():
                bad |= ~torch.isfinite(tensor).flatten(1).all(dim=1).cpu()
        chosen = batch[bad] if bool(bad.any()) else batch[_by_loss(state, len(batch))]
        keys = prepared.rows.iloc[chosen[:NAMED_ROWS].tolist()][list(job.rows.keys)]
        named = tuple({str(name): str(value) for name, value in row.items()} for row in keys.to_dict("records"))
        return NamedRows(named, bool(bad.any()))

    return named


def _by_loss(state: TrainState, rows: int) -> Any:
    """Numbers of the batch's rows, the highest loss first; in their order where no losses are known."""
    if state.row_losses is None or len(state.row_losses) != rows:
        return torch.arange(rows)
    return state.row_losses.detach().double().cpu().nan_to_num(nan=torch.inf).argsort(descending=True, stable=True)
