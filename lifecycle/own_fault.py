"""Whether an error is a fault of Trainworthy itself: told by the frames that it came through. Imports no torch."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from trainworthy.lifecycle.error_causes import ran_out_of_memory
from trainworthy.lifecycle.errors import TrainworthyError

_PACKAGE = Path(__file__).resolve().parent
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
