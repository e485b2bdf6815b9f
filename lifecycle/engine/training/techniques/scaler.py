"""The loss scale of fp16: small gradients would be 0 in 16 bits, so the loss is multiplied and the gradients divided.

As torch.amp.GradScaler does it, with its figures: start high, halve after an overflow and leave that update out, double
after INTERVAL updates without one. Its own class would read the device once more for each optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainworthy.lifecycle.spec.training import Precision

START, FACTOR, INTERVAL = 65_536.0, 2.0, 2_000


@dataclass
class Scaler:
    """The scale, a power of two; how many updates in a row had finite gradients; and how many had not, in all."""

    scale: float = START
    finite: int = 0
    overflows: int = 0

    def update(self, finite: bool) -> None:
        """The scale after an update whose gradients were finite, or were not."""
        if not finite:
            self.scale, self.finite, self.overflows = self.scale / FACTOR, 0, self.overflows + 1
            return
        self.finite += 1
        if self.finite == INTERVAL:
            self.scale, self.finite = self.scale * FACTOR, 0

    @property
    def exhausted(self) -> bool:
        """True if gradients overflowed that were not enlarged at all: no smaller scale will mend them."""
        return self.scale < 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "finite": self.finite, "overflows": self.overflows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scale, self.finite, self.overflows = state["scale"], state["finite"], state["overflows"]


def scaler_of(precision: Precision) -> dict[str, Scaler]:
    """What a training in this precision has beside the rest of its state, by name."""
    return {"scaler": Scaler()} if precision == "fp16" else {}
