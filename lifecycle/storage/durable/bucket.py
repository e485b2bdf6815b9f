"""The door to object storage: objects of a bucket by obstore, changed only if nobody else did, with errors as of files.

By S3's protocol. Who may be asked, and as whom, is in the environment: AWS_ENDPOINT_URL (none: Amazon's), AWS_REGION,
AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or a role of the machine or pod.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, cast

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.storage.durable.bucket_errors import NoObjectError, error_of
from trainworthy.lifecycle.storage.durable.line import Line, Noted

# A request carries so much, and of all files that a process sends and fetches so many parts are on their way at once:
# each request ends in its time on a slow line too, where 3 * 8 MiB in a minute are 3.4 Mbit/s.
PART_BYTES, PARTS_AT_ONCE = 8 * 2**20, 3
LINE = Line(PARTS_AT_ONCE * PART_BYTES)
# Longer than an answer may take: else nothing that was late is tried again.
CONNECT_SECONDS, ANSWER_SECONDS, RETRY_SECONDS, RETRIES = 10, 60, 180, 5
# Which server is asked: no secrets, and of use to workers elsewhere.
SERVER_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")
_ADDRESS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()-]+)*/?")
_NO_CONDITIONS = (
    "the store keeps no conditions (If-None-Match, If-Match), by which one machine alone writes: use one that does, or "
    "mount the bucket as a folder"
)


class ObjectChangedError(Exception):
    """The object is not the one that was read: another has written it since."""


def is_bucket(address: str) -> bool:
    """True of an address of object storage, False of a folder's path."""
    return "://" in address


def check_address(address: str) -> None:
    """Raises SettingsError unless it is s3://BUCKET or s3://BUCKET/PREFIX, and the extra for it is installed."""
    if not _ADDRESS.fullmatch(address) or any(part in (".", "..") for part in address.split("/")):
        fix = "name a folder, or s3://BUCKET/PREFIX; of other stores mount the bucket as a folder"
        shown = without_credentials(address)
        raise SettingsError("this is no address of a bucket that Trainworthy writes to", value=shown, fix=fix)
    if find_spec("obstore") is None:
        fix = "pip install 'trainworthy[s3]'"
        raise SettingsError("the package obstore, which reaches S3, is not installed", value=address, fix=fix)


