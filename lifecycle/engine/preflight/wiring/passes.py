"""Forward passes that can be compared: few rows, equal random numbers, buffers put back, a network off its start.

A network at its start hides what it is: a last layer of zeros gives the same whatever goes in, and LoRA's B = 0 keeps
its A from the loss. So the checks look at a stirred one, whose every parameter has moved a little.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import LossFn, TrainData

# Eight rows show what mixes them: a mean over rows then weighs an eighth, and not a sixty-fourth.
FEW_ROWS = 8
# Of a text or a mask so many places weigh as much as a row: 320 texts of 128 places have 10 million outputs, 320 masks
# of 90 x 120 points and 12 classes 40 million, and the search for the lowest loss of any outputs took minutes.
PLACES_A_ROW = 32
# Places of so few rows that these are as many as asked, two at least: batch norm takes no single one.
PLACES_OF_FEWEST = 2**17


def few(subject: Subject, rows: int = FEW_ROWS) -> TrainData:
    """The first rows of training, as many as there are, as the network sees them in training: augmented."""
    rows = min(rows, len(subject.training.targets))
    return augmented(subject, subject.training.take(torch.arange(rows, device=subject.device)))


def fewer_of_places(subject: Subject, most: int, fewest: int = 4) -> int:
    """At most so many rows, fewer where each is a text or a mask: its places are learned one by one, as rows are."""
    if subject.kind is None or len(subject.kind.answer_shape) < 2:
        return most
    places = subject.training.take(torch.zeros(1, dtype=torch.int64, device=subject.device)).targets.numel()
    return max(min(fewest, max(2, PLACES_OF_FEWEST // places)), min(most, most * PLACES_A_ROW // places))


def spread(subject: Subject, rows: int) -> TrainData:
    """As `few`, of rows that are evenly spread: rows may be sorted by their label."""
    return augmented(subject, subject.training.take(spread_rows(subject.training, rows).to(subject.device)))


def other_rows(subject: Subject, rows: int) -> TrainData:
    """As many other rows of training, from its middle on, and so that none is in its own place."""
    total = len(subject.training.targets)
    places = torch.arange(rows, device=subject.device) + max(1, min(total // 2, total - 1))
    return augmented(subject, subject.training.take(places % total))


def augmented(subject: Subject, data: TrainData) -> TrainData:
    """The rows as augmentation makes them, each time with the same random numbers; as they are without one."""
    if subject.recipe.augment is None:
        return data
    with same_random_numbers():
        given = dict(data.inputs)
        return TrainData(*subject.recipe.augment(given, data.targets, torch.Generator().manual_seed(0)), data.weights)


def stirred(model: nn.Module, share: float = 0.1, seed: int = 0) -> nn.Module:
    """The same model, with noise of a share of each parameter's own size, or of 0.2 where that is larger."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.numel():
                size = share * max(0.2, float(parameter.float().square().mean().sqrt()))
                noise = torch.randn(parameter.shape, generator=generator) * size
                parameter.add_(noise.to(parameter.device, parameter.dtype))
    return model


@contextlib.contextmanager
def put_back(model: nn.Module) -> Iterator[None]:
    """Buffers, parameters that do not train, and numbers and tensors in attributes, are afterwards as they were: a pass
    in training mode moves running statistics, queues, teachers and counters. Modes are left as they come out."""
    before, plain = buffers(model), [(module, _plain(module)) for module in model.modules()]
    quiet = [(p, p.detach().clone()) for p in model.parameters() if not p.requires_grad]
    try:
        yield
    finally:
        for module, name, buffer, value in before:
            # .data, since autograd would take a change of what a pass has saved for an error.
            buffer.data.copy_(value)
            module._buffers[name] = buffer
        for parameter, value in quiet:
            if not parameter.equal(value):
                parameter.data.copy_(value)
        for module, values in plain:
            vars(module).update(values)


def _plain(module: nn.Module) -> dict[str, Any]:
    kinds = (int, float, torch.Tensor)
    return {name: value for name, value in vars(module).items() if isinstance(value, kinds) and name != "training"}


