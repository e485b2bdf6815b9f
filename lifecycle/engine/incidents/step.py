"""One update of a replay: made again, looked at operation by operation, and in parts of its batch.

Which rows do it, or carry the most, is found by training on parts of the batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.incidents.anomaly import watched
from trainworthy.lifecycle.engine.incidents.scene import Scene
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import state_dict
from trainworthy.lifecycle.engine.training.loop import backward, train_step
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.random_state import restore_random
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState, Update
from trainworthy.lifecycle.incidents.incident import Interventions
from trainworthy.lifecycle.protocol.results import FirstBad, GuiltyRow

# Rows that are told of, and rows whose gradient is taken alone, those of the largest losses first.
_ROWS, _ALONE = 5, 128
# A part of a batch is a forward and a backward pass; a few guilty rows among thousands need some tens of them.
MOST_TRIES = 256
# Rows that are tried alone first: if all of these do it, it is not the rows.
_SCOUTS = 4


@dataclass(frozen=True)
class Step:
    """The update of an incident: a batch and the state before it. `update` is what it gave when it was made again."""

    scene: Scene
    number: int
    data: TrainData
    rows: Tensor
    before: dict[str, Any]
    update: Update
    losses: Tensor
    policy: AsRecorded

    def put_back(self) -> TrainState:
        """The state as it was before the update, the random number generators too."""
        state = self.scene.state
        state.model.load_state_dict(self.before["model"])
        for optimizer, saved in zip(state.optimizers, self.before["optimizers"], strict=True):
            optimizer.load_state_dict(copy.deepcopy(saved))
        for name, saved in self.before["also"].items():
            state.also[name].load_state_dict(copy.deepcopy(saved))
        restore_random(self.before["random"])
        for parameter in state.with_gradients:
            parameter.grad = None
        return state

    @property
    def not_finite(self) -> bool:
        """True if loss or gradient was not."""
        return not (math.isfinite(self.update.loss) and math.isfinite(self.update.grad_norm))


@dataclass(frozen=True)
class AsRecorded:
    """In the place of a watch: what was done to the training is done again, and nothing is decided."""

    done: Interventions

    def rate(self, state: TrainState, recipe: Recipe) -> float:
        return recipe.learning_rate(state.step) * self.done.rate_factor_of(state.step)

    def before_update(self, state: TrainState) -> bool:
        return state.step not in self.done.passed_over

    def may_apply(self, state: TrainState, update: Update, rows: int, batch: int | None = None) -> bool:
        return state.step not in self.done.skipped

    def after_update(self, state: TrainState, update: Update) -> None:
        return None

    @property
    def watch(self) -> Watch:
        """As the loop asks for it."""
        return cast("Watch", self)


def make_step(scene: Scene, data: TrainData, rows: Tensor, policy: AsRecorded) -> Step:
    """Make the update of the state's step as the training did, and put the state back."""
    state = scene.state
    before = copy.deepcopy(state_dict(state))
    update = _update(scene, data, rows, policy)
    assert state.row_losses is not None
    made = Step(scene, state.step, data, rows, before, update, state.row_losses, policy)
    made.put_back()
    return made


def _update(scene: Scene, data: TrainData, rows: Tensor, policy: AsRecorded) -> Update:
    rate = policy.rate(scene.state, scene.recipe)
    for optimizer in scene.state.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
    return train_step(scene.state, data, rows, scene.recipe, policy.watch)