class Bucket:
    """Objects below an address, by names relative to it. Everything raises OSError with a number, as files do.

    A call waits `answer_seconds` for an answer, and is repeated for `retry_seconds` at most where the store is away.
    """

    def __init__(
        self, address: str, answer_seconds: float = ANSWER_SECONDS, retry_seconds: float = RETRY_SECONDS
    ) -> None:  # fmt: skip
        from obstore.store import from_url

        self.address = address.rstrip("/")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        with self._as_files_raise(""):
            self._store = from_url(
                self.address,
                config={"endpoint": endpoint} if endpoint else {},
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, answer_seconds)),
                    "timeout": timedelta(seconds=answer_seconds),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=retry_seconds)},
            )

    def below(self, name: str) -> Bucket:
        """Its objects of names that begin with `name` and a slash."""
        return Bucket(f"{self.address}/{name}")

    def read(self, name: str) -> tuple[bytes, str] | None:
        """An object and its version; None if there is none."""
        import obstore

        try:
            with self._as_files_raise(name):
                stored = obstore.get(self._store, name)
                content, version = bytes(stored.bytes()), stored.meta["e_tag"]
        except NoObjectError:
            return None
        if version is None:
            raise OSError(errno.ENOTSUP, _NO_CONDITIONS, self.address)
        return content, version

    def read_again(self, name: str, known: tuple[bytes, str] | None) -> tuple[bytes, str] | None:
        """As `read`; what was read before is given back where it is still that, and is not sent once more."""
        import obstore
        from obstore import exceptions

        if known is None:
            return self.read(name)
        try:
            with self._as_files_raise(name), contextlib.suppress(exceptions.NotModifiedError):
                stored = obstore.get(self._store, name, options={"if_none_match": known[1]})
                return bytes(stored.bytes()), stored.meta["e_tag"] or ""
        except NoObjectError:
            return None
        return known

    def has(self, name: str) -> bool:
        """True if there is such an object."""
        import obstore

        try:
            with self._as_files_raise(name):
                obstore.head(self._store, name)
        except NoObjectError:
            return False
        return True

    def write(self, name: str, content: bytes, version: str | None) -> None:
        """Write an object that is still of this version; with None one that is not there yet.

        Raises ObjectChangedError, also where it was this very call that wrote it and the answer was lost.
        """
        import obstore

        with self._as_files_raise(name, conditional=True):
            obstore.put(self._store, name, content, mode="create" if version is None else {"e_tag": version})

    def put(self, name: str, content: bytes) -> None:
        """Write an object, whatever lies there: for names that one process alone writes."""
        import obstore

        with self._as_files_raise(name):
            obstore.put(self._store, name, content)

    def upload(self, name: str, path: Path, note: Callable[[int], None] | None = None) -> None:
        """Write a file's bytes. Each request is signed with the hash of what it carries, which the store verifies.

        With each part `note` hears how many bytes went; what it raises ends it.
        """
        import obstore

        size, note = path.stat().st_size, note or _ignored
        with LINE.room(size), self._as_files_raise(name), path.open("rb") as file:
            parts = cast("BinaryIO", Noted(file, note))
            obstore.put(self._store, name, parts, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        note(size)

    def download(self, name: str, path: Path, note: Callable[[int], None] | None = None) -> None:
        """Write an object's bytes to a file, whose folder is made: part by part, all of one version.

        Before the first part and after each `note` hears how many bytes came; what it raises ends it.
        """
        import obstore

        note = note or _ignored
        path.parent.mkdir(parents=True, exist_ok=True)
        note(0)
        with path.open("wb") as file, self._as_files_raise(name):
            head = obstore.head(self._store, name)
            for start in range(0, head["size"], PART_BYTES):
                end = min(start + PART_BYTES, head["size"])
                with LINE.room(end - start):
                    part = obstore.get(self._store, name, options={"range": (start, end), "if_match": head["e_tag"]})
                    file.write(part.bytes())
                note(end)

    def names(self, below: str = "") -> list[str]:
        """Names of all objects, or of those below one name."""
        import obstore

        with self._as_files_raise(below):
            return sorted(entry["path"] for part in obstore.list(self._store, below or None) for entry in part)

    def newest_names(self, below: str) -> list[str]:
        """Names of the objects below one name, those that were written last first."""
        import obstore

        with self._as_files_raise(below):
            listed = [entry for part in obstore.list(self._store, below) for entry in part]
        by_name = sorted(listed, key=lambda entry: entry["path"])
        return [entry["path"] for entry in sorted(by_name, key=lambda entry: entry["last_modified"], reverse=True)]

    def delete(self, *names: str) -> None:
        """Remove objects, a thousand by a request; one that is gone already is no error."""
        import obstore

        if names:
            with contextlib.suppress(NoObjectError), self._as_files_raise(names[0]):
                obstore.delete(self._store, list(names))

    @contextlib.contextmanager
    def _as_files_raise(self, name: str, *, conditional: bool = False) -> Iterator[None]:
        from obstore import exceptions

        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            if conditional:
                raise ObjectChangedError(f"{self.address}/{name}") from None
            problem = "another request changes this object at the same time"
            raise OSError(errno.EAGAIN, problem, f"{self.address}/{name}") from None
        except exceptions.BaseError as error:
            raise error_of(str(error), f"{self.address}/{name}") from error
        except FileNotFoundError as error:
            raise error_of(str(error), f"{self.address}/{name}") from error


def _ignored(size: int) -> None:
    pass


def refuse_without_conditions(bucket: Bucket) -> None:
    """Raises OSError unless the store is there, may be written, and leaves alone what it is told to leave alone.

    Some servers of S3's protocol take a condition and do not keep it: two machines would then write the same copies.
    """
    name = f".condition-{uuid.uuid4().hex}"
    bucket.write(name, b"1", None)
    try:
        stored = bucket.read(name)
        for version in (None, f'"{uuid.uuid4().hex}"'):
            with contextlib.suppress(ObjectChangedError):
                bucket.write(name, b"2", version)
                raise OSError(errno.ENOTSUP, _NO_CONDITIONS, bucket.address)
        if stored is None or stored[0] != b"1":
            raise OSError(errno.EIO, "the store gives back other bytes than were written", bucket.address)
    finally:
        bucket.delete(name)