def buffers(model: nn.Module) -> list[tuple[nn.Module, str, Tensor, Tensor]]:
    """Each buffer's module, its name there, the buffer, and a copy of its values."""
    return [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules() for name, buffer in module.named_buffers(recurse=False)
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pass:
    """What a forward pass gave: each row's loss (N,), and the random numbers' state after it."""

    losses: Tensor
    random_state: Tensor


def forward(model: nn.Module, inputs: Mapping[str, Tensor], seed: int = 0) -> Any:
    """What the model gives in float32, from a seed's random numbers on; buffers stay."""
    with put_back(model), same_random_numbers():
        seed_torch(seed)
        return model(dict(inputs))


def losses(model: nn.Module, data: TrainData, loss_fn: LossFn, seed: int = 0) -> Pass:
    """Each row's loss in float32, from a seed's random numbers on; buffers stay."""
    with put_back(model), same_random_numbers():
        seed_torch(seed)
        row_losses = loss_fn(model(dict(data.inputs)), data.targets)
        state = torch.get_rng_state()
    assert row_losses.shape == data.targets.shape[:1], (
        f"loss_fn must give one loss a row, shape ({len(data.targets)},), got {tuple(row_losses.shape)}"
    )
    return Pass(row_losses, state)


def floats(outputs: Any) -> list[Tensor]:
    """The floating tensors of what a model gives: a tensor, or a tuple, list or dict of some."""
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def largest(difference: Tensor) -> float:
    """Largest absolute value; what is not finite counts as none, and an empty tensor as 0."""
    plain = difference.detach().abs() if difference.is_complex() else difference.detach().float()
    return float(plain.nan_to_num(0.0, 0.0, 0.0).abs().max()) if plain.numel() else 0.0


def has_effect(subject: Subject, model: nn.Module, data: TrainData, changed: Mapping[str, Tensor]) -> bool:
    """Whether an output changes by more than by another equal pass, in evaluation or in training mode, or ends to be
    finite."""
    for training in (False, True) if subject.batch_rows() > 1 else (False,):
        model.train(training)
        with torch.no_grad():
            plain, again, other = (
                floats(forward(model, inputs)) for inputs in (data.inputs, data.inputs, {**data.inputs, **changed})
            )
        for first, second, third in zip(plain, again, other, strict=True):
            if first.shape != third.shape or largest(third - first) > 2 * largest(second - first):
                return True
            if not first.isfinite().equal(third.isfinite()):
                return True
    return False


Statistics = list[tuple[Any, Any]]


@contextlib.contextmanager
def batch_norm(fixed: Statistics | None = None) -> Iterator[Statistics]:
    """Gives the mean and variance of every call of batch norm that uses its batch, in order; or uses `fixed` ones.

    With those of another pass a row meets no other row through batch norm. All layers of torch go through this call.
    """
    plain, statistics, calls = functional.batch_norm, Statistics(), itertools.count()

    def call(
        input: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        if not training:
            return plain(input, running_mean, running_var, weight, bias, training, momentum, eps)
        if fixed:
            # Every pass makes the same calls.
            mean, variance = fixed[next(calls) % len(fixed)]
            return plain(input, mean, variance, weight, bias, False, momentum, eps)
        dims = [dim for dim in range(input.ndim) if dim != 1]
        values = input.detach().float()
        statistics.append((values.mean(dims), values.var(dims, unbiased=False)))
        return plain(input, running_mean, running_var, weight, bias, training, momentum, eps)

    functional.batch_norm = call
    try:
        yield statistics
    finally:
        functional.batch_norm = plain


@contextlib.contextmanager
def at_rest(model: nn.Module, data: TrainData, loss_fn: LossFn) -> Iterator[None]:
    """Meanwhile no normalisation uses the batch: batch norm has the statistics of `data`, and any other layer
    that a training pass gives new running statistics is in evaluation mode."""
    with torch.no_grad():
        with batch_norm() as reference:
            losses(model, data, loss_fn)
        keepers = [module for module in _keepers(model, data) if module.training]
    for module in keepers:
        module.training = False
    try:
        with batch_norm(reference):
            yield
    finally:
        for module in keepers:
            module.training = True


def _keepers(model: nn.Module, data: TrainData) -> list[nn.Module]:
    """Layers beside torch's batch norm whose own buffers a pass changes."""
    before = buffers(model)
    with put_back(model), same_random_numbers():
        model(dict(data.inputs))
        changed = [module for module, name, _, value in before if not getattr(module, name).equal(value)]
    return [module for module in dict.fromkeys(changed) if not isinstance(module, _BatchNorm)]
