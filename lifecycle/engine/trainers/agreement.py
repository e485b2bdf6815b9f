"""What the processes of one script agree on at each call of their handles, and what they are refused for.

All meet at a call and tell which it is; the first decides. What would let them wait for each other, or train apart, is
an error in words: other calls, other models, replicas that differ, the same rows in each, a model that none has whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch

from trainworthy.lifecycle.engine.trainers.ended import WORDS
from trainworthy.lifecycle.engine.trainers.session import Rows, count_of, numbers_of, require_module
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_sha256
from trainworthy.lifecycle.engine.training.monitors.rows_and_replicas import replica_checksums
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.session import Why
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY

_REASONS: tuple[Why, ...] = tuple(WORDS)
# Updates in a row with the same rows in each process: of few rows, two draws may be equal by chance.
SAME_ROWS = 3
_CALLS = (
    "session.step", "session.look", "session.checkpoint", "session.checkpoint_files", "session.resume or newest",
    "session.ask", "the end of train",
)  # fmt: skip
STEP, LOOK, CHECKPOINT, FILES, NEWEST, ASK, END = range(len(_CALLS))


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

    def check(self, fingerprints: Sequence[float]) -> None:
        """Raises TrainingError in each process at the SAME_ROWS-th."""
        same = len(fingerprints) > 1 and fingerprints[0] != 0 and len(set(fingerprints)) == 1
        self._updates = self._updates + 1 if same else 0
        if self._updates == SAME_ROWS:
            raise TrainingError(
                f"all {len(fingerprints)} processes train on the same rows: at {SAME_ROWS} updates in a row their "
                "numbers were equal",
                fix="take this process's part of the update's rows: rows = session.share(rows)",
            )


def fingerprint(rows: Rows) -> int:
    """Of the numbers of rows, in their order; 0 if they were not told by number."""
    numbers = numbers_of(rows)
    return zlib.crc32(np.asarray(numbers, dtype=np.int64).tobytes()) if len(numbers) > 1 else 0


def meet(
    ranks: Ranks, call: int, loss: float = 0.0, rows: Rows = None, model: torch.nn.Module | None = None,
    same: SameRows | None = None,
) -> tuple[float, int]:  # fmt: skip
    """Wait for all processes at this call; the mean loss of all their rows and how many these are, 0 if one can't tell.

    Raises TrainingError in each process if one makes another call: it would wait for an answer that never comes.
    """
    parameters = -1 if model is None else len(list(model.parameters()))
    every = ranks.meet((call, loss, count_of(rows), fingerprint(rows), parameters))
    calls = [int(numbers[0]) for numbers in every]
    other = next((rank for rank, call_number in enumerate(calls) if call_number != calls[0]), None)
    if other is not None:
        raise TrainingError(
            "the processes' scripts part: each has to make the same calls of its session",
            value=f"the first is at {_CALLS[calls[0]]}, rank {other} of {ranks.size} at {_CALLS[calls[other]]}",
            fix="call step, checkpoint and resume in every process, without a condition on session.rank: the first "
            "alone writes; end the loop by session.should_stop, or by what is equal in all",
        )
    given = [int(numbers[4]) for numbers in every]
    other = next((rank for rank, count in enumerate(given) if count != given[0]), None)
    if other is not None:
        descriptions = [
            "no model" if count < 0 else f"a model of {count} parameters" for count in (given[0], given[other])
        ]
        raise TrainingError(
            f"the processes' scripts part: each has to give {_CALLS[call]} the same model",
            value=f"the first gives {descriptions[0]}, rank {other} of {ranks.size} gives {descriptions[1]}",
            fix="give the model in every process, or in none",
        )
    if same is not None:
        same.check([numbers[3] for numbers in every])
    losses, counts = [numbers[1] for numbers in every], [int(numbers[2]) for numbers in every]
    if not all(counts):
        return sum(losses) / len(losses), 0
    return sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts), sum(counts)


def leave(ranks: Ranks, returned: object, bytes_here: float = 0.0) -> float:
    """The script has ended in each process and returned this; in the first one, the others' peaks of memory together.

    Raises TrainingError in the first if another returned a module with other weights.
    """
    meet(ranks, END)
    whole = isinstance(returned, torch.nn.Module) and not _is_sharded(returned)
    mine, *other_checksums = ranks.every(
        parameters_sha256(cast("torch.nn.Module", returned)).encode() if whole else b"-"
    )
    for rank, other in enumerate(other_checksums if ranks.first else (), start=1):
        if b"-" not in (mine, other) and mine != other:
            raise _weights_differ(ranks, rank, "at the end", "of the returned model")
    return ranks.others_sum(bytes_here)


def _weights_differ(ranks: Ranks, rank: int, when: str, where: str) -> TrainingError:
    return TrainingError(
        f"the processes train different models: {when} rank {rank} of {ranks.size} has other weights than the first",
        value=where,
        fix="wrap the model in torch.nn.parallel.DistributedDataParallel where session.processes is above 1, and let "
        "each process load the same checkpoint by session.resume",
    )


def refuse_other_weights(ranks: Ranks, model: torch.nn.Module | None, done: int) -> None:
    """Raises TrainingError in the first process if another has other weights: each would train a model of its own.

    Looked at after the first update, and at every SAMPLE_EVERY-th. What is sharded is no replica.
    """
    if model is None or not (done == 1 or (done and done % SAMPLE_EVERY == 0)):
        return
    named = list(model.named_parameters())
    if not named or _is_sharded(model):
        return
    every = replica_checksums([parameter for _, parameter in named])
    for rank, checksums in enumerate(every if ranks.first else ()):
        differing = [name for (name, _), mine, other in zip(named, every[0], checksums, strict=True) if mine != other]
        if differing:
            where = f"{', '.join(differing[:3])}{' …' if len(differing) > 3 else ''}"
            raise _weights_differ(ranks, rank, f"after update {done}", where)


def refuse_sharded(*given: object) -> None:
    """Raises TrainingError for a model that no process has whole: the first would wait for the others to look at it."""
    if any(isinstance(value, torch.nn.Module) and _is_sharded(value) for value in given):
        raise TrainingError(
            "session was given a model whose parameters are sharded (DTensor): one process cannot look at it",
            fix="leave model and optimizer out of step, and give grad_norm: that of all gradients, as clip_grad_norm_ "
            "returns it (.full_tensor()); save by torch.distributed.checkpoint into session.checkpoint_files()",
        )


def require_whole(model: torch.nn.Module | None) -> None:
    """Raises TrainingError for what is no module, or a sharded one."""
    if model is not None:
        require_module(model)
        refuse_sharded(model)


def _is_sharded(model: torch.nn.Module) -> bool:
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())
