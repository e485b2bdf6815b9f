"""Do several processes, each with a share of every update's rows, train as one process with all of them does?"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from trainworthy.lifecycle.engine.preflight.start.reductions import (
    ROWS,
    flat_gradient,
    gradient_limit,
    relative_distance,
)
from trainworthy.lifecycle.engine.preflight.start.steady import evaluating, steady
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import put_back, stirred
from trainworthy.lifecycle.engine.training.loop import backward
from trainworthy.lifecycle.engine.training.random_state import random_kept, seed_torch
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.check import Outcome

FEW_ROWS, CLAIMED, ACROSS_ROWS = "few_rows_for_processes", "rows_together", "across_rows"
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


# What decides of two outcomes, the worst first.
_WORST = ("fail", "insufficient", "pass", "not_applicable")


def processes_train_as_one(subject: Subject) -> Outcome:
    """As of each number of processes that may train: all of them, and those of the fewest nodes."""
    found, few = _of_one_number(subject), subject.with_fewest_nodes()
    if few is None or few.processes == 1:
        return found
    fewest = _of_one_number(few)
    numbers = f"of {subject.processes} processes, and of {few.processes} with compute.least_nodes"
    if _WORST.index(fewest.status) < _WORST.index(found.status):
        return replace(fewest, evidence=f"by {few.processes} processes (compute.least_nodes): {fewest.evidence}")
    return replace(found, evidence=f"{numbers}: {found.evidence}") if found.status == "pass" else found


def _of_one_number(subject: Subject) -> Outcome:
    """Every process has a row of each update, and the gradients of the shares add up to those of the whole."""
    processes = subject.processes
    if processes == 1:
        return Outcome("not_applicable", "one process trains")
    fewest = min(subject.fewest_rows or subject.plan.batch_size, subject.plan.batch_size)
    if fewest < processes:
        evidence = f"the smallest update of any stage has {fewest} rows for {processes} processes"
        cause = "a stage that takes so few rows, or a small training.batch_size"
        fix = (
            f"raise the stage's fraction (stages.smoke) or training.batch_size, or lower compute.processes to {fewest}"
        )
        return Outcome("fail", evidence, fewest, processes, cause, fix, code=FEW_ROWS)
    if subject.claims.rows == "together":
        evidence = (
            f"claimed rows: together, and each of {processes} processes has the loss of its own share of rows only"
        )
        cause = "the loss compares an update's rows, and no process sees those of the others"
        fix = "train in one process (compute.launcher: local); if a row's loss needs no other row, remove the claim"
        return Outcome("fail", evidence, processes, 1, cause, fix, code=CLAIMED)
    # As many as a pass has, since a statistic of fewer rows would be further from that of its share.
    many = max(min(ROWS, subject.batch_rows()), 2 * processes)
    rows = spread_rows(subject.training, many).to(subject.device)
    if len(rows) < 2 * processes:
        return _untold(f"{len(rows)} rows are too few to see {processes} shares with rows beside each other")
    return _compared(subject, rows)


def _compared(subject: Subject, rows: Tensor) -> Outcome:
    """The whole's gradients in training mode against the shares', after what is drawn at random is ruled out."""
    processes, model = subject.processes, _undrawn(stirred(subject.model()))
    whole, again = (_gradients(subject, model, rows, 1, seed) for seed in (0, 1))
    limit = gradient_limit(subject, model)
    if not float(whole.norm()) > 0:
        return _untold("there is no gradient to compare")
    if not relative_distance(whole, again) <= limit:
        return _drawn(subject, relative_distance(whole, again), limit)
    difference = relative_distance(whole, _gradients(subject, model, rows, processes, 0))
    said = (
        f"in training mode the gradients of {len(rows)} rows in {processes} shares and as a whole are "
        f"{difference:.1e} of their norm apart"
    )
    if difference <= limit:
        return Outcome("pass", said, difference, limit)
    each, together = max(1, subject.batch_rows() // processes), subject.batch_rows()
    evidence = (
        f"{said}: a row's gradient depends on the rows beside it, which are {each} in a process instead of {together}"
    )
    return Outcome(
        "fail", evidence, difference, limit, _cause(subject, rows, limit), _FIX, severity="warning", code=ACROSS_ROWS
    )


_FIX = (
    "take group norm or layer norm in the place of batch norm, or a loss of each row alone (one that needs the others: "
    "claim rows: together); else raise training.batch_size until a process's share is enough, or train in one process"
)


def _cause(subject: Subject, rows: Tensor, limit: float) -> str:
    """What computes across rows: evaluation mode leaves batch norm out, and a loss or a layer that mixes rows in."""
    model = evaluating(stirred(subject.model()))
    whole, shares = (_gradients(subject, model, rows, parts, 0) for parts in (1, subject.processes))
    if relative_distance(whole, shares) <= limit:
        return "in evaluation mode they are equal, so it is most likely a batch norm, over its process's rows"
    return "they differ in evaluation mode too: the loss, or a layer, computes across rows (contrastive or centred)"


def _drawn(subject: Subject, difference: float, limit: float) -> Outcome:
    evidence = (
        f"two passes over the same rows in training mode give gradients that are {difference:.1e} of their norm apart, "
        "with dropout off: what is drawn at random hides whether rows depend on each other"
    )
    if subject.claims.evaluation == "stochastic":
        return Outcome("not_applicable", f"claimed evaluation: stochastic: {evidence}", difference, limit)
    return _untold(evidence, difference, limit)


def _untold(evidence: str, difference: float | None = None, limit: float | None = None) -> Outcome:
    """Not measured; nothing says that it is wrong, so this is no more than a warning."""
    fix = "with batch norm or a loss over several rows, compare one training by several processes with one by one"
    return Outcome(
        "insufficient", evidence, difference, limit, "what a sample of rows can show", fix, severity="warning"
    )


def _gradients(subject: Subject, model: nn.Module, rows: Tensor, shares: int, seed: int) -> Tensor:
    """Gradients of the rows in so many shares, each from the same state on, as processes make them."""
    recipe = replace(subject.recipe, augment=None)
    model.zero_grad(set_to_none=True)
    with random_kept(), _NoDropout():
        for share in rows.tensor_split(shares):
            seed_torch(seed)
            random.seed(seed)
            np.random.seed(seed)
            with put_back(model):
                backward(model, subject.training, share, recipe, torch.Generator().manual_seed(seed), of=len(rows))
    return flat_gradient(model)


def _undrawn(model: nn.Module) -> nn.Module:
    """The model in training mode without the dropout of its modules, of attention's and recurrent layers' own too."""
    for module in steady(model).modules():
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0
    return model


class _NoDropout(TorchFunctionMode):
    """Dropout that the network calls as a function gives what it is given."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given, name = dict(kwargs or {}), getattr(func, "__name__", "").rstrip("_")
        if name in _DROPOUTS:
            return args[0] if args else given["input"]
        if name == "scaled_dot_product_attention":
            # Its fifth argument is the probability.
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            given = {key: value for key, value in given.items() if key != "dropout_p"}
        return func(*args, **given)
