"""Rows that become tensors batch by batch, in processes of their own, while the loop computes.

`training.tensors: per_batch` is for rows that must be decoded, or whose tensors do not fit into memory together. A
loader makes the whole batch of a step, with the use case's own to_tensors and augment, so that nothing is written twice
for training and serving. All that it draws is seeded by (seed, step): any number of loaders, before and after a
resume, gives the same bits, and the same as whole tensors where to_tensors draws nothing and the device is the CPU.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainworthy.lifecycle.engine.training.random_state import seed_all
from trainworthy.lifecycle.engine.training.state import Augment, Inputs, Recipe, Share, TrainData, whole
from trainworthy.lifecycle.error_causes import BatchError, storage_errno
from trainworthy.lifecycle.plan import Plan, step_seed
from trainworthy.lifecycle.processor import usable_cores
from trainworthy.lifecycle.task import line_of

# Batches that a loader keeps ready: one that took longer than usual is made up for.
AHEAD = 2
MOST_LOADERS = 8


class FileTargets:
    """Targets of rows whose labels are files: read when rows are asked for, where whole ones would fill the memory.

    It has what a tensor of them is asked here: its length, its device, and rows by their numbers. `read` gives what
    loss_fn gets of some rows.
    """

    def __init__(self, rows: int, read: Callable[[np.ndarray], np.ndarray]) -> None:
        self.rows, self.read, self.device = rows, read, torch.device("cpu")

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self.read(rows.numpy()))


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """Training rows as features of the snapshot; `to_tensors`, of a model.py in `folder`, makes inputs of some of them.

    `targets` (FileTargets of labels that are files) and `weights` are as in TrainData, on the CPU. `augment` changes a
    batch in its `parts`, as the loop would: `in_loaders` takes it from there.
    """

    to_tensors: Callable[[pd.DataFrame], Inputs]
    folder: Path
    features: pd.DataFrame
    targets: Tensor
    device: str
    loaders: int
    seed: int
    weights: Tensor | None = None
    augment: Augment | None = None
    parts: int = 1
    rank: int = 0

    def in_loaders(self, recipe: Recipe, rank: int = 0) -> tuple[LoadedRows, Recipe]:
        """These rows with the recipe's augmentation in the loaders, and the recipe without it."""
        rows = replace(self, augment=recipe.augment, parts=recipe.accumulate, rank=rank)
        return rows, replace(recipe, augment=None)

    def batches(self, plan: Plan, first_step: int, share: Share = whole) -> Generator[tuple[TrainData, Tensor]]:
        """Data of each step's share from `first_step` on, and the numbers of its rows therein: all of them, in order.

        Raises BatchError.
        """
        # Its own generator: without one, DataLoader draws from torch's, and a resumed run would go on with others.
        loader = DataLoader(
            cast("Dataset[Any]", _Batches(self)),
            batch_size=None,
            # Numbers go to the loaders: the order of an epoch, 8 bytes a row, is not made in each of them once more.
            sampler=((step, share(plan.batch(step)).numpy()) for step in range(first_step, plan.last_step)),
            num_workers=self.loaders,
            prefetch_factor=AHEAD,
            # Rows and functions are handed over by the fork, and never pickled.
            multiprocessing_context="fork",
            pin_memory=self.device == "cuda",
            worker_init_fn=_begin,
            generator=torch.Generator().manual_seed(self.seed),
        )
        for made in loader:
            if isinstance(made, _Failed):
                raise BatchError(made.message) from made.cause
            inputs, targets, weights = made
            data = TrainData(inputs, targets, weights).to(self.device)
            yield data, torch.arange(len(targets), device=self.device)

    def take(self, rows: Tensor) -> TrainData:
        """Some rows by their numbers, made here on the CPU, without augmentation."""
        weights = None if self.weights is None else self.weights[rows]
        return TrainData(self.to_tensors(self.features.iloc[rows.numpy()]), self.targets[rows], weights)


def usual_loaders() -> int:
    """One core is the loop's, and the others make batches; one loader at least."""
    return max(1, min(MOST_LOADERS, usable_cores() - 1))


@dataclass(frozen=True)
class _Failed:
    """What a loader tells of an error, and what decides its class: errors themselves may not survive the way.

    `errno` is storage_errno's.
    """

    message: str
    memory: bool
    errno: int | None

    @property
    def cause(self) -> Exception | None:
        return MemoryError() if self.memory else None if self.errno is None else OSError(self.errno, self.message)


@dataclass(frozen=True, eq=False)
class _Batches:
    """Batches by their step and the numbers of their rows, as DataLoader asks for them in a loader."""

    rows: LoadedRows

    def __getitem__(self, request: tuple[int, np.ndarray]) -> tuple[Inputs, Tensor, Tensor | None] | _Failed:
        try:
            return self._made(*request)
        except Exception as error:
            # Raised here, it would reach the training as a page of text without its traceback.
            message = f"{type(error).__name__}: {error} ({line_of(error, self.rows.folder)})"
            return _Failed(message, isinstance(error, MemoryError), storage_errno(error))

    def _made(self, step: int, numbers: np.ndarray) -> tuple[Inputs, Tensor, Tensor | None]:
        seed = step_seed(self.rows.seed, step, self.rows.rank)
        # Every generator that to_tensors may draw from; a loader has no other use for them.
        seed_all(seed)
        taken = self.rows.take(torch.from_numpy(numbers))
        if self.rows.augment is None:
            return taken.inputs, taken.targets, taken.weights
        # As the loop does it: one generator a step, one part after the other.
        generator = torch.Generator().manual_seed(seed)
        parts = torch.arange(len(taken.targets)).tensor_split(min(self.rows.parts, len(taken.targets)))
        changed = [
            self.rows.augment(
                {name: tensor[part] for name, tensor in taken.inputs.items()}, taken.targets[part], generator
            )
            for part in parts
        ]
        inputs = {name: torch.cat([inputs[name] for inputs, _ in changed]) for name in changed[0][0]}
        return inputs, torch.cat([targets for _, targets in changed]), taken.weights


def _begin(number: int) -> None:
    """A loader outlives the signals that ask its parent to end: the parent first goes to a step's boundary.

    It ends when the parent says so, and some seconds after the parent is gone.
    """
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, signal.SIG_IGN)
