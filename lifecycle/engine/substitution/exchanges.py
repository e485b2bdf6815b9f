"""Each part of a training, exchanged for one that is known to work.

An exchange takes a setup and gives another, in which one part is a standard one and all else as it was. What has no
such part, or one that is the standard one already, is not tried: NotExchangedError says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.substitution.answer_loss import NUMBERS, answer_loss, label_scale
from trainworthy.lifecycle.engine.substitution.plain_exchanges import inputs, network
from trainworthy.lifecycle.engine.substitution.setup import (
    FEW_ROWS,
    SOME_ROWS,
    Exchanged,
    Fold,
    NotExchangedError,
    Setup,
    fresh,
    mean_loss,
    trained,
)
from trainworthy.lifecycle.engine.training.judging.references import limited
from trainworthy.lifecycle.engine.training.judging.rise import halves
from trainworthy.lifecycle.engine.training.prepare import prepare_rows
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.state import LossFn
from trainworthy.lifecycle.protocol.training_figures import Part
from trainworthy.lifecycle.spec.training import OptimizerSpec, ScheduleSpec
from trainworthy.lifecycle.tasks.labels import labels_of

# Two losses whose rows correlate by so much are one, but for its unit.
SAME_LOSS = 0.9999
# What decay shrinks a weight by over all updates, from which on it is a part that could be at fault.
SHRUNK = 0.01
# Half decades, and the share of a training's updates that each of them gets: together less than half a training.
RATES = tuple(10 ** (number / 2) for number in range(-9, -1))
RATE_SHARE, FEWEST_UPDATES = 0.05, 8
SCORED_ROWS = 512
# The standard recipe's, beside a rate that is found.
WEIGHT_DECAY, CLIP_NORM, WARMUP = 0.01, 1.0, 0.1
# Settings within this factor of the standard ones are no difference that is told.
NEAR = 3.0


def precision(setup: Setup, device: str) -> Exchanged:
    """float32 throughout."""
    if setup.training.precision == "fp32":
        raise NotExchangedError("nothing_to_exchange", "precision is fp32")
    return Exchanged(setup.with_training(precision="fp32"), "fp32")


def regularization(setup: Setup, device: str) -> Exchanged:
    """No augmentation, no dropout, no weight decay."""
    task, build, optimizers_of = setup.task, setup.task.build_model, make_optimizers
    model, _ = fresh(setup, SOME_ROWS, device)
    rates = make_recipe(task, setup.training, setup.updates).learning_rate
    total = sum(rates(step) for step in range(setup.updates))
    groups = [
        group for optimizer in optimizers_of(task, model, setup.training.optimizer) for group in optimizer.param_groups
    ]
    shrunk = 1 - np.exp(
        -max((group.get("weight_decay", 0.0) * group["lr_scale"] * total for group in groups), default=0.0)
    )
    parts = [
        *(["augment"] if hasattr(task, "augment") else []),
        *(["dropout"] if any(_drops(module) for module in model.modules()) else []),
        *(["weight decay"] if shrunk >= SHRUNK else []),
    ]
    if not parts:
        reason = f"no augmentation and no dropout; decay would shrink weights by {shrunk:.1%}"
        raise NotExchangedError("nothing_to_exchange", reason)

    def without_dropout(preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> nn.Module:
        model = build(preprocessing, hyperparameters)
        for module in model.modules():
            if _drops(module):
                # Of torch's dropout layers, and of attention and recurrent ones.
                setattr(module, "p" if hasattr(module, "p") else "dropout", 0.0)
        return model

    def without_decay(model: nn.Module, optimizer: Mapping[str, Any]) -> tuple[torch.optim.Optimizer, ...]:
        made = optimizers_of(task, model, setup.training.optimizer)
        for group in (group for made_optimizer in made for group in made_optimizer.param_groups):
            group["weight_decay"] = 0.0
        return made

    exchanged = setup.with_functions(augment=None, build_model=without_dropout, build_optimizers=without_decay)
    return Exchanged(exchanged, f"without {', '.join(parts)}")


def loss(setup: Setup, device: str) -> Exchanged:
    """The kind's own loss, of what predict gives; all rows count alike."""
    task, job = setup.task, setup.job
    labels = labels_of(job.rows, setup.folds[0].training)
    scale = label_scale(labels) if setup.kind.loss in NUMBERS else 1.0
    of_answers = answer_loss(setup.kind, job.rows.target.quantiles, scale)

    def own(outputs: Tensor, targets: Tensor) -> Tensor:
        return of_answers(task.predict(outputs), targets)

    model, few = fresh(setup, FEW_ROWS, device)
    outputs = model.to(device).eval()(few.inputs)
    _require_gradient(own, outputs, few.targets)
    spec = setup.training
    counts_alike = spec.focal_gamma is None and spec.oversampling is None and spec.class_weights in (None, "none")
    if counts_alike and job.rows.weight is None and _same_loss(task.loss_fn, own, outputs, few.targets):
        raise NotExchangedError("nothing_to_exchange", f"loss_fn is {setup.kind.loss.replace('_', ' ')} itself")
    alike = setup.with_functions(loss_fn=own).with_training(focal_gamma=None, class_weights="none", oversampling=None)
    rows = job.rows.model_copy(update={"weight": None})
    alike = replace(alike, job=alike.job.model_copy(update={"rows": rows}))
    return Exchanged(alike, setup.kind.loss.replace("_", " "))


