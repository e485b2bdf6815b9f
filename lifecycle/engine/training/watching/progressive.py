"""What is scored beside the curve while a stage trains: batches in evaluation mode, the reserve, slices.

Nothing here changes the training: modes, buffers and random numbers are put back, and the device is read once a window.
All rows' losses of the open window are kept until it ends, so that a resumed window ends as an uninterrupted one does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.training.loop import autocast
from trainworthy.lifecycle.engine.training.random_state import undisturbed
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState
from trainworthy.lifecycle.engine.training.watching.curve import curve_point
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.slices import coded, slice_codes
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS
from trainworthy.lifecycle.protocol.training_figures import CurvePoint

# A column of more values would fill the record with windows that say nothing.
MOST_VALUES = 20


@dataclass(frozen=True)
class SliceColumn:
    """A column's slices: each training row's by number, `(N,)` on the device, and their names."""

    codes: Tensor
    names: tuple[str, ...]


@dataclass
class Progressive:
    """Points of finished windows, and the losses of the open one.

    `evaluate_every`: every so many batches of the first pass are scored in evaluation mode before their update, 0 for
    none. `reserve` is scored at the first pass's end and from then on at the end of every window.
    """

    plan: Plan
    data: TrainData | LoadedRows
    recipe: Recipe
    evaluate_every: int = 0
    reserve: TrainData | None = None
    slices: tuple[SliceColumn, ...] = ()
    points: list[CurvePoint] = field(default_factory=list)
    _rows: list[Tensor] = field(default_factory=list)
    _trained: list[Tensor] = field(default_factory=list)
    _evaluated: list[Tensor] = field(default_factory=list)
    _scored_step: int = -1

    def before_first_step(self, state: TrainState) -> None:
        """Scores the first batch of a start or resume, unless the checkpoint has it; after_step the others."""
        self._evaluate_next(state)

    def after_step(self, state: TrainState, closed: CurvePoint | None) -> tuple[CurvePoint, ...]:
        """The points of the window that `closed` ends, after an update; () if it ends none."""
        if self.slices and state.step <= self.plan.steps_per_epoch and state.row_losses is not None:
            rows, losses, counted = self.plan.batch(state.step - 1), state.row_losses, self.plan.counted(state.step - 1)
            self._rows.append(rows if counted is None else rows[counted])
            self._trained.append((losses if counted is None else losses[counted.to(losses.device)]).double())
        points = () if closed is None else self._close(state, closed)
        self.points.extend(points)
        self._evaluate_next(state)
        return points

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors."""
        series = {"rows": self._rows, "trained": self._trained, "evaluated": self._evaluated}
        return {
            "points": [point.model_dump() for point in self.points],
            "scored_step": self._scored_step,
            **{name: _joined(tensors) for name, tensors in series.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave."""
        self.points = [CurvePoint(**point) for point in state["points"]]
        self._scored_step = state["scored_step"]
        device = self.data.device
        self._rows = [state["rows"]] if len(state["rows"]) else []
        self._trained = [state["trained"].to(device)] if len(state["trained"]) else []
        self._evaluated = [state["evaluated"].to(device)] if len(state["evaluated"]) else []

    def _evaluate_next(self, state: TrainState) -> None:
        every, last = self.evaluate_every, min(self.plan.steps_per_epoch, self.plan.last_step)
        if every and state.step % every == 0 and self._scored_step < state.step < last:
            self._scored_step = state.step
            # Before the batch is made: to_tensors may draw random numbers.
            with undisturbed(state.model):
                rows, counted = self.plan.batch(state.step), self.plan.counted(state.step)
                rows = rows if counted is None else rows[counted]
                taken = self.data.take(rows.to(self.data.targets.device)).to(self.data.device)
                self._evaluated.append(row_losses(state.model, taken, self.recipe))

    def _close(self, state: TrainState, closed: CurvePoint) -> tuple[CurvePoint, ...]:
        """Sums of all that the window holds, in one read of the device, as points."""
        sums, marks = [], []
        if self._trained:
            values, rows = _values(torch.cat(self._trained)), _joined(self._rows).to(self.data.device)
            for column in self.slices:
                # By index_add_, which has a deterministic form on CUDA; bincount has none.
                sums.append(values.new_zeros(len(column.names), 3).index_add_(0, column.codes[rows], values))
                marks += [{"slice": name} for name in column.names]
        if self._evaluated:
            sums.append(_values(torch.cat(self._evaluated)).sum(0, keepdim=True))
            marks.append({"mode": "evaluation"})
        if self.reserve is not None and closed.step >= self.plan.steps_per_epoch:
            sums.append(_values(self._reserve_losses(state, self.reserve)).sum(0, keepdim=True))
            marks.append({"mode": "evaluation", "scored": "reserve"})
        self._rows, self._trained, self._evaluated = [], [], []
        read = torch.cat(sums).tolist() if sums else []
        return tuple(
            curve_point(closed.step, count, total, squared, closed.learning_rate, self.plan.steps_per_epoch, **mark)
            for mark, (count, total, squared) in zip(marks, read, strict=True)
            if count >= (FEWEST_ROWS if "slice" in mark else 1) and abs(squared) < float("inf")
        )

    def _reserve_losses(self, state: TrainState, reserve: TrainData) -> Tensor:
        every = torch.arange(len(reserve.targets), device=reserve.targets.device)
        with undisturbed(state.model):
            # Parts of a batch's size need no more memory than training does.
            parts = every.split(max(1, self.plan.batch_size // self.recipe.accumulate))
            return torch.cat([row_losses(state.model, reserve.take(part), self.recipe) for part in parts])


def make_progressive(
    plan: Plan, data: TrainData | LoadedRows, recipe: Recipe, evaluate_every: int, reserve: TrainData | None,
    columns: Mapping[str, pd.Series], sensitive: Collection[str] = (),
) -> tuple[Progressive | None, tuple[str, ...]]:  # fmt: skip
    """What scores it, None if nothing is to be scored beside the curve; and notes on columns that are left out."""
    slices, notes = slice_columns(columns, data.device, sensitive)
    if not (evaluate_every or reserve is not None or slices):
        return None, notes
    return Progressive(plan, data, recipe, evaluate_every, reserve, slices), notes


def slice_columns(
    columns: Mapping[str, pd.Series], device: torch.device | str, sensitive: Collection[str] = ()
) -> tuple[tuple[SliceColumn, ...], tuple[str, ...]]:
    """The columns' slices as the evaluation cuts them, of `sensitive` ones by number; notes on what is left out."""
    slices, notes = [], []
    for name, values in columns.items():
        try:
            codes, names = slice_codes(coded(values) if name in sensitive else values)
        except EvaluationError as error:
            notes.append(f"no windows by {name}: {error.problem}")
            continue
        if len(names) > MOST_VALUES:
            notes.append(f"no windows by {name}: {len(names)} values, at most {MOST_VALUES} are followed")
        else:
            slices.append(SliceColumn(torch.as_tensor(codes, dtype=torch.int64, device=device), tuple(names)))
    return tuple(slices), tuple(notes)


def row_losses(model: torch.nn.Module, data: TrainData, recipe: Recipe) -> Tensor:
    """Each row's unweighted loss without gradients or augmentation, `(N,)`, float64, in the model's present mode."""
    with torch.no_grad(), autocast(recipe.precision, data.device.type):
        return recipe.loss_fn(model(data.inputs), data.targets).double()


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors) if tensors else torch.zeros(0)


def _values(losses: Tensor) -> Tensor:
    """Of each row what is summed: one, its loss and the square, shape (N, 3)."""
    return torch.stack([torch.ones_like(losses), losses, losses.square()], dim=1)
