"""What lies in the bucket of one start, and which names and files may travel.

Below `travel/<worker>/<start>/` the launcher writes parcel.json and wanted.json, and the node all else; each object has
one writer, so that none is written under a condition but node.json, by which of two pods one is the node. Files go by
the hash of their bytes: what is to stay below `files/`, where shared state keeps its own, and what a worker has only
written so far below the start's own `files/`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, StringConstraints

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.shared.files import is_plain

# What runs on the node, where no storage is shared with it.
ARRIVAL = "trainworthy.resources.backends.travel.arrival"
TRAVEL, FILES = "travel", "files"
PARCEL, WANTED, INDEX, ENDED, STREAMS = "parcel.json", "wanted.json", "index.json", "ended.json", "streams"
# Which pod does the job: the first one that wrote it.
NODE = "node.json"
# How many files are sent or fetched at once.
AT_ONCE = 8
# Between two turns of a node, and between two looks of its launcher.
TURN_SECONDS = 2.0
# So long a request about a sign of life may take, and so long it is tried again.
SIGN_ANSWER_SECONDS, SIGN_RETRY_SECONDS = 5.0, 5.0
# What a node has after its worker's grace to have its end in the bucket.
LAST_SECONDS = 30.0
# Folders of a job's folder that are of one place alone: signs of starts, and a copy that a training went on from.
OF_ONE_PLACE = ("kubernetes", "ray", "fetched")
CHECKPOINTS = "checkpoints"
_CACHE = "__pycache__"
STREAMS_OF_PIPES = "pipes-*/messages"
_STREAM = re.compile(r"pipes-[^/]+/messages")
Given = TypeVar("Given")
Made = TypeVar("Made")


def _plain(name: str) -> str:
    if not is_plain(name):
        raise ValueError("a name leads out of its folder")
    return name


Name = Annotated[str, AfterValidator(_plain)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Parcel(Frozen):
    """What a node needs: files below the project's folder by name; where the job's and this start's folders are.

    `folders` hold nothing but files of `files`. `code` is the hash of the launcher's Trainworthy, and `launcher` its
    name (road.py).
    """

    form: Literal[1] = 1
    code: Sha256
    launcher: str
    out: Name
    folder: Name
    folders: tuple[Name, ...]
    files: dict[Name, Sha256]


class Index(Frozen):
    """What a node's job folder holds by now: files by name, and how long its streams are.

    `reached` is the step of its newest checkpoint. At the end, `ended`, all files lie where they are to stay; `end` is
    how the worker ended, as on_node.py says it, and with `whole` there are no other files in the folder.
    """

    form: Literal[1] = 1
    turn: int = Field(ge=1)
    files: dict[Name, Sha256]
    streams: dict[Name, int]
    reached: int = 0
    ended: bool = False
    whole: bool = False
    end: str | None = None


def is_stream(name: str) -> bool:
    """True of a file of the job's folder that only grows: the messages of Dagster's Pipes."""
    return _STREAM.fullmatch(name) is not None


def start_prefix(worker: str, folder: Path) -> str:
    """Below which name the objects of a start lie whose signs are in that folder."""
    return f"{TRAVEL}/{worker}/{folder.name}"


def chunk(name: str, offset: int) -> str:
    """The object of a stream's bytes from there on."""
    return f"{STREAMS}/{name}/{offset:015d}"


def field_of(where: str) -> str:
    """The field of a job in which a text stands, without its number in a list: of a diagnosis's training as of it."""
    return where.removeprefix("training.").partition("[")[0]


def walked(folder: Path, left_out: Collection[str] = (), *, refuse: bool = True) -> Iterator[tuple[str, Path]]:
    """Files below a folder by name, without what is hidden, __pycache__, and `left_out`, names right below it.

    Raises SettingsError for a link that leads out of the folder or to a folder, and for a name that cannot travel. With
    `refuse` False these and all other links are left out. Raises OSError for a folder that cannot be read; one that is
    gone by then is none.
    """
    for here, folders, names in os.walk(folder, onerror=_unless_gone):
        at = Path(here)
        folders[:] = sorted(name for name in folders if _travels(name) and not (at == folder and name in left_out))
        for path in (at / name for name in sorted((*names, *folders)) if _travels(name)):
            problem = _problem(path, folder)
            if problem and refuse:
                fix = "copy there what a link leads to, give it another name, or move it out of the folder"
                raise SettingsError(f"{problem}, and its folder goes to another machine", value=str(path), fix=fix)
            if path.is_file() and not problem and not (path.is_symlink() and not refuse):
                yield path.relative_to(folder).as_posix(), path


def kept_here(folder: Path, left_out: Collection[str]) -> list[str]:
    """Names of links, hidden files and the like that `walked` passes over, but for what is hidden right below."""
    walk, found = os.walk(folder, onerror=_unless_gone), list[str]()
    for at, folders, names in ((Path(here), folders, names) for here, folders, names in walk):
        top = at == folder
        folders[:] = sorted(name for name in folders if not (top and (name in left_out or not _travels(name))))
        for path in (at / name for name in sorted((*names, *folders)) if _travels(name) or not top):
            stays = not _travels(path.name) or path.is_symlink() or _problem(path, folder)
            if stays and path.name != _CACHE:
                found.append(path.relative_to(folder).as_posix())
        folders[:] = [name for name in folders if _travels(name)]
    return found


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _problem(path: Path, folder: Path) -> str:
    """What keeps a file or folder from another machine; "" if nothing does."""
    if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(folder.resolve())):
        return "a link leads out of its folder, or to a folder"
    return "" if is_plain(path.name) and path.name.isprintable() else "a name has characters that cannot travel"


def _travels(name: str) -> bool:
    return not name.startswith(".") and name != _CACHE


class Gate:
    """Lets changes of a folder through, one at a time, until it is closed: another may write there then."""

    def __init__(self) -> None:
        self._alone, self._closed = threading.Lock(), False

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """For one change, which waits for nothing. Raises OSError once it is closed."""
        with self._alone:
            if self._closed:
                raise OSError(errno.ECANCELED, "nobody waits for it any more")
            yield

    def check(self) -> None:
        """Raises OSError once it is closed."""
        with self.open():
            pass

    def close(self) -> None:
        """For good."""
        with self._alone:
            self._closed = True


def at_once(work: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """What `work` makes of each, several at a time; after the first error no other is begun.

    By threads that keep no process from its end: whoever is interrupted here waits for none of them.
    """
    items, made, errors = list(given), dict[int, Made](), list[BaseException]()
    numbers = iter(range(len(items)))

    def go() -> None:
        for number in numbers:
            if errors:
                return
            try:
                made[number] = work(items[number])
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=go, name="files of a bucket", daemon=True) for _ in items[:AT_ONCE]]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as interrupt:
        errors.append(interrupt)
        raise
    if errors:
        raise errors[0]
    return [made[number] for number in range(len(items))]
