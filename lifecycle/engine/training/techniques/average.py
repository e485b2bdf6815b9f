"""The exponential moving average of the weights, which is validated and shipped in place of the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# After n updates the decay is at most (1 + n) / (RAMP + n): the initial weights would else stay in the average of a
# short stage.
RAMP = 10.0


class Average:
    """The average of a model's parameters. Buffers, as batch norm's running means, stay those of the model."""

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def update(self, model: torch.nn.Module) -> None:
        """Move towards the model's weights, by one update's share."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (RAMP + self.updates))
        mine, own = list(self.weights.values()), list(_parameters(model).values())
        torch._foreach_lerp_(mine, own, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    def write_to(self, model: torch.nn.Module) -> None:
        """Put the average in place of the model's own weights."""
        write(self.weights, _parameters(model))

    @contextmanager
    def in_place_of(self, model: torch.nn.Module) -> Iterator[None]:
        """The model has the averaged weights inside, and its own again after."""
        own = {name: tensor.clone() for name, tensor in _parameters(model).items()}
        self.write_to(model)
        try:
            yield
        finally:
            write(own, _parameters(model))

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        write(state["weights"], self.weights)


def write(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Copy values of the same names."""
    assert source.keys() == target.keys(), "weights of another model"
    for name, tensor in target.items():
        tensor.copy_(source[name])


def _parameters(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}
