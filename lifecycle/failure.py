"""What the end of a training's process means, and what is done next: go on from the checkpoint, or stop and say why.

Pure: from an exit code, the worker's error report and the memory that was used, a cause and a message.

cause            known by                                                       what follows
preempted        exit 75, or a signal that asks (SIGTERM, SIGINT, SIGHUP)       goes on; free while steps are gained
killed           another signal and no word                                     goes on, at most MOST_RESUMED times
hang             exit 76: the heartbeat ended it, as declared                   goes on, at most MOST_RESUMED times
storage_outage   exit 74 with an error that may pass by itself, or no word      goes on once, after OUTAGE_SECONDS
out_of_memory    exit 71, or a kill that the kernel counted                     stops: the same would run out again
bad_input, bug, disk_full, storage, lease_lost                                  stops
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from typing import Any

from trainworthy.lifecycle.earlier_ends import NO_EARLIER, EarlierEnds
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.protocol.training_figures import Attempt, Cause
from trainworthy.lifecycle.spec.frozen import Frozen

EXIT_BAD_INPUT, EXIT_LEASE_LOST, EXIT_INTERNAL, EXIT_OUT_OF_MEMORY = 65, 66, 70, 71
EXIT_DISK_FULL, EXIT_STORAGE, EXIT_PREEMPTED, EXIT_HANG = 73, 74, 75, 76
# Of a rank that lost another one: never that of a whole training.
EXIT_RANK_LOST = 77
# How often a training goes on after ends that gained nothing or that nobody asked for.
MOST_RESUMED = 3
# How long a storage that was away is given before the one further try: a file server that restarts or hands over.
OUTAGE_SECONDS = 60.0
# How much of its limit a killed process must have had for memory to be the likely cause where no counter can be read.
NEARLY_ALL = 0.9
# Ends after which a training goes on from its checkpoint.
_GOES_ON = ("preempted", "killed", "hang", "storage_outage")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CAUSES: dict[int, Cause] = {
    EXIT_BAD_INPUT: "bad_input",
    EXIT_LEASE_LOST: "lease_lost",
    EXIT_OUT_OF_MEMORY: "out_of_memory",
    EXIT_DISK_FULL: "disk_full",
    EXIT_PREEMPTED: "preempted",
    EXIT_HANG: "hang",
}


class MemorySeen(Frozen):
    """What could be seen of memory from outside: None where this machine does not tell.

    `kernel_kills` is how many processes were killed for memory meanwhile, in `counted_in`; "" where the machines'
    owner tells of it (End.seen).
    """

    kernel_kills: int | None = None
    counted_in: str = ""
    peak_bytes: int | None = None
    limit_bytes: int | None = None

    @property
    def words(self) -> str:
        """What is known, as half a sentence; empty if nothing is."""
        parts = []
        if self.peak_bytes is not None:
            of = f" of {_size(self.limit_bytes)}" if self.limit_bytes is not None else ""
            parts.append(f"its process was seen with {_size(self.peak_bytes)}{of}")
        if self.kernel_kills is not None and self.counted_in:
            many = "no process" if self.kernel_kills == 0 else f"{self.kernel_kills} of the processes"
            parts.append(f"the kernel killed {many} in {self.counted_in} for memory meanwhile")
        return "; ".join(parts)


class End(Frozen):
    """An end of the worker without an answer: exit code (negative: a signal), its error.json, what was seen of memory.

    `batch` is what an update is made of, (batch_size, accumulate); None if nothing is trained. `rows_on_disk`: they are
    left there, and a batch is read when it is due. `seen` is what the
    machines' owner says of an end that the worker did not choose, as half a sentence.
    """

    exit_code: int
    told: dict[str, Any] | None = None
    memory: MemorySeen = MemorySeen()
    batch: tuple[int, int] | None = None
    rows_on_disk: bool = False
    seen: str = ""


# What torch says of a loader that was killed, by who notices it first.
_LOADER_KILLED = ("killed by signal: Killed", "exited unexpectedly")


def cause_of_end(end: End) -> Cause:
    """The class that decides what follows."""
    report = end.told or {}
    if end.exit_code < 0:
        if _killed_for_memory(end):
            return "out_of_memory"
        return "preempted" if -end.exit_code in STOP_SIGNALS else "killed"
    if end.exit_code == EXIT_STORAGE:
        # Storage that took no word was away: a pod whose bucket is has no other place for one.
        return "storage_outage" if end.told is None or report.get("passes") else "storage"
    if (
        end.exit_code == EXIT_INTERNAL
        and any(words in str(report.get("problem")) for words in _LOADER_KILLED)
        and _counted(end)
    ):
        # A process that loads rows was killed, and the worker lived on to tell it.
        return "out_of_memory"
    return _CAUSES.get(end.exit_code, "bug")


def error_of(end: End) -> WorkerError:
    """The end as an error: what was told, or what the exit code and memory say; with numbers where memory ran out."""
    cause, report = cause_of_end(end), end.told
    known = f"; {end.memory.words}" if end.memory.words and (cause == "out_of_memory" or end.exit_code < 0) else ""
    circumstances = f"; {end.seen}" if end.seen else ""
    if report is None:
        problem, fix = f"the worker {_ended(end.exit_code)} and left no word{known}{circumstances}", _fix_unknown(end)
    else:
        prefix = "" if cause == "preempted" else "the worker stopped: "
        problem, fix = f"{prefix}{report['problem']}{known}{circumstances}", report["fix"]
    if cause == "out_of_memory":
        fix = memory_fix(end.batch, report.get("in_update") if report is not None else None, end.rows_on_disk)
    value = report.get("value") if report is not None else None
    exception = str(report.get("exception", "")) if report is not None else ""
    return WorkerError(problem, value=value, fix=fix, exit_code=end.exit_code, cause=cause, exception=exception)


def why_not_again(
    attempts: Sequence[Attempt], seconds_left: float = math.inf, earlier: EarlierEnds = NO_EARLIER
) -> str | None:
    """None if a training that ended so goes on from its checkpoint; else why it does not, "" where the cause says it.

    `seconds_left` is what the budget still allows this run, and `earlier` the ends of other runs that count as well.
    """
    last, before = attempts[-1], earlier.still_counting(attempts)
    if last.cause not in _GOES_ON:
        return ""
    tries = (*before, *attempts)
    if last.cause == "storage_outage" and sum(attempt.cause == "storage_outage" for attempt in tries) > 1:
        return earlier.in_words(attempts) if before else "it had gone on after the first time"
    if counted(tries) > MOST_RESUMED:
        if before:
            return earlier.in_words(attempts)
        stuck = all(attempt.to_step == last.to_step for attempt in attempts[-2:])
        where = f", and no checkpoint after step {last.to_step} was reached since the time before" if stuck else ""
        return f"it had gone on {MOST_RESUMED} times{where}"
    if sum(attempt.seconds for attempt in attempts) + pause_seconds(last) >= seconds_left:
        return "the budget of the run does not allow another try"
    return None


def pause_seconds(attempt: Attempt) -> float:
    """How long to wait after an end before the next try."""
    return OUTAGE_SECONDS if attempt.cause == "storage_outage" else 0.0


def counted(attempts: Sequence[Attempt]) -> int:
    """How many ends count against MOST_RESUMED: all but preemptions after which the checkpoint had moved on."""
    return sum(attempt.cause != "preempted" or attempt.to_step <= attempt.from_step for attempt in attempts)


def in_words(attempt: Attempt) -> str:
    """An attempt as a line: what ended it, when and where."""
    return f"{attempt.told} (after {attempt.seconds:.0f} s; its newest checkpoint is of step {attempt.to_step})"


_LEAVE_ROWS = "leave the rows on the disk (training.tensors: per_batch)"


def memory_fix(batch: tuple[int, int] | None, in_update: bool | None, rows_on_disk: bool = False) -> str:
    """What to change after memory ran out; `in_update` is None where nobody knows what it was doing."""
    leave = "take fewer loaders (compute.loaders)" if rows_on_disk else _LEAVE_ROWS
    elsewhere = f"take fewer rows or columns, {leave}, or take a machine with more memory (compute.sku)"
    if in_update is False or batch is None:
        return f"it ran out beside the optimizer's updates, where a smaller batch helps nothing: {elsewhere}"
    offered = smaller_batch(*batch)
    where = "" if in_update else "if it was training (the lines above say how far it came): "
    if offered is None:
        return f"{where}a batch is one row already: a smaller network, precision bf16, or a machine with more memory"
    rows, before = offered[0] * offered[1], batch[0] * batch[1]
    keep = f"keep the update's {before:,} rows" if rows == before else f"make updates of {rows:,} rows, not {before:,}"
    offer = (
        f"training.batch_size: {offered[0]} and training.accumulate: {offered[1]} {keep} at about half the memory of "
        "activations (a new training: preflight forecasts its memory first)"
    )
    return f"{where}{offer}" if in_update else f"{where}{offer}; else {elsewhere}"


def smaller_batch(batch_size: int, accumulate: int) -> tuple[int, int] | None:
    """(batch_size, accumulate) of half the rows a forward pass or less, and equal rows an update where they divide.

    None if a forward pass is one row already.
    """
    if batch_size == 1:
        return None
    rows = batch_size * accumulate
    exact = (parts for parts in range(2 * accumulate, 4 * accumulate + 1) if rows % parts == 0)
    parts = next(exact, None)
    return (math.ceil(batch_size / 2), 2 * accumulate) if parts is None else (rows // parts, parts)


def _counted(end: End) -> bool:
    return bool(end.memory.kernel_kills)


def _killed_for_memory(end: End) -> bool:
    memory = end.memory
    if end.exit_code != -signal.SIGKILL:
        return False
    if memory.kernel_kills is not None:
        return memory.kernel_kills > 0
    if memory.peak_bytes is None or memory.limit_bytes is None:
        return False
    return memory.peak_bytes >= NEARLY_ALL * memory.limit_bytes


def _ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def _fix_unknown(end: End) -> str:
    if end.exit_code == EXIT_STORAGE:
        return (
            "see that the disk, file server or bucket of its folder answers (the worker's log says what failed), then "
            "run again: a training resumes"
        )
    if end.exit_code >= 0:
        return "user code ended the process by itself (sys.exit, os._exit): take that out of model.py"
    again = "run again: a training resumes"
    match signal.Signals(-end.exit_code):
        case signal.SIGKILL:
            usual = "a limit of a container or scheduler, systemd-oomd, or kill -9"
            return f"the usual causes are memory, {usual}; look there, then {again}"
        case signal.SIGBUS:
            return f"the usual causes are a full /dev/shm and a mapped file that was cut short; fix it, then {again}"
        case signal.SIGTERM | signal.SIGINT | signal.SIGHUP:
            return f"somebody asked the process to end; {again}"
        case _:
            return f"native code crashed; the stack above names the line; another version of that library, then {again}"


def _size(size: int | None) -> str:
    return f"{(size or 0) / 2**30:.1f} GiB"
