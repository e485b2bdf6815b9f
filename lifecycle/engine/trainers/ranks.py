"""The handle of a script that several processes run, each with its share of an update's rows.

Every process calls the handle alike. The first one's tells the session, as that of an only process does; before any
call returns, all processes hear what came of it: whether the training has ended, why, and whether a checkpoint is due.
So all of them leave their loops at the same update.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.trainers.agreement import (
    ASK,
    CHECKPOINT,
    FILES,
    LOOK,
    NEWEST,
    STEP,
    Decision,
    SameRows,
    hear,
    leave,
    meet,
    refuse_other_weights,
    refuse_sharded,
    require_whole,
)
from trainworthy.lifecycle.engine.trainers.checkpoints import ScriptCheckpoints
from trainworthy.lifecycle.engine.trainers.ended import WORDS, TrainingEndedError
from trainworthy.lifecycle.engine.trainers.given import Given
from trainworthy.lifecycle.engine.trainers.logbook import Logbook
from trainworthy.lifecycle.engine.trainers.session import (
    STATE_FILE,
    Optimizers,
    Rows,
    TrainingSession,
    load_parts,
    loss_of,
    optimizers_of,
    packed_random,
    require_parts,
    save_parts,
)
from trainworthy.lifecycle.engine.training.prepare import Prepared, prepare
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.ranks.replicas import facts_of
from trainworthy.lifecycle.engine.training.stage import peak_memory_bytes
from trainworthy.lifecycle.engine.training.state import Stateful
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.plan import Plan, make_plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.training_script import load_script


class FirstSession(TrainingSession):
    """The first process's: it tells the session, and the others what came of it."""

    def __init__(
        self, log: Logbook, prepared: Prepared, checkpoints: ScriptCheckpoints, device: str, ranks: Ranks
    ) -> None:  # fmt: skip
        super().__init__(log, prepared, checkpoints, device, ranks)
        self._all, self._decided, self._same = ranks, Decision(), SameRows()
        ranks.open_script_group(self._job.collective_timeout_seconds)
        ranks.in_script(0)

    def step(
        self, loss: float | Tensor, *, rows: Rows = None, model: torch.nn.Module | None = None,
        optimizer: Optimizers = None, learning_rate: float | None = None, scaled: bool = False,
        grad_norm: float | Tensor | None = None,
    ) -> None:  # fmt: skip
        require_whole(model)
        mean, count = meet(self._all, STEP, loss_of(loss), rows, model, self._same)
        refuse_other_weights(self._all, model, self.done)
        tell = partial(super()._tell, mean, count, rows, model, optimizer, learning_rate, scaled, grad_norm)
        self._decide(tell)

    def look(self, model: torch.nn.Module, *, optimizer: Optimizers = None, scaled: bool = False) -> None:
        require_whole(model)
        meet(self._all, LOOK, model=model)
        # Between look and step nobody is asked: the update has to be told before the training can end.
        self._decide(partial(super().look, model, optimizer=optimizer, scaled=scaled), asks=False)

    @property
    def should_stop(self) -> bool:
        self._log.heart.called()
        return self._decided.ended is not None

    @property
    def checkpoint_due(self) -> bool:
        return self._decided.checkpoint_due

    def checkpoint(self, **parts: Stateful) -> None:
        require_parts(parts)
        refuse_sharded(*parts.values())
        if self.checkpoint_due:
            meet(self._all, CHECKPOINT)
            _, *other_random_states = self._all.every(packed_random())
            self._decide(partial(self._log.refuse_spoiled, *parts.values()))
            with self.checkpoint_files() as folder:
                save_parts(folder / STATE_FILE, parts, other_random_states)

    @contextmanager
    def checkpoint_files(self, model: object = None) -> Iterator[Path]:
        refuse_sharded(model)
        meet(self._all, FILES)
        self._decide(partial(self._log.refuse_spoiled, model))
        with super().checkpoint_files(model) as folder:
            self._all.share_state(str(folder).encode())
            self._all.in_script(self.done)
            yield folder
            # It is a checkpoint once all have written theirs.
            self._all.any_of(False)
        self._decided = self._decided._replace(checkpoint_due=False)

    @property
    def newest(self) -> Path | None:
        if not self._looked:
            meet(self._all, NEWEST)
            newest = super().newest
            self._all.share_state(json.dumps({"path": newest and str(newest), "done": self.done}).encode())
            self._decide(lambda: None)
        return self._newest

    def ask(self) -> None:
        meet(self._all, ASK)
        self._decide(lambda: None)

    def _decide(self, call: Callable[[], object], *, asks: bool = True) -> None:
        """Make a call that may end the training, and tell the others; `asks` whether somebody wants it to end, too."""
        ended: TrainingEndedError | None = None
        try:
            call()
        except TrainingEndedError as error:
            ended = error
        due = self._decided.checkpoint_due
        if asks:
            # It looks whether somebody wants an end.
            due = ended is None and super().checkpoint_due
        self._decided = Decision(ended is not None, self._log.session.ended, due)
        self._all.decide(self._decided.numbers())
        self._all.in_script(self.done)
        if ended is not None:
            raise ended


