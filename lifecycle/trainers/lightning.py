"""A callback for Lightning: it tells the session each update, writes checkpoints when due, and ends the training.

Beside `lightning` it works with `pytorch_lightning`, the same under another name: whichever is imported first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.engine.trainers.session import TrainingSession
from trainworthy.lifecycle.engine.training.random_state import random_state, restore_random
from trainworthy.lifecycle.errors import TrainingError

if TYPE_CHECKING or "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback  # pyright: ignore[reportMissingImports]
else:
    from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    from torch import Tensor

FILE = "lightning.ckpt"


class TrainworthyCallback(Callback):
    """Give it to the Trainer's callbacks, and its `ckpt_path` to fit.

    The Trainer keeps its own state_dict, without the session. With several optimizers, the updates that they
    make of one batch count as one. Its checkpoints have the first process's random numbers, which Lightning's lack.
    """

    def __init__(self, session: TrainingSession) -> None:
        super().__init__()
        self.session = session
        self._losses: list[Tensor] = []
        self._rows, self._told = 0, False
        self._random: dict[str, Any] | None = None

    @property
    def ckpt_path(self) -> str | None:
        """The newest sound checkpoint, from which fit goes on; None if there is none."""
        newest = self.session.newest
        return None if newest is None else str(newest / FILE)

    def state_dict(self) -> dict[str, Any]:
        return {"random": random_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Those of the others are not in the file.
        self._random = None if self.session.rank else state_dict["random"]

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._random is not None:
            # Not as they are loaded: Lightning and its loaders draw some until the first batch.
            restore_random(self._random)
            self._random = None
        self.session.waited()
        self._rows += _rows(batch)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        # Lightning has divided it by accumulate_grad_batches, and in fp16 multiplied it by the scale.
        scaler = _scaler(trainer)
        self._losses.append(loss.detach() if scaler is None else loss.detach() / scaler.get_scale())

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self._told:
            return
        self._told, scaled = True, _scaler(trainer) is not None
        if not self._losses:
            raise TrainingError(
                "TrainworthyCallback saw no loss before the update",
                fix="return the loss from training_step, or use self.manual_backward(loss)",
            )
        loss = sum(self._losses)
        self.session.step(loss=loss, rows=self._rows, model=pl_module, optimizer=trainer.optimizers, scaled=scaled)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not self._told:
            return
        self._losses, self._rows, self._told = [], 0, False
        self._save_if_due(trainer, pl_module)
        trainer.should_stop = trainer.should_stop or self.session.should_stop

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        # Lightning leaves its loop by SystemExit if SIGTERM comes between a batch's end and the next one.
        if isinstance(exception, SystemExit) and not self._told:
            self.session.ask()
            self._save_if_due(trainer, pl_module)

    def _save_if_due(self, trainer: Any, pl_module: Any) -> None:
        if self.session.checkpoint_due:
            with self.session.checkpoint_files(model=pl_module) as folder:
                trainer.save_checkpoint(Path(folder) / FILE)


def _rows(batch: Any) -> int:
    """Rows of a batch: the length of the first tensor in it; 0 if there is none."""
    import torch

    if torch.is_tensor(batch):
        return len(batch) if batch.ndim else 1
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((count for count in map(_rows, parts) if count), 0)


def _scaler(trainer: Any) -> Any:
    return getattr(trainer.precision_plugin, "scaler", None)
