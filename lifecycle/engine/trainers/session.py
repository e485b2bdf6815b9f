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

import io
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.trainers.checkpoints import FILES, SESSION, ScriptCheckpoints
from trainworthy.lifecycle.engine.trainers.given import Given
from trainworthy.lifecycle.engine.trainers.gradients import unclipped
from trainworthy.lifecycle.engine.trainers.logbook import Logbook, UpdateReport
from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.random_state import random_state, restore_random, seed_all
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.state import Stateful
from trainworthy.lifecycle.engine.training.watching.clock import COMPUTE, DATA
from trainworthy.lifecycle.errors import CheckpointError, TrainingError
from trainworthy.lifecycle.plan import step_seed

_KEEPS = "keep plain values and tensors in state_dict()"


def save_parts(path: Path, parts: Mapping[str, Stateful], other_random: Sequence[bytes] = ()) -> None:
    """Write the parts' state and the random numbers, of `other_random` as packed_random gives them.

    Raises CheckpointError if it can't be written as a file.
    """
    saved = {
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "random": random_state(), "random_of_others": [_unpacked(packed) for packed in other_random],
    }  # fmt: skip
    try:
        torch.save(saved, path)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise CheckpointError("the checkpoint holds more than plain values", value=str(error), fix=_KEEPS) from None


def load_parts(path: Path, parts: Mapping[str, Stateful], rank: int = 0, seed: int = 0) -> None:
    """Load what save_parts wrote, with the random numbers of this rank; of one that was not there, drawn by its number.

    Raises CheckpointError if it holds other parts, or more than plain values.
    """
    try:
        loaded = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        fix = "go on from the files in session.newest, as they were saved"
        raise CheckpointError(
            "the checkpoint was not written by session.checkpoint", value=str(path), fix=fix
        ) from None
    except pickle.UnpicklingError as error:
        raise CheckpointError("the checkpoint holds more than plain values", value=str(error), fix=_KEEPS) from None
    if loaded["parts"].keys() != parts.keys():
        difference = f"{sorted(loaded['parts'])} instead of {sorted(parts)}"
        fix = "give resume and checkpoint the same parts, or delete this folder"
        raise CheckpointError("the checkpoint holds other parts than this training has", value=difference, fix=fix)
    for name, part in parts.items():
        part.load_state_dict(loaded["parts"][name])
    drawn = [loaded["random"], *loaded.get("random_of_others", ())]
    if rank < len(drawn):
        restore_random(drawn[rank])
    else:
        seed_all(step_seed(seed, 0, -rank))


def packed_random() -> bytes:
    """The random numbers of this process."""
    content = io.BytesIO()
    torch.save(random_state(), content)
    return content.getvalue()


def _unpacked(content: bytes) -> dict[str, Any]:
    return torch.load(io.BytesIO(content), weights_only=True)


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
    optimizers = tuple(optimizer) if isinstance(optimizer, Sequence) else (optimizer,)
    for candidate in optimizers:
        if not hasattr(candidate, "param_groups"):
            raise _wrong("optimizer", candidate, "give the torch optimizer, or a list of all of them")
    return optimizers


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


Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None

STATE_FILE = "state.pt"


class TrainingSession(Given):
    """The handle of a script's only process, or the ground of the first one's (ranks.py)."""

    def __init__(
        self, log: Logbook, prepared: Prepared, checkpoints: ScriptCheckpoints, device: str, ranks: Ranks | None = None
    ) -> None:  # fmt: skip
        super().__init__(log.session.job, log.session.plan, prepared, device, ranks)
        self._log, self._checkpoints = log, checkpoints
        self._newest: Path | None = None
        self._looked = False

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
        self._tell(loss_of(loss), count_of(rows), rows, model, optimizer, learning_rate, scaled, grad_norm)

    def _tell(
        self, loss: float, count: int, rows: Rows, model: torch.nn.Module | None, optimizer: Optimizers,
        learning_rate: float | None, scaled: bool, grad_norm: float | Tensor | None,
    ) -> None:  # fmt: skip
        """As `step`, with the mean loss of `count` rows."""
        report = UpdateReport(
            loss=loss,
            # 0 where a callback could not count them.
            rows=count or self.batch_size,
            rate=_rate(optimizer) if learning_rate is None else learning_rate,
            numbers=lambda: self._numbers(rows),
            optimizers=optimizers_of(optimizer),
        )
        if model is not None:
            require_module(model)
        if model is not None and self._log.gradients is None:
            self._log.look(model, report, scaled)
        if grad_norm is not None and self._log.gradients is not None:
            self._log.gradients = unclipped(self._log.gradients, float(grad_norm))
        elif grad_norm is not None and model is None:
            self._log.hear_norm(report, float(grad_norm), scaled)
        self._log.tell(model, report)
        self._checkpoints.schedule.updated()

    def look(self, model: torch.nn.Module, *, optimizer: Optimizers = None, scaled: bool = False) -> None:
        """Look at the gradients before the update, where its loss is told only afterwards. Raises as `step`."""
        require_module(model)
        report = UpdateReport(None, self.batch_size, _rate(optimizer), optimizers=optimizers_of(optimizer))
        self._log.look(model, report, scaled)

    @property
    def should_stop(self) -> bool:
        """True if the script has to end its loop: it was asked to, all planned updates are made, or no budget is left.

        Its end goes on as usual: it writes a checkpoint if one is due, and returns its model. A request to end that
        comes after the update's checkpoint shows after the next update, which then has one.
        """
        self._log.heart.called()
        return self._log.session.ended is not None

    def ask(self) -> None:
        """Ask anew whether the training was asked to end, where a script leaves its loop by itself.

        Of several processes each has to call it; `checkpoint_due` and `should_stop` are theirs from then on.
        """
        self._log.must_end()

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
            newest = self._checkpoints.newest()
            self._log.begin(None if newest is None else _reported_state(newest))
            self._newest = None if newest is None else newest / FILES
        return self._newest

    def resume(self, **parts: Stateful) -> int:
        """Load what `checkpoint` wrote into the parts, and the random numbers; the updates that were made by then.

        0 if there is no checkpoint. Raises CheckpointError if it holds other parts.
        """
        require_parts(parts)
        if self.newest is not None:
            load_parts(self.newest / STATE_FILE, parts, self.rank, self.seed)
        return self.done

    def _numbers(self, rows: Rows) -> tuple[int, ...]:
        """Numbers of rows that were told by number; none if these are no numbers of the stage's rows."""
        numbers = numbers_of(rows)
        return numbers if all(0 <= number < len(self._prepared.rows) for number in numbers) else ()


def _rate(optimizer: Optimizers) -> float:
    """The first one's; 0 if none is told."""
    return next((float(torch_optimizer.param_groups[0]["lr"]) for torch_optimizer in optimizers_of(optimizer)), 0.0)


def _reported_state(checkpoint: Path) -> dict[str, object]:
    """What the training had told by then. Raises CheckpointError for a checkpoint of before it was written so."""
    path = checkpoint / SESSION
    if not path.is_file():
        problem = "the checkpoint was written by an earlier Trainworthy, and a script cannot go on from it"
        raise CheckpointError(problem, value=str(checkpoint), fix="delete this folder: the stage starts anew")
    return json.loads(path.read_text())
