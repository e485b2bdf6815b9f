"""Files of a dataset that rows name: everything below `files/` in its folder, beside the Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.progress import Progress

FILES = "files"
# Hashing, Pillow and zlib let other threads run; more of them than this wait for the disk.
MOST_THREADS = 8
# Fewer are done before a line about them could be read.
PROGRESS_FROM = 2_000
_AT_ONCE = 4_096

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")


def is_file_name(name: str) -> bool:
    """True if a name, relative to a dataset's folder, is that of a file which rows may name."""
    return name.startswith(f"{FILES}/")


def tree_files(folder: Path) -> dict[str, Path]:
    """The files below `files/` of a dataset's folder by relative name, in order; {} if there are none.

    Raises DatasetError for a link that leaves the folder, and for one to a folder, `files` itself included.
    """
    if (folder / FILES).is_symlink():
        raise _linked(FILES)
    paths = dict(_walk(folder / FILES, folder)) if (folder / FILES).is_dir() else {}
    return dict(sorted(paths.items()))


def _walk(start: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    inside = folder.resolve()
    for parent, folders, names in os.walk(start):
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        for name in (*linked, *names):
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink() and (name in linked or not path.resolve().is_relative_to(inside)):
                raise _linked(relative)
            yield relative, path


def _linked(name: str) -> DatasetError:
    fix = "put the files themselves there, not links"
    return DatasetError("a file outside the dataset's folder: a link leads there", value=name, fix=fix)


def tree_hashes(files: Iterable[Path], title: str = "hashing files") -> list[str]:
    """sha256 of each file's bytes, several at a time, in their order."""
    return in_threads(sha256_file, [*files], title)


def in_threads(
    work: Callable[[_Item], _Done], items: list[_Item], title: str, keep: Callable[[list[_Done]], None] | None = None
) -> list[_Done]:
    """What `work` makes of each item, several at a time, in their order; long work says how far it is.

    `keep` is given all that is done whenever some thousand more are, so that little is lost where the work ends early.
    """
    progress = Progress(title, len(items)) if len(items) >= PROGRESS_FROM else None
    done: list[_Done] = []
    try:
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            # In parts, so that an error ends it soon and no million of futures is held.
            for first in range(0, len(items), _AT_ONCE):
                for result in pool.map(work, items[first : first + _AT_ONCE]):
                    done.append(result)
                    if progress is not None:
                        progress.advance()
                if keep is not None:
                    keep(done)
    finally:
        if progress is not None:
            progress.close()
    return done