def first_bad(step: Step) -> FirstBad | None:
    """The operation that the first bad number of loss, gradient or weights comes from; None if all are finite."""
    state, model = step.put_back(), step.scene.state.model
    sources = {f"parameter {name}": tensor.detach() for name, tensor in model.named_parameters()}
    sources |= {f"buffer {name}": tensor for name, tensor in model.named_buffers() if tensor.is_floating_point()}
    batch = step.data.take(step.rows)
    sources |= {f"input {name}": tensor for name, tensor in batch.inputs.items() if tensor.is_floating_point()}
    sources["the labels"] = batch.targets
    numbers = step.rows.new_tensor(range(len(step.rows)))
    with watched(model, step.scene.folder, sources) as births:
        update = _update(step.scene, batch, numbers, step.policy)
        assert state.row_losses is not None
        gradients = [parameter.grad for parameter in state.parameters if parameter.grad is not None]
        weights = [parameter.detach() for parameter in state.parameters]
        birth = births.first([state.row_losses, *gradients, *weights])
    if birth is not None:
        fields = {name: getattr(birth, name) for name in ("operation", "gave", "module", "line", "node", "evidence")}
        return FirstBad(phase=birth.phase, **fields)
    return None if math.isfinite(update.grad_norm) else _norm(state)


def _norm(state: TrainState) -> FirstBad:
    """Every gradient is finite, and their squares are too large for the norm."""
    largest = {
        name: float(parameter.grad.abs().max())
        for name, parameter in state.model.named_parameters()
        if parameter.grad is not None
    }
    name = max(largest, key=lambda name: largest[name])
    evidence = f"all gradients are finite and too large for their norm; the largest is {largest[name]:.3g} in {name}"
    return FirstBad(phase="norm", operation="norm", gave="inf", module=name, line="", node="", evidence=evidence)


@dataclass(frozen=True)
class Alone:
    """Parts of the step's batch on their own, augmented as the whole batch was."""

    step: Step
    data: TrainData
    recipe: Recipe

    def passed(self, places: Sequence[int]) -> tuple[float, float]:
        """Loss and gradient norm of these rows of the batch, from the state before the step."""
        state = self.step.put_back()
        rows = torch.tensor(list(places), device=self.data.device)
        scale = 1.0 if state.scaler is None else state.scaler.scale
        try:
            losses = backward(state.model, self.data, rows, self.recipe, None, of=len(rows), scale=scale)
        except ValueError:
            # Batch norm can't train on one row; on two equal ones it can.
            self.step.put_back()
            twice = rows.repeat(2)
            losses = backward(state.model, self.data, twice, self.recipe, None, of=len(twice), scale=scale)
        gradients = [parameter.grad for parameter in state.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients) / scale
        return float(losses.each.double().mean()), float(norm)

    def is_bad(self, places: Sequence[int]) -> bool:
        """True if loss or gradient of these rows is not finite."""
        return not all(math.isfinite(value) for value in self.passed(places))


def alone(step: Step) -> Alone:
    """The step's batch, ready to be trained on in parts."""
    recipe, batch, count = step.scene.recipe, step.data.take(step.rows), len(step.rows)
    if recipe.augment is None:
        return Alone(step, batch, replace(recipe, accumulate=1))
    step.put_back()
    generator = recipe.generator(step.scene.state.step)
    assert generator is not None
    changed = [
        recipe.augment({name: tensor[part] for name, tensor in batch.inputs.items()}, batch.targets[part], generator)
        for part in torch.arange(count, device=batch.device).tensor_split(min(recipe.accumulate, count))
    ]
    inputs = {name: torch.cat([inputs[name] for inputs, _ in changed]) for name in changed[0][0]}
    data = TrainData(inputs, torch.cat([targets for _, targets in changed]), batch.weights)
    return Alone(step, data, replace(recipe, accumulate=1, augment=None))


