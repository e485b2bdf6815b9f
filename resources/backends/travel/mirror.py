"""The node's side: has what its worker writes in the bucket, turn by turn, and its end last of all.

Each turn first has new bytes there, and then the index that names them; whatever it was cut off at, it is done again
with the same bytes, so that no reply has to arrive. Nothing that fails ends a worker: it is tried again at the next
turn.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.storage.checkpoints import reached_step
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends.on_node import END, STDERR, STDOUT, NodeEnd
from trainworthy.resources.backends.travel.parcel import keep
from trainworthy.resources.backends.travel.places import (
    CHECKPOINTS,
    ENDED,
    FILES,
    INDEX,
    OF_ONE_PLACE,
    STREAMS_OF_PIPES,
    Index,
    Parcel,
    is_stream,
    kept_here,
    walked,
)
from trainworthy.resources.backends.travel.sent import Sent, signature_of
from trainworthy.resources.backends.travel.streams import StreamsSent
from trainworthy.resources.backends.travel.turns import Moved, Turns, told

# So long an object stays that no index names any more: a launcher may be about to fetch it.
SUPERSEDED_SECONDS = 60.0
# The index is written again after so many turns without a change: a late request of an earlier turn may lie over it.
AGAIN_TURNS = 30
# How many files are named that stay on the node.
NAMED = 5


class NodeMirror:
    """What the worker of one start writes below `root`, for its launcher."""

    def __init__(self, bucket: Bucket, prefix: str, parcel: Parcel, root: Path) -> None:
        self._bucket, self._prefix = bucket, prefix
        self._out, self._folder = root / parcel.out, root / parcel.folder
        # What was sent of each file; those of the parcel came by it.
        self._known: dict[str, Sent] = {}
        for name, sha256 in parcel.files.items():
            if (path := root / name).is_relative_to(self._out):
                known = Sent(signature_of(path), sha256, time.monotonic())
                self._known[path.relative_to(self._out).as_posix()] = known
        self._lasting = set(parcel.files.values())
        # What lies below the start's own files/, and when an index named it last.
        self._passing: dict[str, float] = {}
        self.moved = Moved()
        self._streams = StreamsSent(bucket, prefix, self.moved.note)
        # What was said last, but for its number; and that of the last attempt to say it.
        self._last: Index | None = None
        self._turn, self._unchanged = 0, 0
        self._turns = Turns(self.turn, "the launcher hears nothing of this worker")
        self._beside = Turns(self._turn_beside, "the launcher hears no messages of this worker")
        # Held by who sends streams and says the index. A turn is under way; the end is.
        self._alone, self._in_turn, self._ends = threading.Lock(), False, False

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[None]:
        """Turns, by threads of their own."""
        with self._turns.kept_up(), self._beside.kept_up():
            try:
                yield
            finally:
                self._ends = True

    def end(self, exit_code: int, until: Callable[[], float]) -> bool:
        """The last turn, tried again until the time by the monotonic clock; False if it did not come to be."""
        self.moved.begin()
        self._ends = True
        self._tell_what_stays()
        return self._turns.insist(lambda: self.turn(exit_code), until)

    def _tell_what_stays(self) -> None:
        """Once, at the end: who misses a file shall know why."""
        with contextlib.suppress(OSError):
            if stays := kept_here(self._out, OF_ONE_PLACE):
                more = f" and {len(stays) - NAMED} more" if len(stays) > NAMED else ""
                told(say, f"links, hidden files and odd names stay on this node: {', '.join(stays[:NAMED])}{more}")

    @property
    def failed_by(self) -> str:
        """What the last turn that failed met; "" if none has."""
        return self._turns.failed_by

    def turn(self, exit_code: int | None = None) -> None:
        """Have all that changed in the bucket; with an exit code as the end. Raises OSError, StateError."""
        ended, files = exit_code is not None, dict[str, str]()
        left_out = OF_ONE_PLACE if exit_code == 0 else (*OF_ONE_PLACE, CHECKPOINTS)
        if ended:
            # Its last messages wait for no file, which may take longer than there is time.
            with self._alone:
                self._say(self._last or Index(turn=1, files={}, streams={}))
        self._in_turn = True
        try:
            for name, path in walked(self._out, left_out, refuse=False):
                if not is_stream(name) and (sha256 := self._file(name, path, ended=ended)) is not None:
                    files[name] = sha256
        finally:
            self._in_turn = False
        end = {"ended": True, "whole": exit_code == 0, "end": _text(self._folder / END)} if ended else {}
        with self._alone:
            index = self._say(Index(turn=1, files=files, streams={}).model_copy(update=end))
        if not ended:
            self._remove_superseded(index)

    def _turn_beside(self) -> None:
        """What is read as it comes, while a turn sends a large file. Raises OSError."""
        with self._alone:
            if self._in_turn and not self._ends:
                self._say(self._last or Index(turn=1, files={}, streams={}))

    def _say(self, index: Index) -> Index:
        """Send what came to streams, and have the index with that in the bucket if it says anything new."""
        index = index.model_copy(
            update={"streams": self._sent_streams(ended=index.ended), "reached": reached_step(self._out)}
        )
        self._unchanged += 1
        if index != self._last or self._unchanged >= AGAIN_TURNS:
            self._write(index)
            self._last, self._unchanged = index, 0
        return index

    def _sent_streams(self, *, ended: bool) -> dict[str, int]:
        output = [path for path in (self._folder / STDOUT, self._folder / STDERR) if path.exists()]
        paths = [
            *(path for path in self._out.glob(STREAMS_OF_PIPES) if path.is_file() and not path.is_symlink()),
            *output,
        ]
        names = {path.relative_to(self._out).as_posix(): path for path in sorted(paths)}
        return {name: self._streams.send(name, path, ended=ended) for name, path in names.items()}

    def _write(self, index: Index) -> None:
        """Each attempt with a number of its own: one whose reply was lost may have been read."""
        self._turn += 1
        content = canonical_json(index.model_copy(update={"turn": self._turn}).model_dump(mode="json"))
        # The end has a name of its own, which no request of an earlier turn can write that comes late.
        self._bucket.put(f"{self._prefix}/{ENDED if index.ended else INDEX}", content)

    def _remove_superseded(self, index: Index) -> None:
        """Remove files of earlier turns, else all states of one that grows would stay there until the end."""
        now = time.monotonic()
        self._passing |= dict.fromkeys(self._passing.keys() & set(index.files.values()), now)
        old = {sha256 for sha256, named in self._passing.items() if now - named > SUPERSEDED_SECONDS}
        if not old:
            return
        # One that comes back is sent again, whatever becomes of this request; what it leaves goes at the end.
        self._passing = {sha256: named for sha256, named in self._passing.items() if sha256 not in old}
        self._known = {name: known for name, known in self._known.items() if known.sha256 not in old}
        with contextlib.suppress(OSError):
            self._bucket.delete(*(f"{self._prefix}/{FILES}/{sha256}" for sha256 in old))

    def _file(self, name: str, path: Path, *, ended: bool) -> str | None:
        """Have a file's bytes there; their hash, None where it is gone meanwhile."""
        try:
            signature = signature_of(path)
            known = self._known.get(name)
            # At the end each is read: one that is written in place within a tick of the clock looks unchanged.
            if known is not None and known.stands_for(signature) and not ended:
                return known.sha256
        except FileNotFoundError:
            return None
        if ended:
            # Nobody writes it any more.
            sha256 = sha256_file(path)
            if sha256 not in self._lasting:
                keep(self._bucket, path, sha256, self.moved.note)
                self._lasting.add(sha256)
        elif (sha256 := self._sent_copy(path)) is None:
            return None
        self._known[name] = Sent(signature, sha256, time.monotonic())
        return sha256

    def _sent_copy(self, path: Path) -> str | None:
        """Send a file as it is at this moment, which may be half of what it is to be; None where it is gone."""
        with tempfile.TemporaryDirectory(prefix="trainworthy-turn-") as folder:
            copy = Path(folder, "file")
            try:
                shutil.copyfile(path, copy)
            except FileNotFoundError:
                return None
            sha256 = sha256_file(copy)
            # Also what lies below files/ to stay: before the end the launcher looks here alone.
            if sha256 not in self._passing:
                key = f"{self._prefix}/{FILES}/{sha256}"
                self._bucket.upload(key, copy, functools.partial(self._went, key))
                self._passing[sha256] = time.monotonic()
            return sha256

    def _went(self, key: str, size: int) -> None:
        self.moved.note(key, size)
        if self._ends:
            # The end has its own, and the line for itself.
            raise OSError(errno.ECANCELED, "the worker has ended")


def send_refusal(bucket: Bucket, prefix: str, error: TrainworthyError, exit_code: int) -> None:
    """Have in the bucket that this node ran no worker, and why: as error.json and an end. Raises OSError."""
    report = {"problem": error.problem, "value": error.value, "fix": error.fix, "passes": False}
    content = canonical_json(report)
    sha256 = hashlib.sha256(content).hexdigest()
    bucket.put(f"{FILES}/{sha256}", content)
    end = NodeEnd(exit_code=exit_code).model_dump_json()
    index = Index(turn=1, files={"error.json": sha256}, streams={}, ended=True, end=end)
    bucket.put(f"{prefix}/{ENDED}", canonical_json(index.model_dump(mode="json")))


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
