"""Which storage a training's copies go to, by its address: a folder's path, or s3://BUCKET/PREFIX."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.storage.durable.bucket import Bucket, check_address, is_bucket, refuse_without_conditions
from trainworthy.lifecycle.storage.durable.bucket_store import FETCHED, BucketHolder, BucketStore
from trainworthy.lifecycle.storage.durable.folder import FolderHolder, FolderStore, takes_files
from trainworthy.lifecycle.storage.durable.holder import Holder
from trainworthy.lifecycle.storage.durable.store import CheckpointStore


def own_store(job: TrainJob) -> FolderStore:
    """The checkpoints in the training's own folder."""
    return FolderStore(Path(job.out) / "checkpoints")


def stores_of(job: TrainJob) -> tuple[CheckpointStore, ...]:
    """Where the training's checkpoints lie: its own folder first, then that of its copies, if there is any."""
    durable = durable_store(job)
    return (own_store(job), *([durable] if durable is not None else []))


def checkpoint_folders(job: TrainJob) -> list[Path]:
    """Folders of this machine with checkpoints of the training; a bucket is not asked, but for what was fetched."""
    address = _address(job)
    copies = Path(address) if address is not None and not is_bucket(address) else Path(job.out) / FETCHED
    return [own_store(job).folder, copies]


def durable_store(job: TrainJob) -> CheckpointStore | None:
    """Where copies of the checkpoints go; None if nothing outlives the machine."""
    address = _address(job)
    if address is None:
        return None
    if is_bucket(address):
        return BucketStore(Bucket(address), Path(job.out))
    return FolderStore(Path(address))


def holder_of(job: TrainJob) -> Holder | None:
    """Where who writes the copies is named; None if there are none."""
    address = _address(job)
    if address is None:
        return None
    return BucketHolder(Bucket(address), Path(job.out)) if is_bucket(address) else FolderHolder(Path(address))


def _address(job: TrainJob) -> str | None:
    durable = job.interruptions.durable
    if not durable:
        return None
    # The training's id, and its own folder below it: another seed of the stage has another.
    return f"{durable.rstrip('/')}/{job.identity.partition(':')[0]}/{Path(job.out).name}"


@contextlib.contextmanager
def trial_store(address: str) -> Iterator[CheckpointStore]:
    """A store like a training's, at a place of its own below the address; nothing of it is left. Raises OSError."""
    if not is_bucket(address):
        with tempfile.TemporaryDirectory(dir=address) as folder:
            yield FolderStore(Path(folder))
        return
    bucket = Bucket(address).below(f".trial-{uuid.uuid4().hex}")
    with tempfile.TemporaryDirectory() as out:
        holder = BucketHolder(bucket, Path(out))
        holder.take("preflight", None)
        try:
            yield BucketStore(bucket, Path(out))
        finally:
            holder.release("preflight")
            bucket.delete(*bucket.names())


def takes_copies(address: str) -> None:
    """Raises OSError unless files can be made there, and in a bucket changed only as they were read.

    Raises SettingsError of what is no address.
    """
    if is_bucket(address):
        check_address(address)
        refuse_without_conditions(Bucket(address))
    else:
        takes_files(Path(address))
