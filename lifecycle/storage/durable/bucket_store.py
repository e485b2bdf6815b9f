"""Copies in a bucket, of which one object is the truth: `training.json` says who writes, and which copies count.

It is changed only as it was read (compare-and-swap), so that what a machine does after another took over counts for
nothing: `token` rises by one with each holder (a fencing token), and a copy is one from the moment its name stands in
`training.json`, written by the holder of that token. Its files lie under a name of their own, which no other writes.
"""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
import socket
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from pydantic import Field

from trainworthy.lifecycle.errors import CheckpointError, LeaseLostError
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.checkpoints import KEEP, verify_checkpoint
from trainworthy.lifecycle.storage.durable.bucket import Bucket, refuse_without_conditions
from trainworthy.lifecycle.storage.durable.head import LeaseHead, change_object, read_object
from trainworthy.lifecycle.storage.durable.holder import Name, taken

HEAD = "training.json"
# A file of a copy: step-<n>-<token>-<number>/<name>.
_FILE = re.compile(r"(?P<objects>step-\d+-(?P<token>\d+)-[0-9a-f]+)/")
# In the training's folder: a copy that was fetched to go on from.
FETCHED = "fetched"
# Tokens that this process holds, by address and training: its threads commit by them, and no other process can.
_TOKENS: dict[tuple[str, Path], int] = {}


class Copy(Frozen):
    """A checkpoint: its name, and the name below which its files lie, written by the holder of `token`.

    Names become those of local files, and whoever may write to the bucket may have written them.
    """

    name: str = Field(pattern=r"^step-\d{8,}$")
    objects: str = Field(pattern=r"^step-\d{8,}-\d+-[0-9a-f]{32}$")
    token: int

    @property
    def step(self) -> int:
        return int(self.name.removeprefix("step-"))


class Head(LeaseHead):
    """training.json: who writes, and which copies count."""

    copies: tuple[Copy, ...] = ()


class BucketStore:
    """The copies below an address as a CheckpointStore, for the training in the folder `out`."""

    def __init__(self, bucket: Bucket, out: Path) -> None:
        self._bucket, self._scratch, self._training = bucket, out / FETCHED, (bucket.address, out)

    @property
    def where(self) -> str:
        return self._bucket.address

    def names(self) -> list[str]:
        return [copy.name for copy in read_head(self._bucket).copies]

    def fetch(self, name: str) -> Path:
        """Of several that are asked for only the last is kept here."""
        copy = next(copy for copy in read_head(self._bucket).copies if copy.name == name)
        path = self._scratch / name
        shutil.rmtree(self._scratch, ignore_errors=True)
        for file in self._bucket.names(copy.objects):
            below = PurePosixPath(file).relative_to(copy.objects)
            if ".." in below.parts or "\\" in file or "\0" in file:
                raise OSError(errno.EIO, "a name leads out of its folder", f"{self.where}/{file}")
            self._bucket.download(file, path / below)
        return path

    def add(self, path: Path) -> None:
        try:
            verify_checkpoint(path)
        except CheckpointError as error:
            raise OSError(errno.EIO, f"the copy differs: {error.problem}", str(path)) from None
        token = self._token()
        copy = Copy(name=path.name, objects=f"{path.name}-{token}-{uuid.uuid4().hex}", token=token)
        for file in sorted(member for member in path.rglob("*") if member.is_file()):
            self._bucket.upload(f"{copy.objects}/{file.relative_to(path).as_posix()}", file)

        def added(head: Head) -> tuple[Copy, ...]:
            # A resume has refused those of later steps; of an equal one this is the newer.
            before = [earlier for earlier in head.copies if earlier.step < copy.step]
            return (copy, *before[: KEEP - 1])

        self._commit(added)
        # What this training went on from is older than its own from here on.
        shutil.rmtree(self._scratch, ignore_errors=True)

    def forget_after(self, step: int) -> None:
        self._commit(lambda head: tuple(copy for copy in head.copies if copy.step <= step))

    def _commit(self, changed: Callable[[Head], tuple[Copy, ...]]) -> None:
        """Write which copies count, as the holder; those that it took out of them are removed."""
        token, out = self._token(), list[Copy]()

        def next_head(head: Head) -> Head:
            if head.token != token:
                raise self._lost(head)
            copies = changed(head)
            out[:] = [copy for copy in head.copies if copy not in copies]
            return head.model_copy(update={"copies": copies})

        change_head(self._bucket, next_head)
        # What is left by a store that is away just now, the next holder removes.
        with contextlib.suppress(OSError):
            for copy in out:
                self._bucket.delete(*self._bucket.names(copy.objects))

    def _token(self) -> int:
        token = _TOKENS.get(self._training)
        if token is None:
            raise self._lost(read_head(self._bucket))
        return token

    def _lost(self, head: Head) -> LeaseLostError:
        holder = Name(head.owner, head.host or "nobody", head.renewal)
        return taken(self.where, holder, "writes there: what this one writes counts no more")


class BucketHolder:
    """Who writes below the address as a Holder, for the training in the folder `out`."""

    def __init__(self, bucket: Bucket, out: Path) -> None:
        self._bucket, self._training = bucket, (bucket.address, out)

    @property
    def where(self) -> str:
        return self._bucket.address

    def read(self) -> Name | None:
        return read_head(self._bucket).holder

    def take(self, owner: str, previous: Name | None) -> None:
        """Become the holder with the next token; what holders before it left and did not count is removed."""
        refuse_without_conditions(self._bucket)

        def mine(head: Head) -> Head:
            now = head.holder
            if now is not None and now.owner != owner and now != previous:
                raise taken(self.where, now, "took it over just now")
            named = {"token": head.token + 1, "owner": owner, "host": socket.gethostname()}
            return head.model_copy(update=named)

        token = change_head(self._bucket, mine).token
        _TOKENS[self._training] = token
        with contextlib.suppress(OSError):
            remove_left(self._bucket, token)

    def renew(self, owner: str) -> Name | None:
        def alive(head: Head) -> Head:
            if head.token != _TOKENS.get(self._training):
                raise _LostError(Name(head.owner, head.host or "nobody", head.renewal))
            return head

        try:
            change_head(self._bucket, alive)
        except _LostError as lost:
            return lost.name
        return None

    def release(self, owner: str) -> None:
        token = _TOKENS.pop(self._training, None)

        def free(head: Head) -> Head:
            if head.token != token:
                raise _LostError(Name(head.owner, head.host, head.renewal))
            return head.model_copy(update={"owner": "", "host": ""})

        try:
            change_head(self._bucket, free)
        except _LostError:
            # Another has it.
            return


class _LostError(Exception):
    def __init__(self, name: Name) -> None:
        super().__init__()
        self.name = name


def read_head(bucket: Bucket) -> Head:
    """training.json, an empty one where there is none. Raises OSError, also if it is none of ours."""
    return read_object(bucket, HEAD, Head)[0]


def change_head(bucket: Bucket, change: Callable[[Head], Head]) -> Head:
    """Write what `change` makes of training.json, as change_object."""
    return change_object(bucket, HEAD, Head, change)


def remove_left(bucket: Bucket, token: int) -> None:
    """Remove files of holders before that of `token` that are of no copy that counts: none of theirs ever will.

    Of later holders nothing is removed, however long this process slept since it read which copies count.
    """
    lying = {name: match for name in bucket.names() if (match := _FILE.match(name))}
    counted = {copy.objects for copy in read_head(bucket).copies}
    bucket.delete(
        *(name for name, match in lying.items() if match["objects"] not in counted and int(match["token"]) < token)
    )
