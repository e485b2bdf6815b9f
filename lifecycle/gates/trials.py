"""Checks tried one after the other: each is contained, timed and counted, and told in a Trial.

Whether an error is a fault of Trainworthy itself: told by the frames that it came through. Imports no torch.
"""

from __future__ import annotations

import contextlib
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.error_causes import ran_out_of_memory
from trainworthy.lifecycle.errors import TrainingError, TrainworthyError
from trainworthy.lifecycle.gates.check import (
    REFUSED,
    UNTRIED,
    Check,
    Outcome,
    ProbeError,
    declared_away,
    tried,
    untried,
)
from trainworthy.lifecycle.protocol.checks import stops_the_step
from trainworthy.lifecycle.protocol.trial import Trial


@dataclass
class Updates:
    """How often an optimizer made an update: Trial says what is counted."""

    count: int = 0


Describe = Callable[[BaseException], str]


Around = Callable[[], AbstractContextManager[Updates]]


def run_checks(
    checks: Sequence[Check[Any]],
    subject: Any,
    *,
    device: str,
    not_applicable: Mapping[str, str],
    earlier: Sequence[Trial] = (),
    describe: Describe = lambda error: f"{type(error).__name__}: {error}",
    around: Around,
) -> tuple[Trial, ...]:
    """Every check's trial, in order. What a check raises becomes its error; `describe` says it in words.

    A check whose `after` did not pass, here or among the `earlier` ones, is not tried, and stops the step only where
    that one does. `around` is entered for each: on_host where there is no torch, counted_updates in the worker.
    """
    by_check = {trial.check: trial for trial in earlier}
    trials = []
    for check in checks:
        why = _why_not(check, not_applicable, by_check)
        trial = why or _try(check, subject, device, describe, around)
        by_check[check.id] = trial
        trials.append(trial)
    return tuple(trials)


def _why_not(check: Check[Any], not_applicable: Mapping[str, str], by_check: Mapping[str, Trial]) -> Trial | None:
    if check.id in not_applicable:
        return declared_away(check, not_applicable[check.id])
    before = by_check.get(check.after)
    if before is None or before.status in ("pass", "not_applicable"):
        return None
    stopped = stops_the_step(before.status, before.severity, before.required)
    trial = untried(check, f"not tried, since {check.after} did not pass", required=stopped)
    # What asks the same of more rows answers this one, too: it was left out for that alone.
    answered_by = before.answered_by if before.status == "insufficient" else ""
    return trial.model_copy(update={"answered_by": answered_by})


def _try(check: Check[Any], subject: Any, device: str, describe: Describe, around: Around) -> Trial:
    started = time.perf_counter()
    with around() as updates:
        try:
            result = check.look(subject)
        except TrainingError as error:
            # A check of its own says so: this one would have to train.
            why = f"not tried, since no update can be made: {error.problem}"
            result = Outcome("insufficient", why, fix=error.fix, code=UNTRIED)
        except ProbeError as error:
            result, check = _of_probe(error, check, describe)
        except Exception as error:
            # Whatever a use case's code raises; a check that can't look has not passed.
            result = Outcome("error", describe(error)[:500])
            if is_own_fault(error):
                check = as_own_fault(check)
    return tried(check, result, device, time.perf_counter() - started, updates.count)


def _of_probe(error: ProbeError, check: Check[Any], describe: Describe) -> tuple[Outcome, Check[Any]]:
    """Insufficient, unless Trainworthy's own code is what raised."""
    raised = error.__cause__ or error
    if is_own_fault(raised):
        return Outcome("error", describe(raised)[:500]), as_own_fault(check)
    why = f"not measured: outputs that were tried in the place of the network's are refused: {describe(raised)}"
    cause = "a loss that is defined on a part of all numbers, such as probabilities: these are ones that we tried"
    fix = f"nothing, if the loss is meant so: preflight.not_applicable: {{{check.id}: a reason}}"
    return Outcome("insufficient", why[:500], cause=cause, fix=fix, code=REFUSED), check


def as_own_fault(check: Check[Any]) -> Check[Any]:
    """The check with the words for a crash of its own: those of its failure would blame the use case."""
    return replace(
        check,
        symptom="the check crashed before it could look",
        cause="a fault in Trainworthy's own code: it says nothing about your network or your rows",
        fix="report it with the line that is named; to go on without this check, give the reason in use_case.yaml: "
        f"preflight: not_applicable: {{{check.id}: crashes in Trainworthy}}",
    )


@contextlib.contextmanager
def on_host() -> Iterator[Updates]:
    """Nothing is counted where there is no torch."""
    yield Updates()


_PACKAGE = Path(__file__).resolve().parents[1]
_STANDARD = Path(sysconfig.get_path("stdlib")).resolve()
# What is called on a check's own numbers. A network, its loss and its gradient come through the rest of torch, and
# what a use case takes from another library comes through that one.
_CALCULATES = frozenset({"numpy", "pandas", "scipy", "sklearn", "polars", "pyarrow"})
_PLAIN_TORCH = frozenset({"torch/_tensor.py", "torch/functional.py"})


def is_own_fault(error: BaseException) -> bool:
    """True if the error came up through Trainworthy's code alone: no use case, no network, no other library.

    What it raises on purpose, a full disk and too little memory are no faults of it.
    """
    if isinstance(error, TrainworthyError | OSError) or ran_out_of_memory(error):
        return False
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = [_is_within(file, _PACKAGE) for file in files]
    return any(own) and all(mine or _only_calculates(file) for mine, file in zip(own, files, strict=True))


def _only_calculates(file: str) -> bool:
    """A frame of the standard library, of numpy and its like, or of what torch does with plain tensors."""
    parts = Path(file).parts
    installed = next((n for n, part in enumerate(parts) if part in ("site-packages", "dist-packages")), None)
    if installed is not None:
        inside = parts[installed + 1 :]
        return inside[0] in _CALCULATES or "/".join(inside) in _PLAIN_TORCH
    # Code that was made while running, such as a dataclass's, has no file.
    return file.startswith("<") or _is_within(file, _STANDARD)


def _is_within(file: str, folder: Path) -> bool:
    return Path(file).resolve().is_relative_to(folder)
