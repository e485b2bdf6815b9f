"""The folder of a node in which workers of one launcher find their files: it has no others, and keeps none.

A pod has it to itself. On another machine several workers may have it at once; the first one to come and the last one
to go leave it empty. What is there without our mark, or hidden, is somebody's, and is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.folder_lock import taken
from trainworthy.lifecycle.progress import say

# A file with the launcher's name, locked by each of its workers that are there.
MARK = ".trainworthy-node"


@contextlib.contextmanager
def held(root: Path, launcher: str) -> Iterator[None]:
    """Have the folder `root` for a worker of that launcher. Raises BackendError if that cannot be."""
    with _marked(root) as mark:
        if taken(mark):
            with _told(root):
                _empty(root)
                mark.truncate(0)
                mark.write(launcher)
                mark.flush()
        # Waits for another that is just emptying it.
        fcntl.flock(mark, fcntl.LOCK_SH)
        mark.seek(0)
        if mark.read() != launcher:
            fix = "let each launcher have its project under a path of its own, or run again once the other is done"
            raise BackendError("workers of another launcher have the folder of this node", value=str(root), fix=fix)
        try:
            yield
        finally:
            _leave(root, mark)


@contextlib.contextmanager
def _marked(root: Path) -> Iterator[IO[str]]:
    """The mark, made where the folder is empty or not there."""
    mark = root / MARK
    with _told(root):
        root.mkdir(parents=True, exist_ok=True)
        others = [path for path in root.iterdir() if path.name != MARK]
        # Nothing hidden is sent. The mark is looked for last: who made it did so before any other file.
        foreign = [path for path in others if path.name.startswith(".")] or ([] if mark.exists() else others)
        if foreign:
            fix = (
                f"let {root} be absent or empty on this node: workers are sent their files there, and others' would be "
                "lost (the launcher's own machine can be no such node)"
            )
            raise BackendError("the folder of this node has files of somebody else", value=str(foreign[0]), fix=fix)
        file = mark.open("a+")
    with file:
        yield file


@contextlib.contextmanager
def _told(root: Path) -> Iterator[None]:
    """Raises BackendError in place of OSError."""
    try:
        yield
    except OSError as error:
        fix = f"make {root} on each node, with room, as a folder of the user whose workers run there"
        problem = f"this node cannot have the files of a worker at {root}: {error.strerror or error}"
        raise BackendError(problem, value=str(error.filename or root), fix=fix) from error


def _leave(root: Path, mark: IO[str]) -> None:
    try:
        if taken(mark):
            _empty(root)
    except OSError as error:
        say(f"files of the worker stay on this node, and the next one removes them: {error}")


def _empty(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()
