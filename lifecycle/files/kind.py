"""What kinds of files the values of a column may be, and where they may lie."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from trainworthy.lifecycle.files.tree import FILES

FileKind = Literal["picture", "array", "text", "mask"]


def outside(path: str) -> str:
    """Why a value is no path below the dataset's folder of files, in words; empty if it is one."""
    if "\\" in path or "\0" in path:
        return "it is written with a backslash"
    if PurePosixPath(path).is_absolute() or ".." in path.split("/"):
        return "it leads out of the dataset's folder"
    if not path.startswith(f"{FILES}/") or path.endswith("/"):
        return f"it does not begin with {FILES}/"
    return ""
