"""By what a registered model decides: the declared decision, and the threshold that was chosen for this model."""

from __future__ import annotations

import math

from pydantic import model_validator

from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.lifecycle.spec.frozen import Frozen

# The check of whether an operating point tells rows apart.
DECISIONS = "decisions"


class OperatingPoint(Frozen):
    """`threshold` is the answer from which on a row counts as 1, finite; None where costs choose among classes."""

    decision: DecisionSpec
    threshold: float | None = None

    @model_validator(mode="after")
    def _whole(self) -> OperatingPoint:
        if (self.threshold is not None) != self.decision.by_threshold:
            raise ValueError("a decision by a probability has a threshold, and one among classes has none")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ValueError("the threshold is no finite number")
        return self

    @property
    def told(self) -> str:
        """What the model decides, in words."""
        if self.threshold is None:
            return "the class of the least expected cost"
        # Answers are probabilities: a threshold that is chosen above 1 acts on none.
        return "0 for every row" if self.threshold > 1 else f"1 from an answer of {self.threshold:.4g} on"
