"""How a worker's work ended: its exit code, and what its folder's error.json tells."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.error_causes import (
    PASSING_ERRNOS,
    BatchError,
    PreemptedError,
    ended_its_device,
    in_an_update,
    lost_rank,
    ran_out_of_memory,
    storage_errno,
)
from trainworthy.lifecycle.errors import LeaseLostError, TrainworthyError
from trainworthy.lifecycle.failure import (
    EXIT_BAD_INPUT,
    EXIT_DISK_FULL,
    EXIT_HANG,
    EXIT_INTERNAL,
    EXIT_LEASE_LOST,
    EXIT_OUT_OF_MEMORY,
    EXIT_PREEMPTED,
    EXIT_RANK_LOST,
    EXIT_STORAGE,
)
from trainworthy.lifecycle.task import line_of

# What one of several ranks ended by. An error's frames hold torch's connection to the others, whose destructor may wait
# for them for long: in native code, where nothing is told any more and no signal is handled. So none is let go.
HELD: list[BaseException] = []


def ended(
    do: Callable[[], object], use_case: Path, *, by_ranks: bool = False
) -> tuple[int, dict[str, Any] | None]:  # fmt: skip
    """Exit code of what is done and, if it is not 0, what to tell.

    `by_ranks`: of one of several ranks, for which a lost connection is another rank's end. A script may use
    torch.distributed by itself, and its errors are its own.
    """
    try:
        do()
    except PreemptedError as error:
        message = str(error) or "preempted; a checkpoint is written"
        return EXIT_PREEMPTED, {"problem": message, "fix": "run again: it resumes"}
    except TrainworthyError as error:
        code = EXIT_LEASE_LOST if isinstance(error, LeaseLostError) else EXIT_BAD_INPUT
        details = {"problem": error.problem, "value": _text(error.value), "fix": error.fix}
        HELD.extend([error] if by_ranks else [])
        return code, details | {"exception": type(error).__name__}
    except Exception as error:
        HELD.extend([error] if by_ranks else [])
        lost = lost_rank(error) if by_ranks else None
        if lost is not None:
            # What ended the other rank is told by rank_ends.py.
            code = EXIT_HANG if lost == "late" else EXIT_RANK_LOST
            where = line_of(error, use_case)
            return code, {"problem": str(error).splitlines()[0], "value": where, "fix": "see the other ranks"}
        traceback.print_exc()
        code, details = _internal(error, use_case)
        return code, details | {"exception": type(error).__name__}
    return 0, None


def _internal(error: Exception, folder: Path) -> tuple[int, dict[str, Any]]:
    """What to tell, with the last line of the use case's own code that was reached, if any.

    A full disk, memory and storage have codes of their own; torch tells a full disk only in words.
    """
    # What a loader met counts as if it had happened here.
    root = error.__cause__ if isinstance(error, BatchError) and error.__cause__ else error
    number = storage_errno(root)
    full = number == errno.ENOSPC or "No space left" in str(error)
    problem = f"{type(error).__name__}: {error}"
    where = line_of(error, folder)
    if full:
        return EXIT_DISK_FULL, {
            "problem": problem,
            "value": where,
            "fix": "free disk space, then run again: it resumes",
        }
    if ran_out_of_memory(error):
        # The fix has the numbers of the job, which whoever started this process has too.
        details = {"problem": problem, "value": where, "in_update": in_an_update(error)}
        return EXIT_OUT_OF_MEMORY, details | {"fix": "use less memory"}
    if ended_its_device(error):
        return EXIT_INTERNAL, {
            "problem": f"{problem.splitlines()[0]}: a kernel on the GPU refused what it was given. Usual are a class, "
            "label or token number out of range, and a loss that wants numbers from 0 to 1",
            "value": where,
            "fix": "run preflight with compute.device: cpu, where the same raises with its line and the number; the "
            "line told here is where the GPU was next waited for",
        }
    if number is not None:
        return EXIT_STORAGE, {
            "problem": problem,
            "value": where,
            "passes": number in PASSING_ERRNOS,
            "fix": "look at the storage, then run again: it resumes",
        }
    fix = "the traceback above names the line; if it is in the use case's code, correct it there"
    return EXIT_INTERNAL, {"problem": problem, "value": where, "fix": fix}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
