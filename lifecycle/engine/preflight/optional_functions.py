"""Tries what model.py may define beside the required functions: its optimizers, its learning rate, its augmentation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.function_trials import OPTIONAL_FIXES, Trials, Wrong
from trainworthy.lifecycle.protocol.jobs import FunctionsJob
from trainworthy.lifecycle.task import Task

Batch = tuple[dict[str, Tensor], Tensor]

# Steps of a schedule that are asked, evenly spread, its first and its last among them.
MOST_STEPS = 1000
# What the loop and its checkpoints use of an optimizer.
OPTIMIZER = ("param_groups", "step", "zero_grad", "state_dict", "load_state_dict")
UNTOLD = "correct use_case.yaml first: its section training cannot be read"


def try_optional(
    trials: Trials, task: Any, job: FunctionsJob, model: nn.Module | None, inputs: dict[str, Tensor] | None,
    targets: Tensor,
) -> None:  # fmt: skip
    """Those that model.py defines, each as a training would call it."""
    for name in ("build_optimizers", "learning_rate"):
        if hasattr(task, name) and job.training is None:
            trials.not_tried(name, UNTOLD)
        elif hasattr(task, name) and name == "build_optimizers":
            trials.of(name, lambda: _optimizers(task, model, job), model)
        elif hasattr(task, name):
            trials.of(name, lambda: _rates(task, job))
    if hasattr(task, "augment"):
        trials.of("augment", lambda: _augment(task, model, inputs, targets), model, inputs)


def _optimizers(task: Any, model: nn.Module | None, job: FunctionsJob) -> tuple[Any, str, list[Wrong]]:
    assert job.training is not None
    assert model is not None
    optimizers, fix = task.build_optimizers(model, job.training.optimizer.model_dump(mode="json")), OPTIONAL_FIXES
    if not isinstance(optimizers, list | tuple) or not optimizers:
        given = "no optimizer" if isinstance(optimizers, list | tuple) else f"{type(optimizers).__name__}, not a list"
        return None, "", [(f"gives {given}", fix["build_optimizers"])]
    odd = [
        type(optimizer).__name__ for optimizer in optimizers if not all(hasattr(optimizer, name) for name in OPTIMIZER)
    ]
    if odd:
        return None, "", [(f"gives {', '.join(odd)}, no torch optimizer", fix["build_optimizers"])]
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    held = Counter(id(parameter) for group in groups for parameter in group["params"])
    trained = {name: id(p) for name, p in model.named_parameters() if p.requires_grad}
    claimed = job.claims.frozen
    missed = [
        n for n, p in trained.items() if p not in held and not any(fnmatchcase(n, pattern) for pattern in claimed)
    ]
    twice = [name for name, p in trained.items() if held[p] > 1]
    wrong = list[Wrong]()
    if missed:
        fix = "give each trainable parameter to an optimizer, or let requires_grad be False and claim it in preflight"
        wrong.append((f"in no optimizer: {', '.join(missed)}", fix))
    if twice:
        wrong.append((f"in more than one optimizer: {', '.join(twice)}", "give each parameter to one optimizer only"))
    if any(not (math.isfinite(group["lr"]) and group["lr"] >= 0) for group in groups):
        rates = sorted({f"{float(group['lr']):g}" for group in groups})
        fix = "make each group's rate from optimizer['learning_rate']"
        wrong.append((f"rates of groups are {', '.join(rates)}", fix))
    kinds = ", ".join(type(optimizer).__name__ for optimizer in optimizers)
    return optimizers, f"{kinds}; {len(trained) - len(missed)} of {len(trained)} trainable tensors", wrong


def _rates(task: Any, job: FunctionsJob) -> tuple[Any, str, list[Wrong]]:
    assert job.training is not None
    declared, count = job.training.model_dump(mode="json"), min(MOST_STEPS, job.steps)
    steps = sorted({round(at * (job.steps - 1) / max(1, count - 1)) for at in range(count)})
    rates = {step: float(task.learning_rate(step, job.steps, declared)) for step in steps}
    fix = OPTIONAL_FIXES["learning_rate"]
    bad = next((step for step, rate in rates.items() if not (math.isfinite(rate) and rate >= 0)), None)
    if bad is not None:
        return None, "", [(f"step {bad} of {job.steps} has the rate {rates[bad]:g}", fix)]
    if not any(rates.values()):
        return None, "", [(f"the rate is 0 in every step of {job.steps}", fix)]
    return rates, f"{min(rates.values()):.3g} to {max(rates.values()):.3g} over {job.steps:,} steps", []


def _augment(
    task: Task, model: nn.Module | None, inputs: dict[str, Tensor] | None, targets: Tensor
) -> tuple[Any, str, list[Wrong]]:
    assert model is not None
    assert inputs is not None
    drawn = [_drawn(task, inputs, targets, ours) for ours in (0, 1)]
    for batch in drawn:
        if not _is_batch(batch):
            return None, "", [("does not give (inputs, targets)", OPTIONAL_FIXES["augment"])]
    wrong = list(_forms(drawn[0], (inputs, targets))) or list(_through(task, model, drawn[0]))
    if not all(_same(tensor, other) for tensor, other in zip(_tensors(drawn[0]), _tensors(drawn[1]), strict=False)):
        fix = "hand the generator to every draw: torch.rand(n, generator=generator); never numpy's or Python's own"
        wrong.append(("two calls with equal generators give different batches", fix))
    return drawn[0], "draws from its generator alone", wrong


def _drawn(task: Any, inputs: dict[str, Tensor], targets: Tensor, ours: int) -> Any:
    """One call as the loop makes it, with a generator from the same seed; all other random numbers differ by `ours`."""
    import random

    with same_random_numbers():
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(ours)
        copies = {name: tensor.clone() for name, tensor in inputs.items()}
        return task.augment(copies, targets.clone(), torch.Generator().manual_seed(0))


def _is_batch(batch: Any) -> bool:
    return (
        isinstance(batch, tuple | list)
        and len(batch) == 2
        and isinstance(batch[0], dict)
        and all(isinstance(tensor, torch.Tensor) for tensor in (*batch[0].values(), batch[1]))
    )


def _forms(batch: Batch, given: Batch) -> Iterator[Wrong]:
    """Names, rows and values that a batch must keep. A row may change its own size, as a crop does."""
    fix = OPTIONAL_FIXES["augment"]
    if set(batch[0]) != set(given[0]):
        yield f"inputs {', '.join(given[0])} became {', '.join(batch[0]) or 'none'}", fix
        return
    for name, tensor in {**batch[0], "targets": batch[1]}.items():
        before = given[1] if name == "targets" and name not in given[0] else given[0][name]
        if tensor.ndim != before.ndim or len(tensor) != len(before):
            yield f"{name} {tuple(before.shape)} became {tuple(tensor.shape)}", fix
        elif not tensor.isfinite().all() and before.isfinite().all():
            yield f"{name} is not finite after it", "look at divisions, logarithms and the size of the noise"


def _through(task: Task, model: nn.Module, batch: Batch) -> Iterator[Wrong]:
    """What the network or the loss says to other shapes or types."""
    try:
        with torch.no_grad():
            losses = task.loss_fn(model({name: tensor.clone() for name, tensor in batch[0].items()}), batch[1])
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        yield f"the network cannot take its batch: {type(error).__name__}: {first}", OPTIONAL_FIXES["augment"]
        return
    if len(losses) != len(batch[1]) or not losses.isfinite().all():
        yield "the losses of its batch are not finite numbers, one a row", OPTIONAL_FIXES["augment"]


def _tensors(batch: Batch) -> list[Tensor]:
    return [*(batch[0][name] for name in sorted(batch[0])), batch[1]]


def _same(tensor: Tensor, other: Tensor) -> bool:
    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return False
    return bool(torch.allclose(tensor.double(), other.double(), rtol=0, atol=0, equal_nan=True))
