"""The parts of a state that only some trainings have: made as declared, moved by an update, and used at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch

from trainworthy.lifecycle.engine.training.state import Stateful, TrainState
from trainworthy.lifecycle.engine.training.techniques.average import Average
from trainworthy.lifecycle.engine.training.techniques.early_stopping import EarlyStopping
from trainworthy.lifecycle.engine.training.techniques.scaler import scaler_of
from trainworthy.lifecycle.spec.training import TrainingSpec


def make_parts(
    training: TrainingSpec, model: torch.nn.Module, make_loss: Callable[[], Callable[[], float]]
) -> dict[str, Stateful]:
    """What the training declares, by name: scaler, average, early_stopping.

    `make_loss` makes what early stopping evaluates, and is called only where it is declared.
    """
    parts: dict[str, Stateful] = {**scaler_of(training.precision)}
    if training.ema is not None:
        parts["average"] = Average(model, training.ema.decay)
    if training.early_stopping is not None:
        parts["early_stopping"] = EarlyStopping(training.early_stopping, make_loss())
    return parts


def after_update(state: TrainState, last_step: int, moved: bool = True) -> bool:
    """Move the parts on by an update, if it `moved` the weights; True if early stopping ends the training here."""
    average, stopping = average_of(state), early_stopping_of(state)
    if moved:
        move_average(state)
    if stopping is None or (state.step % stopping.spec.every and state.step < last_step):
        return False
    with nullcontext() if average is None else average.in_place_of(state.model):
        return stopping.look(state.weights, state.step)


def move_average(state: TrainState) -> None:
    """Move the average of the weights on by an update, where there is one."""
    if (average := average_of(state)) is not None:
        average.update(state.model)


def put_final_weights(state: TrainState) -> None:
    """The weights that are validated and shipped, in place of the last ones: the best evaluation's, else the average.

    The best evaluation was of the average, where there is one.
    """
    average, stopping = average_of(state), early_stopping_of(state)
    if stopping is not None and stopping.weights:
        state.model.load_state_dict(stopping.weights)
    elif average is not None:
        average.write_to(state.model)


def part_notes(state: TrainState, last_step: int) -> tuple[str, ...]:
    """What the parts did, in words."""
    stopping, notes = early_stopping_of(state), []
    if stopping is not None:
        ended = f"ended at step {state.step}" if stopping.ended else "never ended the training"
        if last_step <= stopping.spec.min_steps:
            ended = f"could not end it, since min_steps is {stopping.spec.min_steps}"
        notes.append(f"early stopping {ended}; {stopping.summary}")
    if state.scaler is not None:
        left_out = f"{state.scaler.overflows} updates overflowed in fp16 and were left out"
        notes.append(f"{left_out}; the loss scale ended at {state.scaler.scale:g}")
    return tuple(notes)


def early_stopping_of(state: TrainState) -> EarlyStopping | None:
    stopping = state.also.get("early_stopping")
    return stopping if isinstance(stopping, EarlyStopping) else None


def average_of(state: TrainState) -> Average | None:
    average = state.also.get("average")
    return average if isinstance(average, Average) else None
