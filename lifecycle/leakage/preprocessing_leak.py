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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.leakage.row_independence import OTHERS, extreme_rows
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.task import Task, fit_preprocessing, load_task

FILES, STATE = "data_files", "fitted_state"
# Another run may open the same files; model.py opens them every time, and none while it is not called.
ATTEMPTS, LEAST_IDLE_SECONDS = 3, 0.5
_IN_OPEN, _IN_Q_OVERFLOW, _EVENT = 0x20, 0x4000, struct.Struct("iIII")


def own_rows(
    folder: Path, training: pd.DataFrame, hyperparameters: Mapping[str, Any], seed: Callable[[], None],
    data_folders: Sequence[Path], allowed: Path, target: Mapping[str, Any] | None = None,
) -> list[Leak]:  # fmt: skip
    """One finding on files, one on the fitted state. `training` holds the features; `allowed` may be read.

    `target` is what fit_preprocessing tells of the label.
    """
    states: list[bytes] = []

    def fit(task: Task) -> bytes:
        seed()
        return canonical_json(fit_preprocessing(task, training.copy(), hyperparameters, target))

    def use() -> None:
        task = load_task(folder)
        states.append(fit(task))
        state = fit_preprocessing(task, training.copy(), hyperparameters, target)
        task.to_tensors(extreme_rows(training, OTHERS), state)
        states.append(fit(task))

    on_files = _on_files(use, data_folders, allowed)
    if not states:
        use()
    if len(set(states)) > 1 and len(states) == 2:
        # Once more from a fresh module: is it what the module saw, or does it never learn the same?
        use()
    return [on_files, _on_state(states)]


def _on_files(use: Callable[[], None], folders: Sequence[Path], allowed: Path) -> Leak:
    """Uses model.py until an attempt opens no file of the data, at most ATTEMPTS times; then looks who else does."""
    started = time.monotonic()
    watches: list[Watch] = []
    always: set[Path] = set()
    try:
        for _ in range(ATTEMPTS):
            with watched_files(folders) as watch:
                use()
            watches.append(watch)
            always = set.intersection(*(attempt.opened for attempt in watches)) - {allowed.resolve()}
            if not always:
                evidence = f"model.py opens no file of {watch.folders} folders of data"
                return Leak(taxon="L1.2", family=FILES, status="pass", evidence=evidence)
        with watched_files(folders) as idle:
            time.sleep(max(time.monotonic() - started, LEAST_IDLE_SECONDS))
    except WatchError as error:
        fix = "run on Linux, or raise fs.inotify.max_user_instances, max_user_watches or max_queued_events"
        return _unseen(f"the kernel does not tell which files are opened ({error})", fix)
    certain = always - idle.opened
    if not certain:
        fix = "run again when no other process reads the data, such as a validation beside this run"
        return _unseen(f"another process opens the same files: {_names(always)}; whether model.py does is open", fix)
    evidence = f"model.py opens {_names(certain)}: rows beyond those that it is handed"
    return Leak(taxon="L1.2", family=FILES, status="fail", observed=len(certain), evidence=evidence, fix=fix_of(FILES))


def _names(files: set[Path]) -> str:
    return ", ".join(sorted({path.name for path in files})[:5])


def _unseen(evidence: str, fix: str) -> Leak:
    return Leak(taxon="L1.2", family=FILES, status="insufficient", evidence=evidence, fix=fix)


def _on_state(states: Sequence[bytes]) -> Leak:
    """`states` alternate between a fresh module and the same after it saw other rows."""
    fresh, after = set(states[::2]), set(states[1::2])
    if fresh != after and len(fresh) == 1:
        evidence = "fit_preprocessing learns another state after to_tensors saw other rows"
        return Leak(taxon="L1.2", family=STATE, status="fail", evidence=evidence, fix=fix_of(STATE))
    if len(fresh | after) > 1:
        return _not_measurable()
    evidence = "equal training rows give the same state, bit for bit, whatever the module saw before"
    return Leak(taxon="L1.2", family=STATE, status="pass", evidence=evidence)


def _not_measurable() -> Leak:
    evidence = "equal training rows give another state each time; what else it depends on can't be seen"
    fix = "draw random numbers from numpy, random or torch as seeded by the caller, and order sets and dicts"
    return Leak(taxon="L1.2", family=STATE, status="insufficient", evidence=evidence, fix=fix)


class WatchError(Exception):
    """The kernel could not tell all files that were opened."""


@dataclass
class Watch:
    """How many folders are watched, and the data files in them that any process opened, once the block is left."""

    folders: int
    opened: set[Path] = field(default_factory=set)


@contextmanager
def watched_files(folders: Sequence[Path]) -> Iterator[Watch]:
    """Watches all folders with data below `folders`, by inotify(7). Raises WatchError where that misses anything."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        raise WatchError("no inotify")
    descriptor = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    try:
        watched = {
            _checked(libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_OPEN)): folder
            for folder in _folders_of_data(folders)
        }
        if not watched:
            raise WatchError("no folder of data is there to be watched")
        watch = Watch(len(watched))
        yield watch
        watch.opened |= set(_events(descriptor, watched))
    finally:
        os.close(descriptor)


def _folders_of_data(folders: Sequence[Path]) -> set[Path]:
    return {path.parent.resolve() for folder in folders if folder.is_dir() for path in folder.rglob("*.parquet")}


def _events(descriptor: int, watched: Mapping[int, Path]) -> Iterator[Path]:
    """The opened files. Raises WatchError if the kernel's queue was full, since it then drops events."""
    while True:
        try:
            block = os.read(descriptor, 65_536)
        except BlockingIOError:
            return
        place = 0
        while place < len(block):
            watch, mask, _, length = _EVENT.unpack_from(block, place)
            if mask & _IN_Q_OVERFLOW:
                raise WatchError("more files were opened at once than its queue holds")
            place += _EVENT.size
            name = os.fsdecode(block[place : place + length].rstrip(b"\0"))
            place += length
            if name.endswith(".parquet") and watch in watched:
                yield watched[watch] / name


def _checked(result: int) -> int:
    if result < 0:
        raise WatchError(os.strerror(ctypes.get_errno()))
    return result
