"""Small state folders that are backed up and restored, and what is looked at of them."""

import hashlib
import json
from pathlib import Path

import pytest

from trainworthy.lifecycle.protocol.attempts import ChargedTo, StartedAttempt
from trainworthy.pipeline.backup.places import places
from trainworthy.pipeline.backup.restore import restore_backup
from trainworthy.pipeline.backup.take import take_backup
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.attempts import this_process
from trainworthy.resources.settings import read_settings

WORDS = b"what nobody can make again\n"
DATABASE_OF_OURS = "dagster/history/metrics.db"


def told(state: Path, words: str) -> str:
    """A record and its pointer, in the order in which a run writes them; the record's hash."""
    content = json.dumps({"words": words}).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    for path, written in (
        (state / "records" / "toy" / "objects" / f"{sha256}.json", content),
        (state / "records" / "toy" / "runs" / words / "full", sha256.encode()),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written)
    return sha256


def take_it(target: Path, *, running: bool = False) -> str:
    settings = read_settings()
    return take_backup(settings, places(settings, [], None, []), target, despite_runs=running)[1]


def restored(folder: Path, to: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("TRAINWORTHY_VAR", str(to))
    restore_backup(read_settings(), folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unfinished(place: Path) -> list[Path]:
    return list(place.rglob("*unfinished*"))


def entered(run_id: str) -> None:
    attempt_table(read_settings()).start(
        StartedAttempt(
            attempt="a", charged_to=ChargedTo(run_id=run_id, use_case="toy", step="full", identity="i"),
            job_kind="train", stage="full", launcher="local", process=this_process(), device="cpu", world_size=1,
            from_step=0, started_at=0.0,
        )
    )  # fmt: skip
