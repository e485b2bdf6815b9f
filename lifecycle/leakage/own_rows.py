"""L1.2: what fit_preprocessing learns must come from the training rows that it is handed, and from nothing else.

It is handed nothing else, so there are two ways round that: files, and what the module remembers. Both are watched
where they happen. The kernel tells which data files are opened while model.py is imported, fitted and used, by
whichever library: a garbled copy of the files would only be met by code that follows the copy's path. And the state
has to be the same, bit for bit, in a fresh module and in one that has seen rows of extreme values.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.identity import canonical_json
from lifecycle.leakage.finding import Finding
from lifecycle.leakage.rows_apart import OTHERS, extreme_rows
from lifecycle.task import Task, fit_preprocessing, load_task

if TYPE_CHECKING:
    import pandas as pd

FILES, STATE = "data_files", "fitted_state"
# Another run may open the same files at the same moment; model.py opens them every time.
ATTEMPTS, MOST_FOLDERS = 3, 500
_IN_OPEN, _EVENT = 0x20, struct.Struct("iIII")


def own_rows(
    folder: Path, training: pd.DataFrame, hyperparameters: Mapping[str, Any], seed: Callable[[], None],
    data_folders: Sequence[Path], allowed: Path,
) -> list[Finding]:  # fmt: skip
    """One finding on files, one on the fitted state. `training` holds the features; `allowed` may be read."""
    states: list[bytes] = []

    def fit(task: Task) -> bytes:
        seed()
        return canonical_json(fit_preprocessing(task, training.copy(), hyperparameters))

    def use() -> None:
        task = load_task(folder)
        states.append(fit(task))
        task.to_tensors(extreme_rows(training, OTHERS), fit_preprocessing(task, training.copy(), hyperparameters))
        states.append(fit(task))

    on_files = _on_files(use, data_folders, allowed)
    if len(set(states)) > 1 and len(states) == 2:
        # Once more from a fresh module: is it what the module saw, or does it never learn the same?
        use()
    return [on_files, _on_state(states)]


def _on_files(use: Callable[[], None], folders: Sequence[Path], allowed: Path) -> Finding:
    """Uses model.py until an attempt opens no file of the data, at most ATTEMPTS times."""
    always: set[str] | None = None
    for _ in range(ATTEMPTS):
        try:
            with opened_files(folders) as opened:
                use()
        except OSError as error:
            use()
            told = f"the kernel does not tell which files are opened ({error})"
            fix = "run on Linux, or raise fs.inotify.max_user_instances"
            return Finding(taxon="L1.2", family=FILES, status="insufficient", evidence=told, fix=fix)
        found = {str(path) for path in opened if path != allowed.resolve()}
        always = found if always is None else always & found
        if not always:
            told = f"model.py opens no file of {len(folders)} folders of data"
            return Finding(taxon="L1.2", family=FILES, status="pass", evidence=told)
    names = sorted(Path(path).name for path in always or ())
    fix = "learn from the rows that fit_preprocessing is handed, and read no data in model.py"
    evidence = f"model.py opens {', '.join(names[:5])}: rows beyond those that it is handed"
    return Finding(taxon="L1.2", family=FILES, status="fail", observed=len(names), evidence=evidence, fix=fix)


def _on_state(states: Sequence[bytes]) -> Finding:
    """`states` alternate between a fresh module and the same after it saw other rows."""
    fresh, after = set(states[::2]), set(states[1::2])
    if fresh != after and len(fresh) == 1:
        fix = "keep nothing in the module between calls: no global, no cache that depends on rows"
        evidence = "fit_preprocessing learns another state after to_tensors saw other rows"
        return Finding(taxon="L1.2", family=STATE, status="fail", evidence=evidence, fix=fix)
    if len(fresh | after) > 1:
        return _not_measurable()
    told = "equal training rows give the same state, bit for bit, whatever the module saw before"
    return Finding(taxon="L1.2", family=STATE, status="pass", evidence=told)


def _not_measurable() -> Finding:
    evidence = "equal training rows give another state each time; what else it depends on can't be seen"
    fix = "draw random numbers from numpy, random or torch as seeded by the caller, and order sets and dicts"
    return Finding(taxon="L1.2", family=STATE, status="insufficient", evidence=evidence, fix=fix)


@contextmanager
def opened_files(folders: Sequence[Path]) -> Iterator[set[Path]]:
    """Fills the set with the data files below the folders that any process opened, when the block is left.

    Raises OSError where the kernel can't watch (inotify(7), Linux).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        raise OSError("no inotify")
    descriptor = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    opened: set[Path] = set()
    try:
        watched = {
            _checked(libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_OPEN)): folder
            for folder in _folders_of_data(folders)
        }
        yield opened
        opened |= set(_events(descriptor, watched))
    finally:
        os.close(descriptor)


def _folders_of_data(folders: Sequence[Path]) -> list[Path]:
    found = {path.parent.resolve() for folder in folders if folder.is_dir() for path in folder.rglob("*.parquet")}
    return sorted(found)[:MOST_FOLDERS]


def _events(descriptor: int, watched: Mapping[int, Path]) -> Iterator[Path]:
    """The opened files; a full queue loses events, never whole watches."""
    while True:
        try:
            block = os.read(descriptor, 65_536)
        except BlockingIOError:
            return
        place = 0
        while place < len(block):
            watch, _, _, length = _EVENT.unpack_from(block, place)
            place += _EVENT.size
            name = os.fsdecode(block[place : place + length].rstrip(b"\0"))
            place += length
            if name.endswith(".parquet") and watch in watched:
                yield watched[watch] / name


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
