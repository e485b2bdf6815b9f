"""The launcher's folder of a job, made as the node says that its own is: a file whole or not at all, the end last."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable
from pathlib import Path

from trainworthy.lifecycle.storage.checkpoints import REACHED
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.resources.backends.travel.parcel import fetch
from trainworthy.resources.backends.travel.places import FILES, OF_ONE_PLACE, Gate, Index, at_once, is_stream
from trainworthy.resources.backends.travel.streams import StreamsReceived
from trainworthy.resources.backends.travel.turns import Moved


class Landing:
    """The folder `out` of a start whose objects lie below `prefix`; `end` is where its worker's end is read.

    `alike` are files that are the same here and there: their hashes by name. Changes are made while `gate` is open.
    """

    def __init__(self, bucket: Bucket, prefix: str, out: Path, end: Path, gate: Gate, moved: Moved) -> None:
        self._bucket, self._prefix, self._out, self._end = bucket, prefix, out, end
        self._gate, self._moved = gate, moved
        self._streams = StreamsReceived(bucket, prefix, out, gate, moved.note)
        self.alike: dict[str, str] = {}

    def take(self, index: Index) -> None:
        """Make it as the index says. Raises OSError; what came by then stays."""
        self.take_streams(index)
        if index.reached:
            self.write(self._out / REACHED, str(index.reached))
        below = FILES if index.ended else f"{self._prefix}/{FILES}"
        changed = [item for item in index.files.items() if self.alike.get(item[0]) != item[1]]
        self._make_way(name for name, _ in changed)
        at_once(lambda item: self._fetch(below, *item), changed)
        if index.whole:
            self._remove_others(index)
        if index.end is not None:
            self.write(self._end, index.end)

    def take_streams(self, index: Index) -> None:
        """The same of its streams alone. Raises OSError."""
        for stream, length in index.streams.items():
            # Nobody takes half a line for a message.
            self._streams.append(stream, length, whole=index.ended and not is_stream(stream))

    def write(self, path: Path, text: str) -> None:
        """A file of this folder's own, whole or not at all. Raises OSError."""
        with self._gate.open():
            write_atomic(path, text.encode())

    def _fetch(self, below: str, name: str, sha256: str) -> None:
        fetch(self._bucket, f"{below}/{sha256}", self._out / name, self._gate, self._moved.note)
        self.alike[name] = sha256

    def _make_way(self, names: Iterable[str]) -> None:
        """Remove files where folders are now, and folders where files are; not those of this place alone."""
        for name in names:
            path = self._out / name
            if path.is_dir() and name not in OF_ONE_PLACE:
                self._clear(path)
            for above in itertools.takewhile(lambda folder: folder != self._out, path.parents):
                if above.is_file() or above.is_symlink():
                    self._clear(above)

    def _clear(self, path: Path) -> None:
        with self._gate.open():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        gone = path.relative_to(self._out)
        self.alike = {name: sha256 for name, sha256 in self.alike.items() if not Path(name).is_relative_to(gone)}

    def _remove_others(self, index: Index) -> None:
        """Remove what lay here and no longer does there, and folders that are empty then."""
        for name in self.alike.keys() - index.files.keys() - index.streams.keys():
            path = self._out / name
            with self._gate.open():
                path.unlink(missing_ok=True)
                del self.alike[name]
                for folder in itertools.takewhile(lambda folder: folder != self._out, path.parents):
                    with contextlib.suppress(OSError):
                        folder.rmdir()
