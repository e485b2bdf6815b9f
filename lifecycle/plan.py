"""Which rows a stage trains on, in which order, at which learning rate. Stateless: all by (seed, epoch, step)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field

from trainworthy.lifecycle.oversampling import Oversampled, repeated_draws
from trainworthy.lifecycle.protocol.records import STAGES
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.training import StagesSpec, TrainingSpec

if TYPE_CHECKING:
    import numpy as np
    import torch

# Fewer updates than this say nothing about a network (measured on flights: 25 steps already learn).
MIN_STEPS = 20
# Windows of a stage's curve.
WINDOWS = 40


class Plan(Frozen):
    """Steps `first_step` to `last_step` of a schedule over `horizon_steps`, in batches of `batch_size` of `rows`.

    `batch_size` counts the rows of an update, over all accumulated parts. An epoch has `draws`, each row once and some
    more often if they are `oversampled`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    rows: int
    batch_size: int
    steps_per_epoch: int
    horizon_steps: int
    first_step: int
    last_step: int
    seed: int
    # It follows from the rows' labels: no record holds it.
    oversampled: Oversampled | None = Field(default=None, exclude=True)

    @property
    def draws(self) -> int:
        """Rows that an epoch draws, those drawn again among them."""
        return self.rows + (self.oversampled.repeats if self.oversampled else 0)

    @property
    def window(self) -> int:
        """Steps of a window of the curve."""
        return max(1, (self.last_step - self.first_step) // WINDOWS)

    def batch(self, step: int) -> torch.Tensor:
        """Row numbers of a step's batch, shape (batch_size,). The order of an epoch depends on (seed, epoch) only."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = _epoch_order(self.seed, epoch, self.rows, self.oversampled)[0]
        return order[position * self.batch_size : (position + 1) * self.batch_size]

    def counted(self, step: int) -> torch.Tensor | None:
        """Places in a step's batch of the rows that its epoch meets for the first time; None if all are."""
        if self.oversampled is None:
            return None
        epoch, position = divmod(step, self.steps_per_epoch)
        first = _epoch_order(self.seed, epoch, self.rows, self.oversampled)[1]
        return first[position * self.batch_size : (position + 1) * self.batch_size].nonzero().flatten()


def make_plan(
    rows: int, training: TrainingSpec, stages: StagesSpec, stage: str, oversampled: Oversampled | None = None
) -> Plan:
    """Plan of a stage over `rows` training rows, some of them drawn again in each epoch if they are `oversampled`.

    A batch is never larger than an epoch; draws that do not fill a last batch are left to another
    epoch's order. Epochs are added until there are MIN_STEPS. In mode continue, `rows` are all
    training rows, and a stage goes from the end of the one before to its fraction of the steps.
    """
    draws = rows + (oversampled.repeats if oversampled else 0)
    batch_size = min(training.batch_size * training.accumulate, draws)
    steps_per_epoch = draws // batch_size
    horizon = steps_per_epoch * max(training.epochs, math.ceil(MIN_STEPS / steps_per_epoch))
    first, last = (0, horizon) if stages.mode == "restart" else _pause(stages, stage, horizon)
    return Plan(
        rows=rows,
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        horizon_steps=horizon,
        first_step=first,
        last_step=last,
        seed=training.seed,
        oversampled=oversampled,
    )


def rows_of_stage(rows: int, training: TrainingSpec, stages: StagesSpec, stage: str) -> int:
    """How many of all training rows a stage's plan is made for; stage_rows rounds up once a stratum."""
    chosen = rows if stages.mode == "continue" else math.ceil(stages.fraction(stage) * rows)
    return chosen - round(training.reserve * chosen)


def plan_of_counts(rows: int, positives: int, training: TrainingSpec, stages: StagesSpec, stage: str) -> Plan:
    """A stage's plan where only the numbers of all training rows and of positive ones are known: it draws no batch."""
    count = rows_of_stage(rows, training, stages, stage)
    repeats = repeated_draws(count, round(positives * count / rows), training.oversampling)
    return make_plan(count, training, stages, stage, Oversampled.unknown(repeats) if repeats else None)


def monitored_rows(plan: Plan, training: TrainingSpec) -> int:
    """About how many rows a stage scores beside its updates: the reserve a window, batches in evaluation mode."""
    batches = min(plan.last_step, plan.steps_per_epoch) - plan.first_step
    evaluated = max(0, batches // training.evaluate_every) * plan.batch_size if training.evaluate_every else 0
    windows = max(0, plan.last_step - max(plan.first_step, plan.steps_per_epoch)) // plan.window
    return evaluated + windows * round(plan.rows * training.reserve / (1 - training.reserve))


def _pause(stages: StagesSpec, stage: str, horizon: int) -> tuple[int, int]:
    """First and last step of a stage of one continued run; each stage has MIN_STEPS while steps are left."""
    first = last = 0
    for name in STAGES[: list[str](STAGES).index(stage) + 1]:
        first, last = last, min(horizon, max(last + MIN_STEPS, math.ceil(stages.fraction(name) * horizon)))
    return first, last


def learning_rate(step: int, horizon_steps: int, training: TrainingSpec) -> float:
    """Learning rate of a step: linear warm-up, then the declared decay; above zero at every planned step."""
    peak, schedule = training.optimizer.learning_rate, training.schedule
    warmup_steps = round(schedule.warmup * horizon_steps)
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if schedule.decay == "constant":
        return peak
    if schedule.decay == "wsd":
        assert schedule.decay_share is not None
        return peak * min(1.0, (horizon_steps - step) / max(1, round(schedule.decay_share * horizon_steps)))
    share = (step - warmup_steps) / max(1, horizon_steps - warmup_steps)
    return peak * (1 - share) if schedule.decay == "linear" else peak * 0.5 * (1 + math.cos(math.pi * share))


def stage_rows(strata: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Row numbers of a stage, ascending: stratified by codes `(N,)` of the label (Kind.strata), and nested.

    A larger fraction holds a smaller one of the same seed. At least one row of every stratum is kept.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    chosen = []
    for value in np.unique(strata):
        members = generator.permutation(np.flatnonzero(strata == value))
        chosen.append(members[: max(1, math.ceil(fraction * len(members)))])
    return np.sort(np.concatenate(chosen))


def without_reserve(chosen: np.ndarray, strata: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A stage's `chosen` rows without the reserve, and those of them that are the reserve; both ascending.

    The reserve is a share of all rows, the same for every stage, stratified, and a larger share holds a smaller one. It
    never takes the last row of a stratum.
    """
    import numpy as np

    # Of a stream of its own: that of the seed alone has chosen the stage's rows.
    held_back = np.isin(chosen, stage_rows(strata, share, step_seed(seed, -1)), assume_unique=True)
    for value in np.unique(strata[chosen]):
        members = strata[chosen] == value
        if held_back[members].all():
            held_back[members] = False
    return chosen[~held_back], chosen[held_back]


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """Seed of one step's random draws in a rank: large odd constants keep neighbours apart."""
    return (seed * 0x9E3779B1 + step * 0xC2B2AE35 + rank * 0x27D4EB2F + 2) % 2**63


_ORDER: dict[tuple[int, int, int, Oversampled | None], tuple[torch.Tensor, torch.Tensor]] = {}


def _epoch_order(
    seed: int, epoch: int, rows: int, oversampled: Oversampled | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row numbers of one epoch's draws in order, and of each whether it is its row's first; only the newest is kept."""
    import torch

    key = (seed, epoch, rows, oversampled)
    if key not in _ORDER:
        _ORDER.clear()
        # One stream of its own per (seed, epoch): large odd constants keep neighbours apart.
        epoch_seed = (seed * 0x9E3779B1 + epoch * 0x85EBCA77 + 1) % 2**63
        generator = torch.Generator().manual_seed(epoch_seed)
        if oversampled is None:
            _ORDER[key] = torch.randperm(rows, generator=generator), torch.ones(0, dtype=torch.bool)
        else:
            drawn = oversampled.drawn(rows, epoch_seed + 1)
            _ORDER[key] = _with_first(drawn[torch.randperm(len(drawn), generator=generator)])
    return _ORDER[key]


def _with_first(order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import numpy as np
    import torch

    first = torch.zeros(len(order), dtype=torch.bool)
    first[torch.from_numpy(np.unique(order.numpy(), return_index=True)[1])] = True
    return order, first
