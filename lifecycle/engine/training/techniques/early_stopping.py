"""Training ends when the loss on the validation split no longer falls; the weights of its best evaluation are shipped.

The benchmark is never looked at. The validation split is what the choice was made on, so that its loss is a little too
good afterwards: calibration and benchmark, which were not looked at, judge the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from trainworthy.lifecycle.spec.training import EarlyStoppingSpec


class EarlyStopping:
    """The best evaluation so far, and how many in a row have not been better. `evaluate` gives a model's loss."""

    def __init__(self, spec: EarlyStoppingSpec, evaluate: Callable[[], float]) -> None:
        self.spec, self.evaluate = spec, evaluate
        self.best_loss, self.best_step, self.worse = math.inf, 0, 0
        self.weights: dict[str, Tensor] = {}
        self.ended = False

    def look(self, weights: Callable[[], Mapping[str, Tensor]], step: int) -> bool:
        """Evaluate the model; True if training is to end. A loss that is not finite is never the best.

        `weights` gives the model's state dict as it is then.
        """
        loss = self.evaluate()
        if loss < self.best_loss:
            self.best_loss, self.best_step, self.worse = loss, step, 0
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in weights().items()}
        else:
            self.worse += 1
        self.ended = self.worse >= self.spec.patience and step >= self.spec.min_steps
        return self.ended

    @property
    def summary(self) -> str:
        """The best evaluation, in words."""
        if self.weights:
            return f"best validation loss {self.best_loss:.4f} at {self.best_step}"
        return f"none of {self.worse} evaluations had a finite loss" if self.worse else "nothing was evaluated"

    def state_dict(self) -> dict[str, Any]:
        return {
            "best_loss": self.best_loss, "best_step": self.best_step, "worse": self.worse, "ended": self.ended,
            "weights": self.weights,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best_loss, self.best_step, self.worse = state["best_loss"], state["best_step"], state["worse"]
        self.ended, self.weights = state["ended"], state["weights"]
