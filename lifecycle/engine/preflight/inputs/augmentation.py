"""Does the augmentation vary, by its generator alone, and rest in evaluation?

A worker that was forked has a copy of the global generators of its parent: two of them draw the same. That state is
put back here before each call, so that what still differs was drawn from the generator of (seed, step). Where a stage
has its batches made by loaders, those make them here as well, once as many as declared and once another number.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import MOST_ROWS, rows_of, step_generator
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome
from trainworthy.lifecycle.plan import Plan

# Steps until a change that is made with a small probability should have been seen.
STEPS = 12


def varies(subject: Subject) -> Outcome:
    """Equal for equal (seed, step) whatever the global generators hold, different between steps."""
    if subject.recipe.augment is None:
        return Outcome("not_applicable", "there is no augmentation")
    rows = spread_rows(subject.training, MOST_ROWS // 2)
    plain = _flat(*rows_of(subject.training, rows, subject.device))
    if subject.loaded is None:
        steps = [_augmented(subject, rows, step, globally=0) for step in range(STEPS)]
        wrong = _other_again(subject, rows, steps)
    else:
        few = _few(subject.loaded, rows)
        steps, other_loaders = _made(few, subject.plan.seed), _another(few.loaders)
        again = _made(replace(few, loaders=other_loaders), subject.plan.seed)
        wrong = _other_in_other_loaders(few.loaders, other_loaders, steps, again)
    if wrong is not None:
        return wrong
    if all(_equal(batch, plain) for batch in steps):
        cause = "a probability of zero, or a result that is not returned"
        return Outcome("fail", f"augmentation changes nothing in {STEPS} steps", 0, 1, cause=cause)
    if all(_equal(batch, steps[0]) for batch in steps[1:]):
        cause = "a seed that is fixed inside augment, or a change that draws nothing"
        return Outcome("fail", f"the same rows are augmented alike in {STEPS} steps", 1, 2, cause=cause)
    random_evaluation = subject.claims.evaluation == "deterministic" and _evaluation_varies(subject, rows)
    if random_evaluation:
        cause, fix = "the network augments by itself, in evaluation too", "augment only where self.training is true"
        return Outcome("fail", "in evaluation two passes over equal rows differ", True, False, cause=cause, fix=fix)
    different = 1 + sum(not any(_equal(a, b) for b in steps[:i]) for i, a in enumerate(steps) if i)
    evidence = f"{different} different augmentations of equal rows in {STEPS} steps, each reproducible"
    made = subject.loaded
    return Outcome("pass", evidence + (f"; by {made.loaders} and {_another(made.loaders)} loaders" if made else ""))


def _another(loaders: int) -> int:
    """Another number of loaders; no more than declared where that can be, since each takes a core."""
    return loaders - 1 if loaders > 1 else 2


def _other_again(subject: Subject, rows: Tensor, steps: list[list[Tensor]]) -> Outcome | None:
    """A step that is not the same again, here or in a forked worker."""
    for step, batch in enumerate(steps):
        if not _equal(batch, _augmented(subject, rows, step, globally=0)):
            cause = "a generator of its own that goes on from call to call, or one without a seed"
            return Outcome("fail", f"step {step} is augmented otherwise when done again", False, True, cause=cause)
        if not _equal(batch, _augmented(subject, rows, step, globally=1)):
            evidence = f"step {step} is augmented differently under other states of the global generators"
            cause = "draws of torch, numpy or random that do not name the generator"
            return Outcome("fail", f"{evidence}: forked workers would all draw the same", False, True, cause=cause)
    return None


def _other_in_other_loaders(
    loaders: int, other_loaders: int, steps: list[list[Tensor]], again: list[list[Tensor]]
) -> Outcome | None:
    """A step that is not the same where another loader process makes it."""
    other = [step for step, (a, b) in enumerate(zip(steps, again, strict=True)) if not _equal(a, b)]
    if not other:
        return None
    evidence = f"{len(other)} of {STEPS} steps are augmented otherwise by {other_loaders} loaders than by {loaders}"
    cause = "a generator of its own, which every loader process has a copy of, or one without a seed"
    return Outcome("fail", evidence, len(other), 0, cause=cause)


def _few(loaded: LoadedRows, rows: Tensor) -> LoadedRows:
    """The rows alone, by their place in `rows`."""
    at = rows.cpu()
    return replace(loaded, features=loaded.features.iloc[at.numpy()], targets=loaded.targets[at], weights=None)


class EqualRows(Plan):
    """Every step is another epoch, and has all rows in one order: what differs is the augmentation."""

    def batch(self, step: int) -> Tensor:
        return torch.arange(self.rows)


def _made(few: LoadedRows, seed: int) -> list[list[Tensor]]:
    """Each step's batch, from real loader processes."""
    rows = len(few.targets)
    plan = EqualRows(
        rows=rows, batch_size=rows, steps_per_epoch=1, horizon_steps=STEPS, first_step=0, last_step=STEPS, seed=seed
    )
    with contextlib.closing(few.batches(plan, 0)) as batches:
        # Copies, since a loader's memory goes with it.
        return [[tensor.clone() for tensor in _flat(data.inputs, data.targets)] for data, _ in batches]


def augmented(
    subject: Subject, inputs: dict[str, Tensor], targets: Tensor, step: int, globally: int = 0
) -> tuple[dict[str, Tensor], Tensor]:
    """What the loop's step makes of a batch, with the global generators in one of two states."""
    _set_global_generators(globally)
    assert subject.recipe.augment is not None
    return subject.recipe.augment(inputs, targets, step_generator(subject, step))


def _augmented(subject: Subject, rows: Tensor, step: int, globally: int) -> list[Tensor]:
    return _flat(*augmented(subject, *rows_of(subject.training, rows, subject.device), step, globally))


def _set_global_generators(state: int) -> None:
    seed_torch(state)
    random.seed(state)
    np.random.seed(state)


def _flat(inputs: dict[str, Tensor], targets: Tensor) -> list[Tensor]:
    return [*(inputs[name] for name in sorted(inputs)), targets]


def _equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all()) for x, y in zip(a, b, strict=True)
    )


def _evaluation_varies(subject: Subject, rows: Tensor) -> bool:
    """Whether two passes in evaluation mode differ by more than the order of their sums."""
    model = subject.model().eval()
    inputs, _ = rows_of(subject.training, rows[:8], subject.device)
    with torch.no_grad():
        passes = [_outputs(model, inputs, state) for state in (0, 1)]
    return not torch.allclose(*passes, rtol=1e-3, atol=1e-5, equal_nan=True)


def _outputs(model: nn.Module, inputs: dict[str, Tensor], state: int) -> torch.Tensor:
    _set_global_generators(state)
    outputs = model(inputs)
    parts = outputs.values() if isinstance(outputs, dict) else outputs if isinstance(outputs, tuple) else (outputs,)
    return next(part for part in parts).float()


CHECKS: tuple[Check[Any], ...] = (check_of("inputs.augmentation_varies", varies),)
