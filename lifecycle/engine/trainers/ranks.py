"""The handle of a script that several processes run, each with its share of an update's rows.

Every process calls the handle alike. The first one's tells the session, as that of an only process does; before any
call returns, all processes hear what came of it: whether the training has ended, why, and whether a checkpoint is due.
So all of them leave their loops at the same update.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.trainers.checkpoints import ScriptCheckpoints
from trainworthy.lifecycle.engine.trainers.ended import WORDS, TrainingEndedError
from trainworthy.lifecycle.engine.trainers.given import Given
from trainworthy.lifecycle.engine.trainers.logbook import Logbook
from trainworthy.lifecycle.engine.trainers.session import (
    STATE_FILE,
    Optimizers,
    Rows,
    TrainingSession,
    count_of,
    load_parts,
    loss_of,
    numbers_of,
    optimizers_of,
    packed_random,
    require_module,
    require_parts,
    save_parts,
)
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.monitors.beside import replica_checksums
from trainworthy.lifecycle.engine.training.prepare import Prepared, prepare
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.ranks.replicas import facts_of
from trainworthy.lifecycle.engine.training.session import Why
from trainworthy.lifecycle.engine.training.stage import peak_memory_bytes
from trainworthy.lifecycle.engine.training.state import Stateful
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.plan import Plan, make_plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.training_script import load_script

_REASONS: tuple[Why, ...] = tuple(WORDS)
# Codes of errors: replicas that go their own ways; a model that no process has whole; other calls in one process.
REPLICAS_APART, SHARDED, CALLS_APART, ROWS_ALIKE = "replicas_apart", "sharded_model", "calls_apart", "rows_alike"
SAME_ROWS = 3
Told = tuple[float, int]
_CALLS = (
    "session.step", "session.look", "session.checkpoint", "session.checkpoint_files", "session.resume or newest",
    "session.ask", "the end of train",
)  # fmt: skip
_STEP, _LOOK, _CHECKPOINT, _FILES, _NEWEST, _ASK, _END = range(len(_CALLS))


class Decision(NamedTuple):
    """What the first process decides for all: `raised` if the call ends the script at once."""

    raised: bool = False
    ended: Why | None = None
    checkpoint_due: bool = False

    def numbers(self) -> tuple[float, ...]:
        reason = -1 if self.ended is None else _REASONS.index(self.ended)
        return float(self.raised), float(reason), float(self.checkpoint_due)


def hear(ranks: Ranks) -> Decision:
    """What the first has decided."""
    raised, reason, due = ranks.decide(Decision().numbers())
    return Decision(bool(raised), None if reason < 0 else _REASONS[int(reason)], bool(due))


class SameRows:
    """How many updates in a row had the same rows in each process, where their numbers were told."""

    def __init__(self) -> None:
        self._updates = 0

    def seen(self, fingerprints: Sequence[float]) -> None:
        """Raises TrainingError in each process at the SAME_ROWS-th: of drawn rows a few may be equal by chance."""
        same = len(fingerprints) > 1 and fingerprints[0] != 0 and len(set(fingerprints)) == 1
        self._updates = self._updates + 1 if same else 0
        if self._updates == SAME_ROWS:
            raise TrainingError(
                f"all {len(fingerprints)} processes train on the same rows: at {SAME_ROWS} updates in a row their "
                "numbers were equal",
                fix="take this process's part of the update's rows: rows = session.share(rows)",
                code=ROWS_ALIKE,
            )


def fingerprint(rows: Rows) -> int:
    """Of the numbers of rows, in their order; 0 if they were not told by number."""
    numbers = numbers_of(rows)
    return zlib.crc32(np.asarray(numbers, dtype=np.int64).tobytes()) if len(numbers) > 1 else 0


def meet(
    ranks: Ranks, call: int, loss: float = 0.0, rows: Rows = None, model: torch.nn.Module | None = None,
    same: SameRows | None = None,
) -> Told:  # fmt: skip
    """Wait for all processes at this call; the mean loss of all their rows and how many these are, 0 if one can't tell.

    Raises TrainingError in each process if one makes another call: it would wait for an answer that never comes.
    """
    parameters = -1 if model is None else len(list(model.parameters()))
    every = ranks.meet((call, loss, count_of(rows), fingerprint(rows), parameters))
    calls = [int(one[0]) for one in every]
    other = next((rank for rank, one in enumerate(calls) if one != calls[0]), None)
    if other is not None:
        raise TrainingError(
            "the processes' scripts part: each has to make the same calls of its session",
            value=f"the first is at {_CALLS[calls[0]]}, rank {other} of {ranks.size} at {_CALLS[calls[other]]}",
            fix="call step, checkpoint and resume in every process, without a condition on session.rank: the first "
            "alone writes; end the loop by session.should_stop, or by what is equal in all",
            code=CALLS_APART,
        )
    given = [int(one[4]) for one in every]
    other = next((rank for rank, one in enumerate(given) if one != given[0]), None)
    if other is not None:
        told = ["no model" if one < 0 else f"a model of {one} parameters" for one in (given[0], given[other])]
        raise TrainingError(
            f"the processes' scripts part: each has to give {_CALLS[call]} the same model",
            value=f"the first gives {told[0]}, rank {other} of {ranks.size} gives {told[1]}",
            fix="give the model in every process, or in none",
            code=CALLS_APART,
        )
    if same is not None:
        same.seen([one[3] for one in every])
    losses, counts = [one[1] for one in every], [int(one[2]) for one in every]
    if not all(counts):
        return sum(losses) / len(losses), 0
    return sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts), sum(counts)


def leave(ranks: Ranks, returned: object, bytes_here: float = 0.0) -> float:
    """The script has ended in each process and returned this; in the first one, the others' peaks of memory together.

    Raises TrainingError in the first if another returned a module with other weights.
    """
    meet(ranks, _END)
    whole = isinstance(returned, torch.nn.Module) and not _is_sharded(returned)
    mine, *others = ranks.every(parameters_sha256(cast("torch.nn.Module", returned)).encode() if whole else b"-")
    for rank, other in enumerate(others if ranks.first else (), start=1):
        if b"-" not in (mine, other) and mine != other:
            raise _apart(ranks, rank, "at the end", "of the returned model")
    return ranks.others_sum(bytes_here)


def _apart(ranks: Ranks, rank: int, when: str, where: str) -> TrainingError:
    return TrainingError(
        f"the processes train different models: {when} rank {rank} of {ranks.size} has other weights than the first",
        value=where,
        fix="wrap the model in torch.nn.parallel.DistributedDataParallel where session.processes is above 1, and let "
        "each process load the same checkpoint by session.resume",
        code=REPLICAS_APART,
    )


def refuse_apart(ranks: Ranks, model: torch.nn.Module | None, done: int) -> None:
    """Raises TrainingError in the first process if another has other weights: each would train a model of its own.

    Looked at after the first update, and at every SAMPLE_EVERY-th. What is sharded is no replica.
    """
    if model is None or not (done == 1 or (done and done % SAMPLE_EVERY == 0)):
        return
    named = list(model.named_parameters())
    if not named or _is_sharded(model):
        return
    every = replica_checksums([parameter for _, parameter in named])
    for rank, one in enumerate(every if ranks.first else ()):
        apart = [name for (name, _), mine, other in zip(named, every[0], one, strict=True) if mine != other]
        if apart:
            told = f"{', '.join(apart[:3])}{' …' if len(apart) > 3 else ''}"
            raise _apart(ranks, rank, f"after update {done}", told)


def refuse_sharded(*given: object) -> None:
    """Raises TrainingError for a model that no process has whole: the first would wait for the others to look at it."""
    if any(isinstance(one, torch.nn.Module) and _is_sharded(one) for one in given):
        raise TrainingError(
            "session was given a model whose parameters are sharded (DTensor): one process cannot look at it",
            fix="leave model and optimizer out of step, and give grad_norm: that of all gradients, as clip_grad_norm_ "
            "returns it (.full_tensor()); save by torch.distributed.checkpoint into session.checkpoint_files()",
            code=SHARDED,
        )


def require_whole(model: torch.nn.Module | None) -> None:
    """Raises TrainingError for what is no module, or a sharded one."""
    if model is not None:
        require_module(model)
        refuse_sharded(model)


def _is_sharded(model: torch.nn.Module) -> bool:
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


class FirstSession(TrainingSession):
    """The first process's: it tells the session, and the others what came of it."""

    def __init__(
        self, log: Logbook, prepared: Prepared, checkpoints: ScriptCheckpoints, device: str, ranks: Ranks
    ) -> None:  # fmt: skip
        super().__init__(log, prepared, checkpoints, device, ranks)
        self._all, self._decided, self._same = ranks, Decision(), SameRows()
        ranks.talk_apart(self._job.collective_timeout_seconds)
        ranks.in_script(0)

    def step(
        self, loss: float | Tensor, *, rows: Rows = None, model: torch.nn.Module | None = None,
        optimizer: Optimizers = None, learning_rate: float | None = None, scaled: bool = False,
        grad_norm: float | Tensor | None = None,
    ) -> None:  # fmt: skip
        require_whole(model)
        mean, count = meet(self._all, _STEP, loss_of(loss), rows, model, self._same)
        refuse_apart(self._all, model, self.done)
        told = partial(super()._tell, mean, count, rows, model, optimizer, learning_rate, scaled, grad_norm)
        self._decide(told)

    def look(self, model: torch.nn.Module, *, optimizer: Optimizers = None, scaled: bool = False) -> None:
        require_whole(model)
        meet(self._all, _LOOK, model=model)
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
            meet(self._all, _CHECKPOINT)
            _, *others = self._all.every(packed_random())
            self._decide(partial(self._log.refuse_spoiled, *parts.values()))
            with self.checkpoint_files() as folder:
                save_parts(folder / STATE_FILE, parts, others)

    @contextmanager
    def checkpoint_files(self, model: object = None) -> Iterator[Path]:
        refuse_sharded(model)
        meet(self._all, _FILES)
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
            meet(self._all, _NEWEST)
            found = super().newest
            self._all.share_state(json.dumps({"path": found and str(found), "done": self.done}).encode())
            self._decide(lambda: None)
        return self._newest

    def ask(self) -> None:
        meet(self._all, _ASK)
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
        ranks.talk_apart(self._job.collective_timeout_seconds)
        ranks.in_script(0)

    def step(
        self, loss: float | Tensor, *, rows: Rows = None, model: torch.nn.Module | None = None,
        optimizer: Optimizers = None, learning_rate: float | None = None, scaled: bool = False,
        grad_norm: float | Tensor | None = None,
    ) -> None:  # fmt: skip
        """As TrainingSession.step, of this process's rows: their mean loss, and how many there were."""
        optimizers_of(optimizer)
        require_whole(model)
        meet(self._all, _STEP, loss_of(loss), rows, model, self._same)
        refuse_apart(self._all, model, self.done)
        self._hear(1)

    def look(self, model: torch.nn.Module, *, optimizer: Optimizers = None, scaled: bool = False) -> None:
        """As TrainingSession.look; the gradients are looked at in the first process."""
        require_whole(model)
        meet(self._all, _LOOK, model=model)
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
            meet(self._all, _CHECKPOINT)
            self._all.every(packed_random())
            self._hear()
            with self.checkpoint_files():
                pass

    @contextmanager
    def checkpoint_files(self, model: object = None) -> Iterator[Path]:
        """The same folder as in the first process, for files of each, such as shards."""
        refuse_sharded(model)
        meet(self._all, _FILES)
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
            meet(self._all, _NEWEST)
            found = json.loads(self._all.share_state(b""))
            self._newest, self.done = found["path"] and Path(found["path"]), found["done"]
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
        meet(self._all, _ASK)
        self._hear()

    @property
    def heard(self) -> Decision:
        """What the first has decided last, for whoever runs the script."""
        return self._decided

    def _hear(self, updates: int = 0) -> None:
        self._decided = hear(self._all)
        if self._decided.raised:
            told = "" if self._decided.ended is None else f": {WORDS[self._decided.ended]}"
            raise TrainingEndedError(f"the training has ended{told}")
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
