"""The closer look at an update that a script makes: between two updates that it tells, when its optimizer is told, too.

Nobody says where a script's update begins, and which of several optimizers makes it. So the hooks are on since the
update before was told; forward passes that score, or draw samples, are passed over; and a parameter that stood still in
this update but moved since the look before is trained by turns.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.monitors.base import Base, named
from trainworthy.lifecycle.engine.training.monitors.beside import left_out
from trainworthy.lifecycle.engine.training.monitors.closer_look import CloserLook, CloserLooks
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.signals import Sample, Signals


class ScriptLooks(CloserLooks):
    """`earlier` tells the weights of the look before, None before the first one."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.earlier: tuple[int, ...] | None = None

    def fingerprints(self, weights: np.ndarray) -> tuple[int, ...]:
        """Of each parameter, as far as it is looked at: few enough for a checkpoint."""
        # -0.0 is no other weight than 0.0.
        ends = [*self.starts[1:].tolist(), self.looked_at]
        parts = zip(self.starts.tolist(), ends, strict=True)
        return tuple(zlib.crc32((weights[start:end] + 0.0).tobytes()) for start, end in parts)

    def begin(self, state: TrainState) -> ScriptLook:
        return ScriptLook(self, state)


class ScriptLook(CloserLook):
    """Made when the update before was told; `weigh` is called when its own is, and `end` when the next one is."""

    def __init__(self, shared: ScriptLooks, state: TrainState) -> None:
        super().__init__(shared, state)
        self._looks = shared
        self._kept: Tensor | None = None

    @property
    def step(self) -> int:
        """Of the update that is looked at."""
        return self._step

    @property
    def weighed(self) -> bool:
        """True once the update was told."""
        return self._kept is not None

    def weigh(self, step: int) -> None:
        """Weights and gradients as they are between backward and the update of `step`."""
        self.leave()
        self._step = step
        self._before, self._kept = self._looks.some_weights(), self._looks.some_gradients()

    def _gradients(self) -> Tensor:
        # By now they are the next update's.
        assert self._kept is not None
        return self._kept

    def _beside(self, sums: np.ndarray) -> dict[str, Any]:
        # The order of rows is the script's own, and so is what its processes do.
        return {"left_out": left_out(self._state)}

    def _sample(self, read: np.ndarray, sums: np.ndarray) -> Sample:
        """Without what is trained by turns, or by an optimizer that was not told."""
        seen, looks = super()._sample(read, sums), self._looks
        before, after = read[: 2 * looks.looked_at].reshape(2, looks.looked_at)
        # At the first update nobody knows what moves later.
        earlier = looks.earlier or (None,) * len(seen.names)
        moved = [now != then for now, then in zip(looks.fingerprints(before), earlier, strict=True)]
        looks.earlier = looks.fingerprints(after)
        changed = {name for name, change in zip(seen.names, seen.changes, strict=True) if change}
        by_turns = {name for name, one in zip(seen.names, moved, strict=True) if one and name not in changed}
        left = tuple(name for name in seen.left_out if name not in changed | by_turns)
        no_part = by_turns | set(left)
        trainable = tuple(
            wanted and name not in no_part for name, wanted in zip(seen.names, seen.trainable, strict=True)
        )
        return replace(seen, left_out=left, trainable=trainable)

    def _noting(self, name: str) -> Any:
        note, model = super()._noting(name), self._shared.model

        def noted(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if model.training and torch.is_grad_enabled():
                note(module, inputs, output)

        return noted

    def _note_inputs(self, module: torch.nn.Module, inputs: Any) -> None:
        """Nothing: see _beside."""


class InNoOptimizer(Base):
    """Trainable parameters that stand still, and that none of the optimizers has which the script has told.

    It may have others, or mean it so: a warning, but where nothing of the model moves.
    """

    name = "not_in_optimizer"

    def after_sample(self, seen: Sample, update: Signals) -> Finding | None:
        """A finding at once."""
        if not seen.left_out:
            return None
        return self.tell(
            seen.step, seen.step,
            "no optimizer that was told has trainable parameters, and they stand still",
            f"{len(seen.left_out)} of {len(seen.names)} parameters at update {seen.step}: {named(seen.left_out)}",
            seen.left_out, milder=any(seen.changes),
        )  # fmt: skip
