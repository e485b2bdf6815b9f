"""A training as its parts can be exchanged: what model.py gives, what the job declares, and the rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from torch import nn

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.prepare import Prepared, chosen_rows, prepare_rows, seed_everything
from trainworthy.lifecycle.engine.training.recipe import make_model, make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.engine.training.techniques.parts import after_update, make_parts, put_final_weights
from trainworthy.lifecycle.engine.training.validate import as_trained_for, make_validation_loss
from trainworthy.lifecycle.plan import MIN_STEPS, Plan, make_plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.training_figures import Part
from trainworthy.lifecycle.sampling import evenly_spaced
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.spec.training import TrainingSpec
from trainworthy.lifecycle.task import OPTIONAL_FUNCTIONS, REQUIRED_FUNCTIONS, Task
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.labels import kind_of_rows

# Rows that tell what tensors look like, and whether two losses are one.
FEW_ROWS, SOME_ROWS = 64, 4096


@dataclass(frozen=True)
class Fold:
    """Rows to train on, and rows to be judged by."""

    training: pd.DataFrame
    judged: pd.DataFrame


@dataclass(frozen=True)
class Setup:
    """A training whose parts can be exchanged: `task` holds the functions of model.py, `job` the declarations.

    Each fold is trained and judged by itself, and together they judge all validation rows once. `planned` updates are
    those of every training's schedule, and all end after `updates`.
    """

    task: Task
    job: TrainJob
    folds: tuple[Fold, ...]
    planned: int
    updates: int

    @property
    def kind(self) -> Kind:
        return kind_of_rows(self.job.rows)

    def with_functions(self, **functions: Callable[..., Any] | None) -> Setup:
        """With these functions in the place of model.py's; None leaves one out, where it may be left out."""
        names = (*REQUIRED_FUNCTIONS, *OPTIONAL_FUNCTIONS)
        all_functions = {name: getattr(self.task, name) for name in names if hasattr(self.task, name)} | functions
        kept = {name: function for name, function in all_functions.items() if function is not None}
        return replace(self, task=cast(Task, SimpleNamespace(**kept)))

    def with_training(self, **declared: Any) -> Setup:
        """With these settings in the place of the declared ones."""
        return replace(self, job=self.job.model_copy(update={"training": self.training.model_copy(update=declared)}))

    @property
    def training(self) -> TrainingSpec:
        return self.job.training


class NotExchangedError(Exception):
    """A part that is not exchanged, and why."""

    def __init__(self, code: Literal["nothing_to_exchange", "not_exchangeable"], reason: str) -> None:
        super().__init__(reason)
        self.code: Literal["nothing_to_exchange", "not_exchangeable"] = code
        self.reason = reason


class Exchanged(NamedTuple):
    """A setup with a part exchanged, what for, and the parts that had to be exchanged with it."""

    setup: Setup
    exchanged_for: str
    contains: tuple[Part, ...] = ()


class BudgetSpentError(Exception):
    """The run's budget ended within a training."""


def setup_of(job: TrainJob, task: Task, updates: int | None = None) -> Setup:
    """The stage's training; it ends after so many `updates`, if given. A pause of one continued run counts as a
    training on the stage's rows.

    Compiled updates have equal values, and every part would have to be compiled again.
    """
    spec = job.training.model_copy(update={"compile": False, "profile": None})
    job = job.model_copy(
        update={
            "training": spec, "kept_features": None, "start": None,
            "stages": job.stages.model_copy(update={"mode": "restart"}),
        }
    )  # fmt: skip
    training = chosen_rows(job)[0]
    judged = read_rows(job.validation_file, job.rows, (job.rows.weight,) if job.rows.weight else ())
    setup = Setup(task, job, (Fold(training, judged),), planned=0, updates=0)
    planned = plan_of(setup, len(training), None).last_step
    # The update that an alarm kept from the weights is tried again.
    return replace(setup, planned=planned, updates=planned if updates is None else min(planned, updates + MIN_STEPS))