def recipe(setup: Setup, device: str) -> Exchanged:
    """AdamW at a found rate, warmed up and lowered to zero, gradients clipped at 1; the last weights count."""
    schedule = ScheduleSpec(warmup=WARMUP, decay="cosine")
    standard = setup.with_functions(build_optimizers=None, learning_rate=None).with_training(
        schedule=schedule, clip_norm=CLIP_NORM, ema=None, early_stopping=None,
        optimizer=OptimizerSpec(name="adamw", learning_rate=1e-3, weight_decay=WEIGHT_DECAY),
    )  # fmt: skip
    rate = find_rate(standard, device)
    optimizer = OptimizerSpec(name="adamw", learning_rate=rate, weight_decay=WEIGHT_DECAY)
    told = f"AdamW, rate {rate:.3g}, cosine"
    return Exchanged(standard.with_training(optimizer=optimizer), f"{told}; declared: {_declared(setup, rate)}")


def _declared(setup: Setup, rate: float) -> str:
    """What of the recipe is not the standard one's, as use_case.yaml and model.py have it."""
    task, spec = setup.task, setup.training
    settings = (
        ("learning_rate", spec.optimizer.learning_rate, rate),
        ("weight_decay", spec.optimizer.weight_decay, WEIGHT_DECAY),
        ("clip_norm", spec.clip_norm, CLIP_NORM),
        ("warmup", spec.schedule.warmup, WARMUP),
    )
    far = [
        f"{name} {declared:.3g}" for name, declared, standard in settings
        if not standard / NEAR <= declared <= standard * NEAR
    ]  # fmt: skip
    differs = {
        "build_optimizers": hasattr(task, "build_optimizers"),
        "learning_rate()": hasattr(task, "learning_rate"),
        spec.optimizer.name: spec.optimizer.name != "adamw",
        f"decay {spec.schedule.decay}": spec.schedule.decay != "cosine",
        "ema": spec.ema is not None, "early_stopping": spec.early_stopping is not None,
    }  # fmt: skip
    told = [*far, *(name for name, is_other in differs.items() if is_other)]
    return ", ".join(told) or "nearly the same"


def rows(setup: Setup, device: str) -> Exchanged:
    """Validation rows in the place of training rows, each half of the groups for the other, as many at most."""
    (fold,) = setup.folds
    parts = [fold.judged[half] for half in halves(fold.judged[setup.job.rows.group].to_numpy())]
    most, seed = len(fold.training), setup.training.seed
    folds = tuple(
        Fold(limited(training, setup.job.rows, most, seed).reset_index(drop=True), other)
        for training, other in (parts, parts[::-1])
    )
    if min(len(half) for half in parts) < FEW_ROWS:
        raise NotExchangedError("not_exchangeable", f"{len(fold.judged)} validation rows are too few to train on")
    return Exchanged(replace(setup, folds=folds), f"{len(folds[0].training)} validation rows, cross-fitted")


EXCHANGES: Mapping[Part, Callable[[Setup, str], Exchanged]] = {
    "precision": precision, "regularization": regularization, "loss": loss, "recipe": recipe, "network": network,
    "inputs": inputs, "rows": rows,
}  # fmt: skip


def _drops(module: nn.Module) -> bool:
    """Whether a module of torch's drops something: a dropout layer, attention, or a recurrent layer."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    return isinstance(module, nn.MultiheadAttention | nn.RNNBase) and module.dropout > 0


def _require_gradient(own: LossFn, outputs: Tensor, targets: Tensor) -> None:
    """Raises NotExchangedError where predict keeps gradients from the outputs."""
    try:
        losses = own(outputs, targets)
    except Exception as error:
        reason = f"the kind's loss of what predict gives raised {type(error).__name__}"
        raise NotExchangedError("not_exchangeable", reason) from None
    if not losses.requires_grad:
        raise NotExchangedError("not_exchangeable", "predict lets no gradient through")


def _same_loss(loss_fn: LossFn, own: LossFn, outputs: Tensor, targets: Tensor) -> bool:
    """Whether loss_fn is the kind's loss but for its unit: of fresh weights' outputs, with other rows' targets too."""
    order = torch.arange(len(targets), device=targets.device).roll(len(targets) // 2)
    with torch.no_grad():
        both = [
            torch.cat([loss(outputs, targets).double(), loss(outputs, targets[order]).double()])
            for loss in (loss_fn, own)
        ]
    if float(both[0].std()) == 0 or float(both[1].std()) == 0:
        return False
    return float(torch.corrcoef(torch.stack(both))[0, 1]) > SAME_LOSS


def find_rate(setup: Setup, device: str) -> float:
    """The rate whose few updates leave the lowest loss of the training's own rows; 1e-3 where no rate lowers it."""
    (fold, *_) = setup.folds
    prepared = prepare_rows(setup.job, setup.task, "", fold.training, device)
    rows = torch.linspace(0, len(prepared.rows) - 1, min(SCORED_ROWS, len(prepared.rows))).round().long()
    updates = min(setup.updates, max(FEWEST_UPDATES, round(RATE_SHARE * setup.updates)))
    losses = dict[float, float]()
    for rate in RATES:
        steady = setup.with_training(
            optimizer=OptimizerSpec(name="adamw", learning_rate=rate, weight_decay=WEIGHT_DECAY),
            schedule=ScheduleSpec(warmup=0.0, decay="constant"),
        )
        losses[rate] = mean_loss(setup, prepared, trained(steady, prepared, device, updates), rows)
    finite = {rate: loss for rate, loss in losses.items() if math.isfinite(loss)}
    return min(finite, key=lambda rate: finite[rate]) if finite else 1e-3
