"""What a script gives to its handle, looked at before it is used: a wrong kind is told with what to give instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.errors import CheckpointError, TrainingError

Rows = int | Tensor | np.ndarray | Sequence[int] | None

ROWS_FIX = (
    "give how many rows there were, or their numbers: integers in a list, or a tensor or array of one dimension; of a "
    "mask, mask.nonzero()[:, 0]"
)


def loss_of(loss: float | Tensor) -> float:
    """The number. Raises TrainingError if it is none, or several."""
    if isinstance(loss, torch.Tensor):
        if loss.numel() != 1:
            shape = tuple(loss.shape)
            raise TrainingError(
                "session.step was given several losses", value=shape, fix="give their mean: loss.mean()"
            )
        return float(loss.detach())
    if not isinstance(loss, Real):
        raise _wrong("loss", loss, "give the mean loss of the update's rows, a number or a tensor of one")
    return float(loss)


def count_of(rows: Rows) -> int:
    """How many rows; 0 if that is not told. Raises TrainingError unless they are a number, or numbers of rows."""
    if rows is None:
        return 0
    if isinstance(rows, Integral) and not isinstance(rows, bool):
        return int(rows)
    if not _are_numbers(rows):
        raise _wrong("rows", rows, ROWS_FIX)
    return len(rows)


def numbers_of(rows: Rows) -> tuple[int, ...]:
    """The numbers of rows that count_of has taken; none where it was only told how many."""
    if rows is None or isinstance(rows, int | Integral):
        return ()
    numbers: Sequence[int] = rows if isinstance(rows, Sequence) else rows.tolist()
    return tuple(map(int, numbers))


def _are_numbers(rows: object) -> TypeGuard[Tensor | np.ndarray | Sequence[int]]:
    """True of one dimension of whole numbers. A mask of rows is none: it would be taken for rows 0 and 1."""
    if isinstance(rows, torch.Tensor):
        no_numbers = rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool
        return rows.dim() == 1 and not no_numbers
    if isinstance(rows, np.ndarray):
        return rows.ndim == 1 and rows.dtype.kind in "iu"
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        return False
    # By kinds: to ask each of 4096 numbers whether it is one takes ten times as long.
    return all(issubclass(kind, Integral) and kind is not bool for kind in set(map(type, rows)))


def require_module(model: object) -> None:
    """Raises TrainingError unless it is a module."""
    if not isinstance(model, torch.nn.Module):
        raise _wrong("model", model, "give the torch.nn.Module that is trained")


def optimizers_of(optimizer: Any) -> tuple[torch.optim.Optimizer, ...]:
    """One or several as a tuple. Raises TrainingError if one has no param_groups."""
    if optimizer is None:
        return ()
    found = tuple(optimizer) if isinstance(optimizer, Sequence) else (optimizer,)
    for one in found:
        if not hasattr(one, "param_groups"):
            raise _wrong("optimizer", one, "give the torch optimizer, or a list of all of them")
    return found


def require_parts(parts: Mapping[str, object]) -> None:
    """Raises CheckpointError if one has no state_dict and load_state_dict."""
    for name, part in parts.items():
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise CheckpointError(
                f"the part {name} of a checkpoint has no state_dict and load_state_dict", value=type(part).__name__,
                fix="give modules, optimizers, schedules; the number of updates is kept already: resume returns it",
            )  # fmt: skip


def _wrong(name: str, given: object, fix: str) -> TrainingError:
    return TrainingError(f"session.step was given no {name}", value=type(given).__name__, fix=fix)
