"""What torch warned of while a script computed its loss, or moved its schedule.

A trial's output is read by nobody, and such a warning names a mistake that looks like a bad rate later: a loss between
(N,) and (N, 1), a softmax over a dimension that nobody chose, a schedule that is stepped before the optimizer.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

# Modules of torch that warn of what is computed, and how such warnings begin. Others are of speed, of workers, and of
# names and defaults that have changed or will.
COMPUTES = ("torch.nn.functional", "torch.optim.lr_scheduler")
OTHER_NUMBERS = (
    "Using a target size", "Implicit dimension choice", "reduction: 'mean' divides", "Argument order of",
    "dropout", "Detected call of `lr_scheduler.step()` before",
)  # fmt: skip
MOST, LETTERS = 5, 300


@contextlib.contextmanager
def warnings_of(folder: Path) -> Iterator[list[str]]:
    """The first MOST different ones, each after the line of the use case's code in `folder` that it is about."""
    found: list[str] = []
    with warnings.catch_warnings():
        # Each line, and also where the same was told before in this process.
        warnings.simplefilter("always")
        told = warnings.showwarning

        def show(message: Warning | str, *about: object) -> None:
            warned = _warned(sys._getframe(1), folder) if str(message).startswith(OTHER_NUMBERS) else ""
            text = f"{warned}: {message}"[:LETTERS]
            if warned and text not in found and len(found) < MOST:
                found.append(text)
                told(message, *about)  # pyright: ignore[reportArgumentType]

        warnings.showwarning = show
        yield found


def _warned(frame: FrameType | None, folder: Path) -> str:
    """The line of code in `folder` that a warning of torch's is about, as file:line; empty for other warnings."""
    while frame is not None and frame.f_globals.get("__name__") == "warnings":
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__") not in COMPUTES:
        return ""
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(folder):
            return f"{file.relative_to(folder)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
