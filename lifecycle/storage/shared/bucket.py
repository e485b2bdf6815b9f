"""Shared state in a bucket, whose objects are changed only as they were read.

A lock does not reach another machine, so a lease is an object that its holder renews (durable/lease.py): one that
stays as it is for EXPIRES_SECONDS is taken over, with the next token. What its holder had begun by then may still
arrive; it is refused by the version that it read, once the new holder has written over that (`HeldLease.took_over`).
"""

from __future__ import annotations

import errno
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainworthy.lifecycle.errors import LeaseLostError, StateError
from trainworthy.lifecycle.storage.durable.bucket import Bucket, refuse_without_conditions
from trainworthy.lifecycle.storage.durable.head import LeaseHead, change_object, read_object
from trainworthy.lifecycle.storage.durable.holder import Name
from trainworthy.lifecycle.storage.durable.lease import Lease, watched
from trainworthy.lifecycle.storage.shared.store import HeldLease, Lost, StoredObject
from trainworthy.lifecycle.storage.state import plain_names


class BucketState:
    """Objects below a bucket's address as a StateStore."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @property
    def where(self) -> str:
        return self._bucket.address

    def get(self, key: str) -> StoredObject | None:
        with self._as_state_error(key):
            held = self._bucket.read(_plain(key))
        return None if held is None else StoredObject(*held)

    def put_new(self, key: str, content: bytes) -> None:
        with self._as_state_error(key):
            self._bucket.write(_plain(key), content, None)

    def swap(self, key: str, content: bytes, version: str, held: HeldLease | None = None) -> None:
        if held is not None:
            held.check()
        with self._as_state_error(key):
            self._bucket.write(_plain(key), content, version)

    def names(self, below: str) -> list[str]:
        with self._as_state_error(below):
            return self._bucket.newest_names(_plain(below))

    def children(self, below: str) -> list[str]:
        return list(dict.fromkeys(key.removeprefix(f"{below}/").split("/")[0] for key in self.names(below)))

    def has(self, key: str) -> bool:
        with self._as_state_error(key):
            return self._bucket.has(_plain(key))

    def send(self, key: str, path: Path) -> None:
        with self._as_state_error(key):
            self._bucket.upload(_plain(key), path)

    def receive(self, key: str, path: Path) -> None:
        with self._as_state_error(key):
            self._bucket.download(_plain(key), path)

    @contextmanager
    def lease(
        self,
        name: str,
        known: int,
        say_waiting: Callable[[], None],
        lost: Lost,
        fence: Callable[[HeldLease], None] | None = None,
    ) -> Iterator[HeldLease]:
        holder, owner = ObjectHolder(self._bucket, _plain(f"{name}.lease"), known, lost), uuid.uuid4().hex
        with self._as_state_error(name):
            before = self._taken(holder, owner, say_waiting)

        def check() -> None:
            with self._as_state_error(name):
                holder.check()

        held, lease = HeldLease(holder.token, took_over=before is not None, check=check), Lease(holder, owner)
        lease.start()
        let_go = False
        try:
            if held.took_over and fence is not None:
                fence(held)
            let_go = True
            yield held
        finally:
            lease.end(let_go=let_go)

    def check(self) -> None:
        with self._as_state_error(""):
            refuse_without_conditions(self._bucket)

    def _taken(self, holder: ObjectHolder, owner: str, say_waiting: Callable[[], None]) -> Name | None:
        """Take the lease after whoever has it; who that was, if it never let go."""
        while True:
            before = watched(holder, owner, time.sleep, lambda _: say_waiting(), patient=True)
            try:
                holder.take(owner, before)
            except LeaseLostError:
                # Another one that waited was quicker.
                continue
            return before

    @contextmanager
    def _as_state_error(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            fix = "put that right, then run again: finished steps are reused; trainworthy doctor asks the store as well"
            if error.errno == errno.ENOTSUP:
                fix = "name a store that keeps conditions, or a folder, in TRAINWORTHY_STATE"
            where = f"{self.where}/{key}" if key else self.where
            problem = f"the shared state cannot be used: {error.strerror or error}"
            raise StateError(problem, value=where, fix=fix) from error


class ObjectHolder:
    """Who holds a lease, in an object of its own: a Holder. `token` is this process's, 0 before it has taken it."""

    def __init__(self, bucket: Bucket, name: str, known: int, lost: Lost) -> None:
        self._bucket, self._name, self._known, self._lost = bucket, name, known, lost
        self.token, self._owner = 0, ""

    @property
    def where(self) -> str:
        return f"{self._bucket.address}/{self._name}"

    def read(self) -> Name | None:
        return self._head().holder

    def take(self, owner: str, previous: Name | None) -> None:
        def mine(head: LeaseHead) -> LeaseHead:
            if head.holder is not None and head.holder not in (previous, Name(owner, head.host, head.renewal)):
                raise self._lost(head.host)
            token = max(head.token, self._known) + 1
            return head.model_copy(update={"token": token, "owner": owner, "host": socket.gethostname()})

        self.token, self._owner = self._change(mine).token, owner

    def renew(self, owner: str) -> Name | None:
        try:
            self._change(self._checked)
        except LeaseLostError:
            head = self._head()
            return Name(head.owner, head.host, head.renewal)
        return None

    def release(self, owner: str) -> None:
        try:
            self._change(lambda head: self._checked(head).model_copy(update={"owner": "", "host": ""}))
        except LeaseLostError:
            # Another has it.
            return

    def check(self) -> None:
        """Raises LeaseLostError once another has the lease, or had it."""
        self._checked(self._head())

    def _checked(self, head: LeaseHead) -> LeaseHead:
        # The owner, too: without the object, as after somebody removed it, tokens begin anew.
        if (head.token, head.owner) != (self.token, self._owner):
            raise self._lost(head.host or "nobody")
        return head

    def _head(self) -> LeaseHead:
        return read_object(self._bucket, self._name, LeaseHead)[0]

    def _change(self, change: Callable[[LeaseHead], LeaseHead]) -> LeaseHead:
        return change_object(self._bucket, self._name, LeaseHead, change)


def _plain(key: str) -> str:
    """The key, whose every part is a plain name: the keys of a folder. Raises SettingsError."""
    return "/".join(plain_names(*key.split("/")))
