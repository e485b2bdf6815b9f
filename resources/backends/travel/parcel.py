"""What a job names, sent into the bucket by its launcher and laid out at the same paths by its node."""

from __future__ import annotations

import errno
import functools
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trainworthy.lifecycle.code_identity import product_sha256
from trainworthy.lifecycle.errors import SettingsError, StateError
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.protocol.jobs import AnyJob
from trainworthy.lifecycle.storage.durable.bucket import Bucket, ObjectChangedError
from trainworthy.lifecycle.storage.shared.files import is_plain
from trainworthy.resources.backends.travel.places import (
    FILES,
    NODE,
    OF_ONE_PLACE,
    PARCEL,
    Gate,
    Parcel,
    at_once,
    field_of,
    walked,
)
from trainworthy.resources.backends.travel.road import Road

# Folders that a job names and that no worker reads: what its own machine keeps, and data that its code has no business
# with.
_NOT_READ = frozenset({"kept_features.folder", "data_folders", "interruptions.durable", "durable"})


def send_parcel(bucket: Bucket, prefix: str, job: AnyJob, named: Mapping[str, str], road: Road, folder: Path) -> Parcel:
    """Have all that the job names in the bucket, and a parcel that says what. `named` are paths by where they stand.

    Raises SettingsError for a link that leads out, a name that cannot travel and a folder that holds the job's,
    StateError for a file that changes meanwhile, OSError.
    """
    root, read = road.root, _read(named)
    files = _files(job, read, root)
    _refuse_names(path.relative_to(root) for path in (*files.values(), folder))
    hashes = at_once(lambda path: _sent(bucket, path), files.values())
    parcel = Parcel(
        code=product_sha256(),
        launcher=road.launcher,
        out=Path(job.out).relative_to(root).as_posix(),
        folder=folder.relative_to(root).as_posix(),
        folders=tuple(sorted({path.relative_to(root).as_posix() for path in read.values() if path.is_dir()})),
        files=dict(zip(files, hashes, strict=True)),
    )
    bucket.put(f"{prefix}/{PARCEL}", canonical_json(parcel.model_dump(mode="json")))
    return parcel


def _ignored(key: str, size: int) -> None:
    pass


def keep(bucket: Bucket, path: Path, sha256: str, note: Callable[[str, int], None] = _ignored) -> None:
    """Have a file's bytes where they are to stay; `note` hears of what went.

    Raises StateError if they are others by now, OSError.
    """
    if bucket.has(key := f"{FILES}/{sha256}"):
        return
    bucket.upload(key, path, functools.partial(note, key))
    if sha256_file(path) != sha256:
        bucket.delete(key)
        raise StateError("a file changed while it was sent", value=str(path), fix="let it be whole, then run again")


def fetch(bucket: Bucket, key: str, path: Path, gate: Gate, note: Callable[[str, int], None] = _ignored) -> None:
    """Write an object, whose last name is the hash of its bytes, to a file: whole or not at all, while `gate` is open.

    `note` hears of what came. Raises OSError.
    """

    def came(size: int) -> None:
        gate.check()
        note(key, size)

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.fetching")
    try:
        bucket.download(key, temporary, came)
        if sha256_file(temporary) != key.rpartition("/")[2]:
            problem = "an object has other bytes than its name says: remove it there, and run again"
            raise OSError(errno.EIO, problem, f"{bucket.address}/{key}")
        with gate.open():
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class AnotherNodeError(Exception):
    """Another node of the start does its job, or did."""


def claimed(bucket: Bucket, prefix: str) -> Parcel:
    """The parcel of a start, of which this machine is the node from here on.

    Raises AnotherNodeError where another has claimed it, SettingsError where the launcher has another Trainworthy,
    OSError, ValidationError.
    """
    stored = bucket.read(f"{prefix}/{PARCEL}")
    if stored is None:
        raise FileNotFoundError(errno.ENOENT, "its launcher is gone, or has given it up", f"{bucket.address}/{prefix}")
    # Of another Trainworthy the parcel may have another form.
    other = _code_of(stored[0]) not in (None, product_sha256())
    parcel = None if other else Parcel.model_validate_json(stored[0])
    _claim(bucket, f"{prefix}/{NODE}")
    if parcel is None:
        fix = (
            "install on the node what the launcher runs; for pods make their image from it (deploy/Dockerfile), and "
            "name it in kubernetes.yaml"
        )
        raise SettingsError("this machine has another Trainworthy than its launcher: the sources differ", fix=fix)
    return parcel


def lay_out(bucket: Bucket, parcel: Parcel, root: Path, gate: Gate) -> None:
    """Have a start's files below `root`, and in its folders no others, while `gate` is open. Raises OSError."""
    for folder in parcel.folders:
        # Of another start that was here, beside a third one that still is.
        for _, path in list(walked(root / folder, OF_ONE_PLACE, refuse=False)):
            if path.relative_to(root).as_posix() not in parcel.files:
                path.unlink(missing_ok=True)
    at_once(lambda item: fetch(bucket, f"{FILES}/{item[1]}", root / item[0], gate), parcel.files.items())
    (root / parcel.folder).mkdir(parents=True, exist_ok=True)


def _code_of(parcel: bytes) -> str | None:
    """The launcher's Trainworthy, by a parcel of whatever form; None if that is no parcel."""
    try:
        code = json.loads(parcel)["code"]
    except (ValueError, TypeError, LookupError):
        return None
    return code if isinstance(code, str) else None


def _claim(bucket: Bucket, name: str) -> None:
    """Be the one node of a start: a queue or a cluster may begin it a second time, whose turns begin anew."""
    mine = uuid.uuid4().hex.encode()
    try:
        bucket.write(name, mine, None)
    except ObjectChangedError:
        # Or it was this very request, whose answer was lost.
        stored = bucket.read(name)
        if stored is None or stored[0] != mine:
            raise AnotherNodeError("another node of this start does its job, or did: this one does nothing") from None


def _read(named: Mapping[str, str]) -> dict[str, Path]:
    """Of the named those that a worker reads."""
    return {where: Path(text) for where, text in named.items() if field_of(where) not in _NOT_READ}


def _files(job: AnyJob, read: Mapping[str, Path], root: Path) -> dict[str, Path]:
    """The files that are named, and those in folders that are, by their names below the root. Raises SettingsError."""
    paths, out = list[Path](), Path(job.out)
    for where, path in read.items():
        if path != out and out.is_relative_to(path):
            fix = "let the job name a folder of its own: one that holds the state folder holds all that other jobs left"
            raise SettingsError(f"{where} would be sent to another machine as a whole", value=str(path), fix=fix)
        left_out = OF_ONE_PLACE if field_of(where) == "out" else ()
        paths += [member for _, member in walked(path, left_out)] if path.is_dir() else [path]
    return {path.relative_to(root).as_posix(): path for path in paths}


def _refuse_names(names: Iterable[Path]) -> None:
    """Raises SettingsError for a name of a file or of a folder above it that cannot travel."""
    for name in names:
        if not (is_plain(text := name.as_posix()) and text.isprintable()):
            fix = "give the file, or the folder that holds it, another name"
            raise SettingsError("a name has characters that cannot travel to another machine", value=text, fix=fix)


def _sent(bucket: Bucket, path: Path) -> str:
    sha256 = sha256_file(path)
    keep(bucket, path, sha256)
    return sha256