@dataclass
class Search:
    """Bisects a batch. `is_bad` tells whether these rows, by their place in the batch, do it on their own."""

    is_bad: Callable[[Sequence[int]], bool]
    alone: list[int] = field(default_factory=list)
    together: list[Sequence[int]] = field(default_factory=list)
    tries: int = 0

    def run(self, count: int) -> str:
        """Search the whole batch; a sentence on what was found."""
        scouts = sorted({place * (count - 1) // max(_SCOUTS - 1, 1) for place in range(_SCOUTS)})
        if count > _SCOUTS and all(self._tried([place]) for place in scouts):
            return f"each of {len(scouts)} rows that were tried alone does it: look at weights and model, not at rows"
        if not self._search(range(count)):
            return "parts of the batch do not do it; only the whole batch with its own random numbers does"
        if self.tries >= MOST_TRIES:
            return (
                f"{len(self.alone)} rows do it alone; the search ended after {self.tries} parts, and there may be more"
            )
        if self.alone:
            return f"{len(self.alone)} of {count} rows do it alone; found with {self.tries} parts of the batch"
        return f"no row does it alone; these {len(self.together[0])} do together"

    def _search(self, part: Sequence[int]) -> bool:
        if self.tries >= MOST_TRIES or not self._tried(part):
            return False
        if len(part) == 1:
            self.alone.append(part[0])
            return True
        middle = len(part) // 2
        left, right = self._search(part[:middle]), self._search(part[middle:])
        if not left and not right and self.tries < MOST_TRIES:
            self.together.append(part)
        return True

    def _tried(self, part: Sequence[int]) -> bool:
        self.tries += 1
        return self.is_bad(part)


def guilty_rows(step: Step, *, sensitive: bool) -> tuple[tuple[GuiltyRow, ...], str]:
    """The rows that stand out, and how they were found."""
    keys, numbers = step.scene.keys(step.number), step.scene.rows(step.number)
    places, evidence = _guilty(step) if step.not_finite else _heaviest(step)
    rows = tuple(
        GuiltyRow(
            row=numbers[place],
            key=keys[place] if place < len(keys) else {},
            told="why is not told, since a feature is sensitive" if sensitive else why,
        )
        for place, why in list(places.items())[:_ROWS]
    )
    return rows, evidence


def _guilty(step: Step) -> tuple[dict[int, str], str]:
    """Rows of a batch whose loss or gradient is not finite, by place, with what is odd in their inputs."""
    bad = torch.nonzero(~torch.isfinite(step.losses)).flatten().tolist()
    batch = step.data.take(step.rows)
    if 0 < len(bad) < len(step.losses):
        evidence = f"{len(bad)} of {len(step.losses)} rows have a loss that is not finite"
        return {place: bad_inputs(batch, place) or "its loss is not finite" for place in bad}, evidence
    search = Search(alone(step).is_bad)
    evidence = search.run(len(step.losses))
    places = search.alone or [place for part in search.together[:1] for place in part]
    return {place: bad_inputs(batch, place) or "it does it with inputs that are finite" for place in places}, evidence


def bad_inputs(batch: TrainData, place: int) -> str:
    """Which inputs of a row, by its place in the batch, hold numbers that are not finite."""
    bad = {
        name: int((~torch.isfinite(tensor[place])).sum())
        for name, tensor in batch.inputs.items()
        if tensor.is_floating_point()
    }
    return ", ".join(f"input {name} holds {count} numbers that are not finite" for name, count in bad.items() if count)


def _heaviest(step: Step) -> tuple[dict[int, str], str]:
    """Rows that carry the most of a finite step's loss and gradient."""
    losses = step.losses.double()
    order = losses.argsort(descending=True).tolist()[:_ALONE]
    part = alone(step)
    norms = {place: part.passed([place])[1] for place in order}
    step.put_back()
    total, all_norms = float(losses.sum()), sum(norms.values())
    heavy = sorted(norms, key=lambda place: norms[place], reverse=True)[:_ROWS]
    shares = {
        place: f"{_share(float(losses[place]), total)} of the batch's loss, "
        f"{_share(norms[place], all_norms)} of the rows' gradient norms"
        for place in heavy
    }
    times = norms[heavy[0]] * len(order) / all_norms if all_norms else 1.0
    return shares, f"{len(order)} were taken alone; the largest gradient has {times:.1f} times an equal share"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "none"
