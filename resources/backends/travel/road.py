"""By which bucket workers travel to machines that share no storage with their launcher, and what that needs."""

from __future__ import annotations

import fcntl
import uuid
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.lifecycle.storage.durable.bucket import check_address, is_bucket
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.resources.settings import DURABLE, STATE, Settings


@dataclass(frozen=True)
class Road:
    """The bucket; the folder below which files lie at both places; and who sends them, known by a file in `var`."""

    bucket: str
    var: Path
    root: Path

    @property
    def launcher(self) -> str:
        """A name that no other state folder has."""
        path = self.var / "launcher_id"
        if not path.is_file():
            self.var.mkdir(parents=True, exist_ok=True)
            # Of several processes that find none the first one's counts.
            with (self.var / ".launcher_id.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.is_file():
                    write_atomic(path, uuid.uuid4().hex.encode())
        return path.read_text().strip()


def road_of(compute: ComputeSpec, settings: Settings, root: Path, why: str, or_else: str) -> Road:
    """That of the shared state. `why` is what asks for it, `or_else` what does in its place, both as half sentences.

    Raises SettingsError if files cannot come and go by it.
    """
    state = settings.shared
    if state is None or not is_bucket(state):
        problem = f"{why}, and {STATE} no bucket by which files could come and go"
        raise SettingsError(problem, value=state, fix=f"{STATE}=s3://BUCKET/PREFIX, or {or_else}")
    check_address(state)
    if settings.durable is not None and not is_bucket(settings.durable):
        problem = f"{why}, and {DURABLE} is a folder, which workers there do not have"
        fix = f"name a bucket in {DURABLE}, or unset it: copies go below {STATE} then; or {or_else}"
        raise SettingsError(problem, value=settings.durable, fix=fix)
    if compute.nodes > 1:
        problem = f"{why}, and a training over several nodes needs a volume that all of them have"
        raise SettingsError(problem, value=compute.nodes, fix=f"{or_else}, or set compute.nodes to 1")
    return Road(state, settings.var, root)
