"""What every rank but the first does: the updates that the first orders, on its own share of their rows."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.course import end_if_declared
from trainworthy.lifecycle.engine.training.loop import apply_update, forward_backward, restore_buffers
from trainworthy.lifecycle.engine.training.monitors.heartbeat import Heartbeat
from trainworthy.lifecycle.engine.training.monitors.rows_and_replicas import replica_checksums
from trainworthy.lifecycle.engine.training.prepare import Prepared, prepare, seed_everything
from trainworthy.lifecycle.engine.training.random_state import seed_all
from trainworthy.lifecycle.engine.training.ranks.group import Order, Ranks, clipping
from trainworthy.lifecycle.engine.training.ranks.orders import ASKED, END, RESTART, UPDATE
from trainworthy.lifecycle.engine.training.ranks.replicas import facts_of, join_ranks, on_device
from trainworthy.lifecycle.engine.training.recipe import make_model, make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.stage import peak_memory_bytes
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState
from trainworthy.lifecycle.engine.training.techniques.scaler import scaler_of
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.plan import Plan, make_plan, step_seed
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY
from trainworthy.lifecycle.scoring import choose_device


def follow(job: TrainJob, ranks: Ranks) -> None:
    """Train as the first rank orders, until it ends the training. Raises what a stage does."""
    device = choose_device(job.device)
    prepared = prepare(job, device)
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage, prepared.oversampled)
    ranks.refuse_others(facts_of(job, prepared, plan))
    heartbeat = Heartbeat(Path(job.out), partial(end_if_declared, job))
    heartbeat.start()
    try:
        while (ended := _from_start(job, ranks, prepared, plan, device, heartbeat)) == RESTART:
            pass
    finally:
        heartbeat.close()
    if ended == ASKED:
        raise PreemptedError
    ranks.others_sum(peak_memory_bytes())


def _from_start(
    job: TrainJob, ranks: Ranks, prepared: Prepared, plan: Plan, device: str, heartbeat: Heartbeat
) -> int:  # fmt: skip
    """The updates from where the first rank starts; what it orders at their end."""
    seed_everything(job.training.seed)
    model = make_model(prepared.task, prepared.preprocessing, job.hyperparameters, job.training)
    shards = on_device(model, device, ranks, job.sharding)
    state = TrainState(model, make_optimizers(prepared.task, model, job.training.optimizer))
    state.also |= scaler_of(job.training.precision)
    recipe, data = make_recipe(prepared.task, job.training, plan.horizon_steps), prepared.data
    if shards is not None:
        ranks.join_shards(shards, state.optimizers, plan.batch_size)
    join_ranks(ranks, state, prepared, plan, recipe)
    if isinstance(data, LoadedRows):
        data, recipe = data.in_loaders(recipe, ranks.rank)
    model.train()
    with closing(data.batches(plan, state.step, ranks.share)) as batches:
        while True:
            order = ranks.next_order()
            if order.kind in (RESTART, END, ASKED):
                return order.kind
            ranks.begin(order.step)
            batch, rows = next(batches)
            if order.kind == UPDATE:
                heartbeat.begin(state.step)
                follow_update(ranks, state, batch, rows, recipe, order)
                heartbeat.end()
            state.step += 1


def follow_update(
    ranks: Ranks, state: TrainState, data: TrainData, rows: Tensor, recipe: Recipe, order: Order
) -> None:  # fmt: skip
    """This rank's part of an update that the first judges. Its random draws hang on (seed, step, rank) alone."""
    groups = [group for optimizer in state.optimizers for group in optimizer.param_groups]
    for group, rate in zip(groups, order.rates, strict=True):
        group["lr"] = rate
    # Another stream than that of `augment`, which is the rank's own.
    seed_all(step_seed(recipe.seed, order.step, -ranks.rank))
    before = [buffer.clone() for buffer in state.buffers]
    _, gradients = forward_backward(state, data, rows, recipe)
    if ranks.shards is not None:
        ranks.shards.norms(list(torch._foreach_norm(gradients)))  # pyright: ignore[reportPrivateImportUsage]
    verdict = ranks.verdict(None)
    if verdict.applied:
        apply_update(state, recipe, clipping(verdict.norm, data.device))
        if order.step % SAMPLE_EVERY == 0 and ranks.shards is None:
            # The first rank compares them at its closer look.
            replica_checksums(state.parameters)
    else:
        restore_buffers(state, before)
    if state.scaler is not None:
        state.scaler.update(verdict.finite)
