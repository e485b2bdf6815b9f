"""The handle that a use case's own training script is given: what it trains on, and whom it tells of its updates.

    first = session.resume(model=model, optimizer=optimizer)
    for step in range(first, session.steps):
        ...
        loss.backward()
        session.step(loss=loss, rows=len(batch), model=model, optimizer=optimizer)
        optimizer.step()
        session.checkpoint(model=model, optimizer=optimizer)
        if session.should_stop:
            break

Told between backward and the update, a loss or gradient that is not finite ends the training before it reaches the
weights. The callbacks for Lightning and transformers (lightning.py, transformers.py) make these calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.trainers.checkpoints import FILES, SESSION, ScriptCheckpoints
from trainworthy.lifecycle.engine.trainers.given import (
    Rows,
    count_of,
    loss_of,
    numbers_of,
    optimizers_of,
    require_module,
    require_parts,
)
from trainworthy.lifecycle.engine.trainers.gradients import unclipped
from trainworthy.lifecycle.engine.trainers.logbook import Logbook, Told
from trainworthy.lifecycle.engine.trainers.state_file import load_parts, save_parts
from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.state import Stateful, TrainData
from trainworthy.lifecycle.engine.training.watching.clock import COMPUTE, DATA
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.files.values import as_texts
from trainworthy.lifecycle.spec.training import TrainingSpec

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None

STATE_FILE = "state.pt"


class TrainingSession:
    """One stage of a training by a script of the use case's own.

    `stage` is smoke, pilot or full, `device` cpu or cuda. `steps` are the updates that use_case.yaml plans (epochs and
    batch_size), each of `batch_size` rows. `training` and `hyperparameters` are its sections: what of them has an
    effect is up to the script. `seed` has seeded torch, numpy and random. `preprocessing` was learned from the stage's
    rows. `inputs` are these rows as to_tensors gives them, each (N, ...), `targets` their labels as loss_fn gets
    them, (N, ...) float32 or int64 (Task.loss_fn in lifecycle/task.py); both on the device. `has_weights`: rows do not
    count the same.
    """

    def __init__(self, log: Logbook, prepared: Prepared, checkpoints: ScriptCheckpoints, device: str) -> None:
        self._log, self._prepared, self._checkpoints = log, prepared, checkpoints
        self._newest: Path | None = None
        self._looked = False
        self.read_weights = False
        job, data = log.session.job, _whole(prepared)
        self.stage, self.device, self.seed = job.stage, device, job.training.seed
        self.steps, self.batch_size = log.session.plan.last_step, log.session.plan.batch_size
        self.training: TrainingSpec = job.training
        self.hyperparameters, self.preprocessing = job.hyperparameters, prepared.preprocessing
        self.inputs, self.targets, self.has_weights = data.inputs, data.targets, data.weights is not None

    @property
    def weights(self) -> Tensor | None:
        """Each row's weight, (N,) of mean 1; None where every row counts the same. Once read, they count as used."""
        self.read_weights = True
        return _whole(self._prepared).weights

    @property
    def folder(self) -> Path:
        """For files of the script's own; it outlives an interruption."""
        made = Path(self._log.session.job.out) / "script"
        made.mkdir(parents=True, exist_ok=True)
        return made

    def parquet(self) -> Path:
        """The stage's rows as a Parquet file of features and label; files by their absolute paths, as texts."""
        path, rows = self.folder / "rows.parquet", self._log.session.job.rows
        as_texts(self._prepared.rows[[*rows.features, rows.label]]).to_parquet(path, index=False)
        return path

    @property
    def done(self) -> int:
        """Updates that were told so far, those before an interruption among them."""
        return self._log.done

    def step(
        self,
        loss: float | Tensor,
        *,
        rows: Rows = None,
        model: torch.nn.Module | None = None,
        optimizer: Optimizers = None,
        learning_rate: float | None = None,
        scaled: bool = False,
        grad_norm: float | Tensor | None = None,
    ) -> None:
        """Tell an update after its backward pass: the mean loss of its rows, and how many there were or their numbers.

        Of `model` the gradients are looked at, and the weights hashed for the rerun that reproducibility asks for; with
        the `optimizer`, one or several, also what some updates change, and activations.
        `scaled`: a scaler leaves out updates whose gradients overflow, so that these are no alarm. `grad_norm`: that of
        all gradients before they were clipped, where they are told clipped. Raises TrainingEndedError if loss or
        gradient is not finite, and if the script goes on after should_stop.
        """
        told = Told(
            loss=loss_of(loss),
            # 0 where a callback could not count them.
            rows=count_of(rows) or self.batch_size,
            rate=_rate(optimizer) if learning_rate is None else learning_rate,
            numbers=lambda: self._numbers(rows),
            optimizers=optimizers_of(optimizer),
        )
        if model is not None:
            require_module(model)
        if model is not None and self._log.gradients is None:
            self._log.look(model, told, scaled)
        if grad_norm is not None and self._log.gradients is not None:
            self._log.gradients = unclipped(self._log.gradients, float(grad_norm))
        self._log.tell(model, told)
        self._checkpoints.schedule.updated()

    def look(self, model: torch.nn.Module, *, optimizer: Optimizers = None, scaled: bool = False) -> None:
        """Look at the gradients before the update, where its loss is told only afterwards. Raises as `step`."""
        require_module(model)
        told = Told(None, self.batch_size, _rate(optimizer), optimizers=optimizers_of(optimizer))
        self._log.look(model, told, scaled)

    @property
    def should_stop(self) -> bool:
        """True if the script has to end its loop: it was asked to, all planned updates are made, or no budget is left.

        Its end goes on as usual: it writes a checkpoint if one is due, and returns its model. A request to end that
        comes after the update's checkpoint shows after the next update, which then has one.
        """
        self._log.heart.called()
        return self._log.session.ended is not None

    def waited(self) -> None:
        """What passed since the last update, checkpoint or call of this was waiting for rows."""
        self._log.heart.called()
        self._log.session.clock.lap(DATA)

    @property
    def checkpoint_due(self) -> bool:
        """True if a checkpoint should be written after this update: it pays, or the training ends before its plan."""
        if not self.done or self._checkpoints.step == self.done:
            return False
        ends = self._log.must_end() and self._log.session.ended in ("asked", "budget", "rerun")
        return ends or self._checkpoints.due(self.done)

    def checkpoint(self, **parts: Stateful) -> None:
        """Write a checkpoint of the parts' state_dict() and the random numbers, if one is due."""
        require_parts(parts)
        if self.checkpoint_due:
            self._log.refuse_spoiled(*parts.values())
            with self.checkpoint_files() as folder:
                save_parts(folder / STATE_FILE, parts)

    @contextmanager
    def checkpoint_files(self, model: object = None) -> Iterator[Path]:
        """A folder to save any files into; they are a checkpoint once the block has ended without an error.

        Raises TrainingEndedError if weights of the `model`, or of one that was told, are not finite: none such is ever
        written.
        """
        self._log.session.clock.lap(COMPUTE)
        self._log.refuse_spoiled(model)
        with self._checkpoints.writing(self.done, self._log.state()) as folder:
            yield folder
        self._log.heart.called()
        self._log.session.deadline.saved(self._checkpoints.seconds)
        self._log.session.clock.checkpoint_saved(self.done)

    @property
    def newest(self) -> Path | None:
        """The files of the newest sound checkpoint, for the script to go on from; None if there is none.

        Whoever asks goes on from it: `done` and the curve are that checkpoint's from then on.
        """
        if not self._looked:
            self._looked = True
            found = self._checkpoints.newest()
            self._log.begin(None if found is None else _told(found))
            self._newest = None if found is None else found / FILES
        return self._newest

    def resume(self, **parts: Stateful) -> int:
        """Load what `checkpoint` wrote into the parts, and the random numbers; the updates that were made by then.

        0 if there is no checkpoint. Raises CheckpointError if it holds other parts.
        """
        require_parts(parts)
        if self.newest is not None:
            load_parts(self.newest / STATE_FILE, parts)
        return self.done

    def _numbers(self, rows: Rows) -> tuple[int, ...]:
        """Numbers of rows that were told by number; none if these are no numbers of the stage's rows."""
        numbers = numbers_of(rows)
        return numbers if all(0 <= number < len(self._prepared.rows) for number in numbers) else ()


def _rate(optimizer: Optimizers) -> float:
    """The first one's; 0 if none is told."""
    return next((float(one.param_groups[0]["lr"]) for one in optimizers_of(optimizer)), 0.0)


def _whole(prepared: Prepared) -> TrainData:
    # use_case.py refuses tensors: per_batch beside a trainer.
    assert isinstance(prepared.data, TrainData)
    return prepared.data


def _told(checkpoint: Path) -> dict[str, object]:
    """What the training had told by then. Raises CheckpointError for a checkpoint of before it was written so."""
    path = checkpoint / SESSION
    if not path.is_file():
        told = "the checkpoint was written by an earlier Trainworthy, and a script cannot go on from it"
        raise CheckpointError(told, value=str(checkpoint), fix="delete this folder: the stage starts anew")
    return json.loads(path.read_text())