def plan_of(setup: Setup, rows: int, prepared: Prepared | None) -> Plan:
    """The plan over so many rows: of the setup's number of updates, once that is known."""
    oversampled = None if prepared is None else prepared.oversampled
    # All of the fold's rows: what a stage takes of them was taken.
    plan = make_plan(rows, setup.training, setup.job.stages, "full", oversampled)
    planned = setup.planned or plan.last_step
    return plan.model_copy(update={"horizon_steps": planned, "last_step": setup.updates or planned})


@dataclass(frozen=True)
class Judged:
    """The kind's loss of each validation row, `(N,)`, in the order of the folds, and the rows' groups."""

    losses: np.ndarray
    groups: np.ndarray


def judged_training(setup: Setup, device: str) -> Judged:
    """Train every fold as declared, and judge its rows. An answer that is not finite counts as the best constant.

    Raises what the functions raise.
    """
    parts = [_judged_fold(setup, fold, device) for fold in setup.folds]
    groups = pd.concat([fold.judged[setup.job.rows.group] for fold in setup.folds]).to_numpy()
    return Judged(np.concatenate(parts), groups)


def _judged_fold(setup: Setup, fold: Fold, device: str) -> np.ndarray:
    job, kind = setup.job, setup.kind
    prepared = prepare_rows(job, setup.task, "", fold.training, device)
    state = trained(setup, prepared, device)
    features = fold.judged[list(job.rows.features)]
    answers = predict_rows(setup.task, state.model, prepared.preprocessing, features, device, kind)
    answers = as_trained_for(kind, answers, prepared.raised, job.training.focal_gamma)
    prior = kind.prior(kind.checked_labels(fold.training[job.rows.label].to_numpy()))
    unknown = ~np.isfinite(answers).reshape(len(answers), -1).all(axis=1)
    answers[unknown] = prior
    return kind.row_loss(*kind.checked(fold.judged[job.rows.label].to_numpy(), answers))


def trained(setup: Setup, prepared: Prepared, device: str, updates: int = 0) -> TrainState:
    """The training's last weights, as they would be validated; after so many `updates`, if not all of them.

    Loss or gradient that is not finite ends it, with the weights before. Raises BudgetSpentError.
    """
    job, spec = setup.job, setup.training
    plan = plan_of(setup, len(prepared.rows), prepared)
    recipe = make_recipe(prepared.task, spec, plan.horizon_steps)
    seed_everything(spec.seed)
    model = make_model(prepared.task, prepared.preprocessing, job.hyperparameters, spec).to(device)
    state = TrainState(model, make_optimizers(prepared.task, model, spec.optimizer))
    state.also |= make_parts(spec, model, lambda: make_validation_loss(job, prepared, model, device))
    data = prepared.data
    if isinstance(data, LoadedRows):
        data, recipe = data.in_loaders(recipe)

    def ends(state: TrainState, update: Any) -> bool:
        if job.ends_at is not None and time.time() > job.ends_at:
            raise BudgetSpentError
        return after_update(state, plan.last_step, moved=not update.skipped) or state.step == updates

    train(state, data, plan, recipe, ends)
    put_final_weights(state)
    return state


def mean_loss(setup: Setup, prepared: Prepared, state: TrainState, rows: torch.Tensor) -> float:
    """The training's own loss of some of its rows, in evaluation mode."""
    state.model.eval()
    with torch.no_grad():
        data = prepared.data.take(rows).to(next(state.model.parameters()).device)
        losses = setup.task.loss_fn(state.model(data.inputs), data.targets).float()
    return float((losses if data.weights is None else losses * data.weights).mean())


def fresh(setup: Setup, most: int, device: str) -> tuple[nn.Module, TrainData]:
    """A fresh model, and so many of the training rows, evenly over all of them, as it takes them."""
    training = setup.folds[0].training
    few = training.iloc[evenly_spaced(len(training), most)].reset_index(drop=True)
    prepared = prepare_rows(setup.job, setup.task, "", few, device)
    seed_everything(setup.training.seed)
    model = make_model(setup.task, prepared.preprocessing, setup.job.hyperparameters, setup.training)
    return model, prepared.data.take(torch.arange(len(few))).to(device)
