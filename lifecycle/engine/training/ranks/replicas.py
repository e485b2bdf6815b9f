"""The same training in every rank: its facts are compared, and its state begins as the first rank has it.

Of a model that is divided (shards.py) the first asks the others for help from the beginning: with what it looks at
before the first update, and with the state that it loads.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainworthy.lifecycle.engine.training.loop import backward
from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.ranks.orders import START
from trainworthy.lifecycle.engine.training.state import Recipe, TrainState
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.spec.use_case import Sharding

if TYPE_CHECKING:
    from trainworthy.lifecycle.engine.training.ranks.shards import Shards

# Rows of which it is seen which parameters get a gradient.
FEW_ROWS = 8


def facts_of(job: TrainJob, prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """What has to be equal in all ranks."""
    return {
        "code of the use case": prepared.code_sha256,
        "size of the training file": Path(job.training_file).stat().st_size,
        "plan": plan.model_dump(mode="json"),
        "torch": str(torch.__version__),
    }


def on_device(model: torch.nn.Module, device: str, ranks: Ranks | None, sharding: Sharding) -> Shards | None:
    """Put the model on the device: whole, or divided over the ranks."""
    if ranks is None or sharding == "none":
        model.to(device)
        return None
    # DTensors take half a second to import, and FSDP as much: only where they are asked for.
    from trainworthy.lifecycle.engine.training.ranks.shards import Shards

    return Shards(ranks, model, device)


def join_ranks(ranks: Ranks, state: TrainState, prepared: Prepared, plan: Plan, recipe: Recipe) -> None:
    """Train the state with the other ranks from here on, each from the first's weights, optimizers and step."""
    if ranks.shards is not None:
        _begin_with_shards(ranks, ranks.shards, state, prepared, plan, recipe)
        return
    mine = has_unused(state, prepared, plan, recipe)
    ranks.waits_to_start()
    unused = ranks.any_of(mine)
    content = ranks.share_state(_dumped(state) if ranks.first else b"")
    if not ranks.first:
        _load(state, content)
    ranks.join(state.model, state.optimizers, plan.batch_size, unused=unused)
    # After its first pass DistributedDataParallel puts its buckets in another order, and with it the sums of three
    # ranks: made here, a resumed training adds as an uninterrupted one does.
    pass_few_rows(ranks.replica, state, prepared, plan, recipe)
    state.ranks = ranks


def _begin_with_shards(
    ranks: Ranks, shards: Shards, state: TrainState, prepared: Prepared, plan: Plan, recipe: Recipe
) -> None:  # fmt: skip
    """The same of a model that is divided, and that the others have taken already where the first has loaded it."""
    ranks.waits_to_start()
    if ranks.first:
        ranks.order(START, state.step)
    else:
        ranks.next_order()
    scaler = {} if state.scaler is None else state.scaler.state_dict()
    begins = json.loads(ranks.share_state(json.dumps({"step": state.step, "scaler": scaler}).encode()))
    state.step = begins["step"]
    if state.scaler is not None:
        state.scaler.load_state_dict(begins["scaler"])
    with shards.together():
        _pass_few_rows(shards.model, state, prepared, plan, recipe)
    shards.begin([parameter for parameter in state.parameters if parameter.requires_grad and parameter.grad is None])
    _forget_gradients(state)
    state.ranks = ranks


def has_unused(state: TrainState, prepared: Prepared, plan: Plan, recipe: Recipe) -> bool:
    """True if few rows leave a parameter that is trained without a gradient. The state stays as it is."""
    return pass_few_rows(state.model, state, prepared, plan, recipe)


def pass_few_rows(
    through: torch.nn.Module, state: TrainState, prepared: Prepared, plan: Plan, recipe: Recipe
) -> bool:  # fmt: skip
    """One forward and backward pass that leaves the state as it is; True if a trained parameter gets no gradient."""
    _pass_few_rows(through, state, prepared, plan, recipe)
    without_gradient = any(parameter.requires_grad and parameter.grad is None for parameter in state.parameters)
    _forget_gradients(state)
    return without_gradient


def _forget_gradients(state: TrainState) -> None:
    for parameter in state.with_gradients:
        parameter.grad = None


def _pass_few_rows(
    through: torch.nn.Module, state: TrainState, prepared: Prepared, plan: Plan, recipe: Recipe
) -> None:  # fmt: skip
    """One forward and backward pass, which leaves gradients and nothing else."""
    device = prepared.data.targets.device
    rows = plan.batch(min(state.step, plan.last_step - 1))[:FEW_ROWS].to(device)
    state.model.train()
    with random_kept(), _buffers_kept(state):
        taken = prepared.data.take(rows).to(prepared.data.device)
        every = torch.arange(len(rows), device=taken.device)
        backward(through, taken, every, recipe, recipe.generator(state.step), of=len(rows))


@contextlib.contextmanager
def _buffers_kept(state: TrainState) -> Iterator[None]:
    before = [buffer.clone() for buffer in state.buffers]
    try:
        yield
    finally:
        for buffer, saved in zip(state.buffers, before, strict=True):
            buffer.data.copy_(saved)


def _dumped(state: TrainState) -> bytes:
    content = io.BytesIO()
    held = {
        "model": state.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in state.optimizers],
        "scaler": None if state.scaler is None else state.scaler.state_dict(),
        "step": state.step,
    }
    torch.save(held, content)
    return content.getvalue()


def _load(state: TrainState, content: bytes) -> None:
    held = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    state.model.load_state_dict(held["model"])
    for optimizer, saved in zip(state.optimizers, held["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    if state.scaler is not None:
        state.scaler.load_state_dict(held["scaler"])
    state.step = held["step"]
