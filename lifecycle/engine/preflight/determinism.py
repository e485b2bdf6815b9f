"""The same seed twice, and an interrupted run against an uninterrupted one: equal bit for bit.

On a CPU both hold for every training whose state is in its weights, its optimizers and the random number generators.
On other devices some kernels add in varying order; what they differ by is told, and counts as not shown.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import (
    load_checkpoint,
    parameters_sha256,
    save_checkpoint,
)
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.state import TrainState, Update
from trainworthy.lifecycle.engine.training.techniques.parts import after_update
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome

# What differs does so from the first update on, or in the next one's loss; the optimizers' state is used from the
# second on.
UPDATES, BEFORE, AFTER = 3, 2, 1
BATCH_ROWS, SEED = 64, 20_240_229
# Of the largest weight: what float32 sums in another order differ by after a few updates, with room.
TOLERANCE = 1e-4
NAMED = 3


def same_seed(subject: Subject) -> Outcome:
    """Build and train twice from the same seed."""
    first, second = _seeded(subject), None
    start, losses = _tensors(first.model), _trained(subject, first, UPDATES)
    second = _seeded(subject)
    differing = _differing(start, _tensors(second.model))
    if differing:
        cause = "what builds the model draws from a source that no seed reaches: time, os.urandom, the order of a set, "
        return Outcome(
            "fail", f"fresh models differ: {_named(differing)}", cause=f"{cause}or what an earlier model left"
        )
    again = _trained(subject, second, UPDATES)
    return _equal(subject, first, second, f"{UPDATES} updates from the same seed, twice", losses, again)


def resume(subject: Subject) -> Outcome:
    """Train on from a checkpoint, in a fresh model and after other random numbers, against training through."""
    through = _seeded(subject)
    _trained(subject, through, BEFORE)
    with tempfile.TemporaryDirectory() as folder:
        saved = save_checkpoint(Path(folder), "preflight", through)
        unsaved = _unsaved_values(through.model)
        losses = _trained(subject, through, BEFORE + AFTER)
        resumed = subject.state()
        _seed(SEED + 1)
        load_checkpoint(Path(saved.path), "preflight", resumed, saved.sha256)
    lost = [name for name, value in _unsaved_values(resumed.model).items() if not _same_value(value, unsaved.get(name))]
    again = _trained(subject, resumed, BEFORE + AFTER)
    what = f"{BEFORE} updates, a checkpoint, and {AFTER} more"
    outcome = _equal(subject, through, resumed, f"{what}, resumed and not", losses, again)
    if outcome.status == "fail" and lost:
        return replace(outcome, cause=f"kept outside of state_dict(): {_named(lost)}")
    return outcome


def _equal(
    subject: Subject, first: TrainState, other: TrainState, what: str, losses: list[float], again: list[float]
) -> Outcome:
    """Equal weights and losses, else where they part."""
    equal = parameters_sha256(first.model) == parameters_sha256(other.model) and losses == again
    parts = [
        name for name in first.also if not _same_value(first.also[name].state_dict(), other.also[name].state_dict())
    ]
    if equal and not parts:
        more = f", and so is the state of {', '.join(first.also)}" if first.also else ""
        return Outcome("pass", f"{what}: the weights are equal bit for bit{more}")
    if equal:
        return Outcome("fail", f"{what}: the weights are equal, and the state of {', '.join(parts)} is not")
    differing, largest = _differing(_tensors(first.model), _tensors(other.model)), _largest(first.model, other.model)
    evidence = f"{what}: weights differ by up to {largest:.1e} of the largest, in {_named(differing)}"
    if not differing:
        evidence = f"{what}: the losses differ, {losses} and {again}"
    if subject.device != "cpu" and largest <= TOLERANCE:
        evidence += f"; kernels on {subject.device} may add in varying order, within {TOLERANCE:.0e} here"
        return Outcome("insufficient", evidence, largest, TOLERANCE)
    return Outcome("fail", evidence, largest, 0.0)


def _seeded(subject: Subject) -> TrainState:
    _seed(subject.recipe.seed)
    return subject.state()


def _seed(seed: int) -> None:
    """Every generator that a stage seeds."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    seed_torch(seed)


def _trained(subject: Subject, state: TrainState, last: int) -> list[float]:
    """Train to a step with the full stage's schedule; each update's loss."""
    losses: list[float] = []
    rows = len(subject.training.targets)
    size = min(BATCH_ROWS * subject.recipe.accumulate, subject.plan.batch_size, rows)
    plan = subject.plan.model_copy(
        update={"rows": rows, "batch_size": size, "steps_per_epoch": rows // size, "last_step": last,
                "oversampled": None}
    )  # fmt: skip

    def noted(state: TrainState, update: Update) -> bool:
        losses.append(update.loss)
        after_update(state, last)
        return False

    train(state, subject.training, plan, subject.recipe, noted)
    return losses


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _differing(first: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    shared = [name for name in first if name in other and first[name].shape == other[name].shape]
    differing = [name for name in shared if not torch.equal(first[name], other[name])]
    return [
        *sorted(first.keys() ^ other.keys()),
        *(name for name in first if name in other and name not in shared),
        *differing,
    ]


def _largest(first: nn.Module, other: nn.Module) -> float:
    """The largest difference of a weight, as a share of its tensor's largest; infinite if shapes differ."""
    largest, other_state = 0.0, other.state_dict()
    for name, tensor in first.state_dict().items():
        if name not in other_state or other_state[name].shape != tensor.shape:
            return float("inf")
        if tensor.numel():
            difference = (tensor.double() - other_state[name].double()).abs().max()
            largest = max(largest, float(difference / tensor.double().abs().max().clamp_min(1e-12)))
    return largest


def _unsaved_values(model: nn.Module) -> dict[str, Any]:
    """Numbers and tensors that modules hold beside parameters and buffers; a module's mode is none of them."""
    unsaved = {}
    for prefix, module in model.named_modules():
        saved = set(module.state_dict(keep_vars=True))
        for name, value in vars(module).items():
            if name == "training" or name in saved:
                continue
            if isinstance(value, torch.Tensor):
                unsaved[f"{prefix}.{name}".lstrip(".")] = value.detach().clone()
            elif isinstance(value, bool | int | float):
                unsaved[f"{prefix}.{name}".lstrip(".")] = value
            elif isinstance(value, torch.Generator):
                unsaved[f"{prefix}.{name}".lstrip(".")] = value.get_state()
        for name in module._non_persistent_buffers_set:
            unsaved[f"{prefix}.{name}".lstrip(".")] = module._buffers[name]
    return unsaved


def _same_value(first: Any, other: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(other, torch.Tensor):
        return first.shape == other.shape and torch.equal(first, other)
    if isinstance(first, dict) and isinstance(other, dict):
        return first.keys() == other.keys() and all(_same_value(value, other[name]) for name, value in first.items())
    return type(first) is type(other) and first == other


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


CHECKS: tuple[Check[Any], ...] = (
    check_of("determinism.same_seed", same_seed),
    check_of("determinism.resume", resume),
)