class FollowingSession(Given):
    """Another process's: it tells the first what it has done, and hears what came of it."""

    def __init__(self, job: TrainJob, prepared: Prepared, device: str, ranks: Ranks, plan: Plan) -> None:
        super().__init__(job, plan, prepared, device, ranks)
        self._all, self._decided, self._same = ranks, Decision(), SameRows()
        self._newest: Path | None = None
        self._looked = False
        self.done = 0
        ranks.open_script_group(self._job.collective_timeout_seconds)
        ranks.in_script(0)

    def step(
        self, loss: float | Tensor, *, rows: Rows = None, model: torch.nn.Module | None = None,
        optimizer: Optimizers = None, learning_rate: float | None = None, scaled: bool = False,
        grad_norm: float | Tensor | None = None,
    ) -> None:  # fmt: skip
        """As TrainingSession.step, of this process's rows: their mean loss, and how many there were."""
        optimizers_of(optimizer)
        require_whole(model)
        meet(self._all, STEP, loss_of(loss), rows, model, self._same)
        refuse_other_weights(self._all, model, self.done)
        self._hear(1)

    def look(self, model: torch.nn.Module, *, optimizer: Optimizers = None, scaled: bool = False) -> None:
        """As TrainingSession.look; the gradients are looked at in the first process."""
        require_whole(model)
        meet(self._all, LOOK, model=model)
        self._hear()

    @property
    def should_stop(self) -> bool:
        """True if all processes have to end their loops after this update."""
        return self._decided.ended is not None

    def waited(self) -> None:
        """Nothing: the first process's seconds count."""

    @property
    def checkpoint_due(self) -> bool:
        """True if a checkpoint should be written after this update."""
        return self._decided.checkpoint_due

    def checkpoint(self, **parts: Stateful) -> None:
        """Give the random numbers of this process, if a checkpoint is due; the first one writes it."""
        require_parts(parts)
        refuse_sharded(*parts.values())
        if self.checkpoint_due:
            meet(self._all, CHECKPOINT)
            self._all.every(packed_random())
            self._hear()
            with self.checkpoint_files():
                pass

    @contextmanager
    def checkpoint_files(self, model: object = None) -> Iterator[Path]:
        """The same folder as in the first process, for files of each, such as shards."""
        refuse_sharded(model)
        meet(self._all, FILES)
        self._hear()
        folder = Path(self._all.share_state(b"").decode())
        self._all.in_script(self.done)
        yield folder
        self._all.any_of(False)
        self._decided = self._decided._replace(checkpoint_due=False)

    @property
    def newest(self) -> Path | None:
        """The files of the newest sound checkpoint, as the first process has found them."""
        if not self._looked:
            self._looked = True
            meet(self._all, NEWEST)
            state = json.loads(self._all.share_state(b""))
            self._newest, self.done = state["path"] and Path(state["path"]), state["done"]
            self._hear()
        return self._newest

    def resume(self, **parts: Stateful) -> int:
        """As TrainingSession.resume, with the random numbers of this process."""
        require_parts(parts)
        if self.newest is not None:
            load_parts(self.newest / STATE_FILE, parts, self.rank, self.seed)
        return self.done

    def ask(self) -> None:
        """As TrainingSession.ask."""
        meet(self._all, ASK)
        self._hear()

    @property
    def heard(self) -> Decision:
        """What the first has decided last, for whoever runs the script."""
        return self._decided

    def _hear(self, updates: int = 0) -> None:
        self._decided = hear(self._all)
        if self._decided.raised:
            reason = "" if self._decided.ended is None else f": {WORDS[self._decided.ended]}"
            raise TrainingEndedError(f"the training has ended{reason}")
        self.done += updates
        self._all.in_script(self.done)


def follow_script(job: TrainJob, ranks: Ranks) -> None:
    """Run the job's script as another process than the first. Raises what it raises, and PreemptedError."""
    assert job.trainer is not None
    device = choose_device(job.device)
    prepared = prepare(job, device)
    plan = make_plan(len(prepared.rows), job.training, job.stages, job.stage)
    ranks.refuse_others(facts_of(job, prepared, plan))
    session = FollowingSession(job, prepared, device, ranks, plan)
    returned: object = None
    try:
        returned = load_script(prepared.task, job.trainer)(session)
    except (TrainingEndedError, SystemExit):
        if session.heard.ended is None:
            raise TrainingError(f"{job.trainer} ended its process", fix="return the model from train") from None
    if session.heard.ended == "asked":
        raise PreemptedError
    leave(ranks, returned, peak_memory_bytes())
