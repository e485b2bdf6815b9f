"""Every error that a user can cause: what is wrong, the value, how to fix it.

TrainworthyError            the base: `problem`, `value`, `fix`
├── UseCaseError            use_case.yaml, contract.yaml or model.py; lists all independent problems
├── SettingsError           an environment variable or the folder it names
├── DatasetError            an unknown version, missing or changed bytes, rows that cannot be split
├── RecordError             a record that is missing, stale or changed on disk
├── StateError              the store of records and verdicts refuses, does not answer, or keeps no conditions
├── CheckpointError         no checkpoint that may be trusted
├── IncidentError           an incident that is unknown, changed or cannot be replayed here
├── WorkerError             the training process ended without a valid result; carries its exit code
├── TrainingError           a model that the training loop cannot update
├── LeaseLostError          another run took the folder that this worker wrote
├── EvaluationError         predictions, labels or groups from which no figure can be computed
├── PriceError              a price that is not in prices.yaml
├── BackendError            the machines that workers run on refuse, or do not answer
├── AttemptError            the table of attempts cannot be read or written
├── BackupError             a backup that cannot be taken, or must not be restored
├── NotifierError           an alert that its receiver did not take
└── ChampionError           the champion is not the declared or logged one, or there is none to go back to
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainworthy.lifecycle.protocol.training_figures import Attempt, Cause


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `where` is a file or a dotted key in it."""

    where: str
    problem: str
    fix: str
    value: object = None

    def __str__(self) -> str:
        value = "" if self.value is None else f" (value: {self.value!r})"
        return f"{self.where}: {self.problem}{value}\n    fix: {self.fix}"


class TrainworthyError(Exception):
    """Base of what a user can cause. The message holds problem, value and fix, in this order.

    `code` tells callers which of a class it is, where they have to know.
    """

    def __init__(self, problem: str, *, fix: str, value: object = None, code: str = "") -> None:
        self.problem, self.value, self.fix, self.code = problem, value, fix, code
        shown = "" if value is None else f"\n  value: {value!r}"
        super().__init__(f"{problem}{shown}\n  fix: {fix}")

    def __reduce__(self) -> tuple[Any, ...]:
        """As it was made, whatever its class asks for: a worker may try something in another process."""
        return _made_again, (type(self), self.args, self.__dict__.copy())

    @property
    def more(self) -> str:
        """Where the documentation explains this kind of error."""
        return f"docs/errors.md#{type(self).__name__.lower()}"


def _made_again(kind: type[TrainworthyError], args: tuple[Any, ...], fields: dict[str, Any]) -> TrainworthyError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class UseCaseError(TrainworthyError):
    """A use case that cannot be loaded: the name of its folder, and every independent problem."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name, self.problems = name, tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(
            f"use case {name!r} has {self._count}:\n{lines}",
            fix="correct the lines above, then run the command again",
        )

    @property
    def _count(self) -> str:
        return f"{len(self.problems)} {'problem' if len(self.problems) == 1 else 'problems'}"

    @property
    def in_brief(self) -> str:
        """How many problems, and the command that shows them, for where something else is told."""
        return f"{self._count}: trainworthy check {shlex.quote(self.name)}"


class SettingsError(TrainworthyError):
    """An environment variable, or the folder that it names, cannot be used."""


class DatasetError(TrainworthyError):
    """A dataset version that is unknown, incomplete or not what was published."""


class RecordError(TrainworthyError):
    """A record that is missing, stale or no longer what was written."""


class StateError(TrainworthyError):
    """The store of records and verdicts cannot be read or written, or does not keep what several machines need."""


class CheckpointError(TrainworthyError):
    """No checkpoint that may be trusted; training never starts afresh in silence."""


class IncidentError(TrainworthyError):
    """An incident that is unknown, was changed, or lacks what its replay needs."""


# What the code of a WorkerError begins with; behind it stand the cause and the exception.
FROM_WORKER = "worker."


class WorkerError(TrainworthyError):
    """The process that trains, or that asks a model, ended without a valid result; the exit code tells the kind.

    `exit_code` follows the table in lifecycle/worker.py, `cause` is its class in lifecycle/failure.py, and `attempts`
    are all ends of the worker before it was given up. `exception` is the class of what was raised in the worker, empty
    if nothing was; `problem` may quote its message.
    """

    def __init__(
        self,
        problem: str,
        *,
        fix: str,
        exit_code: int,
        value: object = None,
        cause: Cause = "bug",
        attempts: Sequence[Attempt] = (),
        exception: str = "",
    ) -> None:
        self.exit_code, self.attempts, self.exception = exit_code, tuple(attempts), exception
        self.cause: Cause = cause
        super().__init__(problem, fix=fix, value=value, code=f"{FROM_WORKER}{cause}{exception and f'.{exception}'}")


class TrainingError(TrainworthyError):
    """A model that the training loop cannot update, whatever its data."""


class LeaseLostError(TrainworthyError):
    """Another run took over what this one had locked, so that this one wrote no more."""


class EvaluationError(TrainworthyError):
    """Predictions, labels or groups from which no trustworthy figure can be computed."""


class PriceError(TrainworthyError):
    """A SKU without a price: cost is never guessed."""


class ChampionError(TrainworthyError):
    """The champion is not what the run declares or the log holds, or there is none before it that may be trusted."""


class BackendError(TrainworthyError):
    """The machines that workers run on refuse a worker, do not answer, or do not let it begin in time."""


class AttemptError(TrainworthyError):
    """The table of attempts, which counts the tries of each training, cannot be read or written.

    Never names the database's user or password.
    """


class BackupError(TrainworthyError):
    """A backup that cannot be taken, or that is not what was written, or a place that it must not be restored to."""


class NotifierError(TrainworthyError):
    """An alert that its receiver did not take, or a receiver that may not be used.

    Never names the address.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the nearest known name, or lists all of them."""
    names = sorted(known)
    near = nearest(name, names)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(names) or 'none yet'}"


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name that is like this one, by difflib's ratio of at least `likeness`; None if none is."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=likeness)
    return near[0] if near else None
