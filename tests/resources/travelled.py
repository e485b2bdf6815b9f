"""A job that travels within one process: its launcher's project and its node's disk are two folders, with a bucket."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from s3_servers import reached

from trainworthy.lifecycle.protocol.jobs import AnyJob, VerifyJob
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends.backend import Start
from trainworthy.resources.backends.on_node import END, NodeEnd
from trainworthy.resources.backends.travel import journey as journeys
from trainworthy.resources.backends.travel import turns
from trainworthy.resources.backends.travel.journey import Journey
from trainworthy.resources.backends.travel.mirror import NodeMirror
from trainworthy.resources.backends.travel.named import files_of
from trainworthy.resources.backends.travel.parcel import claimed, lay_out
from trainworthy.resources.backends.travel.places import Gate
from trainworthy.resources.backends.travel.road import Road

REQUESTS = ("read", "read_again", "has", "put", "upload", "download", "names", "delete")


class Travelled:
    """A worker's journey: `here` is the launcher's folder of the job, `there` the node's; `told` is what was said."""

    def __init__(self, tmp_path: Path, address: str) -> None:
        self.home, self.disk, self.address = tmp_path / "home", tmp_path / "disk", address
        self.bucket = Bucket(address)
        self.told: list[str] = []
        for name in ("use_case/model.py", "artifact/model.pt2"):
            self.write(self.home / name, name)
        self.job: AnyJob = VerifyJob(
            use_case_folder=str(self.home / "use_case"), out=str(self.home / "var/out"), device="cpu",
            artifact=str(self.home / "artifact"), artifact_sha256="s",
        )  # fmt: skip
        self.here, self.there = self.home / "var/out", self.disk / "var/out"
        self.here.mkdir(parents=True)

    def write(self, path: Path, text: str | bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def journey(self, start: str = "1234abcd") -> Journey:
        """One start."""
        folder = self.here / "kubernetes" / start
        folder.mkdir(parents=True, exist_ok=True)
        road = Road(self.address, self.home / "var", self.home)
        return Journey(road, "worker", self.start, folder, self.told.append)

    @property
    def start(self) -> Start:
        return Start(self.job, self.here / "job.json", 0.0, {}, (1, 2), grace_seconds=1.0, fresh=False, lock=-1)

    @property
    def named(self) -> dict[str, str]:
        return files_of(self.job)

    @contextmanager
    def under_way(self) -> Iterator[tuple[Journey, NodeMirror]]:
        """A start whose files lie on the node, and its mirror there, whose turns the test makes."""
        journey = self.journey()
        with journey.under_way(self.named):
            parcel = claimed(self.bucket, journey.prefix)
            lay_out(self.bucket, parcel, self.disk, Gate())
            yield journey, NodeMirror(self.bucket, journey.prefix, parcel, self.disk)

    def laid_out(self) -> set[str]:
        """Names of the files on the node."""
        return {path.relative_to(self.disk).as_posix() for path in self.disk.rglob("*") if path.is_file()}


def alone(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Travelled:
    """One by moto's server, with no turns but those that a test makes."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 3600.0)
    monkeypatch.setattr(turns, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(journeys, "GIVEN_UP_SECONDS", 0.0)
    return Travelled(tmp_path, f"{reached(monkeypatch, server)}/{re.sub('[^a-z0-9_]+', '-', request.node.name)}")


def end(travelled: Travelled, code: int = 0) -> None:
    """What on_node.py leaves."""
    travelled.write(travelled.there / f"kubernetes/1234abcd/{END}", NodeEnd(exit_code=code).model_dump_json())


def fails(monkeypatch: pytest.MonkeyPatch, faulty: Callable[[str, str], str]) -> list[str]:
    """Requests fail as `faulty` says of their kind and object: "before" or "after" the store did them, or "" for not.

    Gives the requests, as they come.
    """
    asked: list[str] = []

    def made(kind: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def request(bucket: Bucket, name: str = "", *given: Any) -> Any:
            asked.append(f"{kind} {name}")
            fault = faulty(kind, name)
            if fault == "before":
                raise TimeoutError(110, "the store does not answer", name)
            answer = do(bucket, name, *given) if name else do(bucket)
            if fault == "after":
                raise TimeoutError(110, "the store does not answer", name)
            return answer

        return request

    for kind in REQUESTS:
        monkeypatch.setattr(Bucket, kind, made(kind, getattr(Bucket, kind)))
    return asked


def bytes_of(seed: int, size: int) -> bytes:
    """So many bytes, hardly to be told from chance."""
    import random

    return random.Random(seed).randbytes(size)


def set_time(path: Path, seconds: float) -> None:
    """A file's time of change."""
    os.utime(path, (seconds, seconds))
