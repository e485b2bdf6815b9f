"""A TrainerCallback for transformers: it tells the session each update, has checkpoints saved, and ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
from transformers.trainer_utils import IntervalStrategy  # pyright: ignore[reportMissingImports]

from trainworthy.lifecycle.engine.trainers.session import TrainingSession

FOLDER = "checkpoint"


# Where the package is not installed, the type checker takes this very file for it.
class TrainworthyCallback(TrainerCallback):  # pyright: ignore[reportGeneralTypeIssues]
    """Give it to the Trainer's callbacks, and its `resume_from` to train.

    The Trainer tells losses only in its log, so every update is logged; gradients are looked at before the update. They
    are clipped by then: their norm before that is in the log, too.
    """

    def __init__(self, session: TrainingSession) -> None:
        self.session = session
        self._saving = False

    @property
    def resume_from(self) -> str | None:
        """The newest sound checkpoint, from which train goes on; None if there is none."""
        newest = self.session.newest
        return None if newest is None else str(newest / FOLDER)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        args.logging_strategy, state.logging_steps = IntervalStrategy.STEPS, 1
        # Else a loss that is not finite is told as the mean of those before.
        args.logging_nan_inf_filter = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.session.waited()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.session.look(kwargs["model"], optimizer=kwargs["optimizer"], scaled=bool(args.fp16))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not logs or "loss" not in logs:
            return
        rows = args.train_batch_size * args.gradient_accumulation_steps
        self.session.step(
            loss=logs["loss"], rows=rows, model=kwargs["model"], learning_rate=logs.get("learning_rate"),
            scaled=bool(args.fp16), grad_norm=logs.get("grad_norm"),
        )  # fmt: skip
        self._saving = self.session.checkpoint_due
        control.should_training_stop = control.should_training_stop or self.session.should_stop
        control.should_save = control.should_save or self._saving

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._saving:
            return
        self._saving = False
        with self.session.checkpoint_files(model=kwargs["model"]) as folder:
            # Each of several processes has files of its own there, and the first one the model. The script's folder may
            # lie on another file system.
            written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.copytree(written, folder / FOLDER, dirs_exist_ok=True)
            shutil.rmtree(written)
