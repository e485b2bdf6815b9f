"""rclone's server, killed by SIGKILL within a request: nothing half is read, and the next copy or verdict goes on."""

import hashlib
import os
from pathlib import Path

import pytest
import toy_jobs
from test_checkpoint_bucket import Machine
from verdict_logs import unexpected

from tests import s3_servers
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import load_newest
from trainworthy.lifecycle.errors import StateError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import VerdictLog
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint, writing
from trainworthy.lifecycle.storage.durable import bucket as bucket_module
from trainworthy.lifecycle.storage.durable.bucket import Bucket, ObjectChangedError
from trainworthy.lifecycle.storage.durable.bucket_store import HEAD, read_head
from trainworthy.lifecycle.storage.durable.folder import FolderStore
from trainworthy.lifecycle.storage.durable.store import Copies
from trainworthy.lifecycle.storage.shared.bucket import BucketState
from trainworthy.lifecycle.storage.shared.store import point, put_same

MIDDLE, STORED = 0.5, 1.0


@pytest.fixture
def server(tmp_path, monkeypatch):
    """It stays away until it is started again, and nobody waits for it for long."""
    monkeypatch.setattr(bucket_module, "RETRIES", 1)
    (folder := tmp_path / "server").mkdir()
    with s3_servers.killed_rclone(folder) as server:
        yield server


@pytest.fixture
def place(server, monkeypatch) -> str:
    return f"{s3_servers.reached(monkeypatch, server.address)}/a"


def killed_by_a_put(server: s3_servers.KilledRclone, what: str, share: float, nth: int = 1) -> None:
    """The server is killed within the nth request that writes an object of such a name."""
    seen: list[str] = []

    def within(method: str, key: str) -> float | None:
        seen.extend([key] if method == "PUT" and what in key else [])
        return share if len(seen) == nth and method == "PUT" and what in key else None

    server.kill_within = within


def checkpoint(machine: Machine, step: int, size: int) -> Path:
    """A whole checkpoint of the machine, of so many bytes that compress to nothing less."""
    with writing(machine.out / "checkpoints", step, "mine") as draft:
        (draft.path / "state.pt").write_bytes(os.urandom(size))
    return machine.out / "checkpoints" / f"step-{step:08d}"


def sha256_of(path: Path) -> str:
    return hashlib.sha256((path / "state.pt").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("what", "share", "nth", "size"),
    [
        ("state.pt", MIDDLE, 1, 2 * 2**20),
        ("state.pt", STORED, 1, 2 * 2**20),
        ("state.pt", MIDDLE, 2, 20 * 2**20),
        ("manifest.json", MIDDLE, 1, 1000),
        (HEAD, MIDDLE, 1, 1000),
    ],
    ids=[
        "in a file",
        "after a file",
        "in a part of a large file",
        "in the manifest",
        "in what says which copies count",
    ],
)
def test_copy_that_was_cut_is_none_and_the_next_one_counts(
    server, place, tmp_path, monkeypatch, capsys, what, share, nth, size
):
    machine = Machine(tmp_path, "one", place)
    machine.holder.take("one", None)
    kept = checkpoint(machine, 10, size)
    machine.store.add(kept)
    killed_by_a_put(server, what, share, nth)
    # As a training does: a storage that is away for a moment ends none.
    copies = Copies(machine.store)
    copies.add(checkpoint(machine, 20, size))
    assert server.kills == 1
    told = capsys.readouterr().err
    assert f"step-00000020 could not be copied to {place}: " in told
    # Of a large file what is told is that its parts could not be taken back either.
    assert f"the store does not answer ({'DELETE' if nth == 2 else 'PUT'}, 2 tries in " in told
    assert f"{place}/{HEAD if what == HEAD else 'step-00000020-1-'}" in told
    assert "the next one will be tried" in told
    server.again()
    assert machine.store.names() == ["step-00000010"]
    found = machine.store.fetch("step-00000010")
    verify_checkpoint(found)
    assert sha256_of(found) == sha256_of(kept)
    copies.add(newest := checkpoint(machine, 30, size))
    assert machine.store.names() == ["step-00000030", "step-00000010"]
    # Another machine, after this one went: it goes on from the copy, and what was cut lies there no more.
    other = Machine(tmp_path, "other", place)
    other.holder.take("other", other.holder.read())
    found = other.store.fetch("step-00000030")
    verify_checkpoint(found)
    assert sha256_of(found) == sha256_of(newest)
    counted = {copy.objects for copy in read_head(other.bucket).copies}
    assert {name.partition("/")[0] for name in other.bucket.names()} == {HEAD, *counted}


def test_training_goes_on_from_the_copy_before_the_one_that_was_cut(server, place, tmp_path):
    machine = Machine(tmp_path, "one", place)
    machine.holder.take("one", None)
    machine.writes(10)
    killed_by_a_put(server, "state.pt", MIDDLE)
    with pytest.raises(TimeoutError):
        machine.writes(20)
    server.again()
    own, state = FolderStore(tmp_path / "other" / "checkpoints"), toy_jobs.plain_state()
    found, notes = load_newest([own, Machine(tmp_path, "other", place).store], "mine", state)
    assert (found, state.step) == (True, 10)
    assert notes == (f"resumed from the copy step-00000010 in {place}",)


@pytest.mark.parametrize(("share", "written"), [(MIDDLE, False), (STORED, True)], ids=["in it", "after it"])
def test_what_is_written_once_is_there_whole_or_not_at_all(server, place, share, written):
    state, content = BucketState(Bucket(place)), os.urandom(2**20)
    killed_by_a_put(server, "records/a", share)
    with pytest.raises(StateError) as told:
        state.put_new("records/a", content)
    assert server.kills == 1
    assert told.value.value == f"{place}/records/a"
    assert "the shared state cannot be used: the store does not answer (PUT, 2 tries in " in told.value.problem
    assert "put that right, then run again" in told.value.fix
    server.again()
    stored = state.get("records/a")
    assert (stored is not None) is written
    assert stored is None or stored.content == content
    # Whoever does it again: what goes by its hash is there then, and nobody else's is written over.
    put_same(state, "records/a", content)
    stored = state.get("records/a")
    assert stored is not None
    assert stored.content == content
    with pytest.raises(ObjectChangedError):
        state.put_new("records/a", b"other")
    assert state.names("records") == ["records/a"]


@pytest.mark.parametrize(("share", "entered"), [(MIDDLE, 1), (STORED, 2)], ids=["in it", "after it"])
def test_verdict_goes_on_in_a_log_that_is_whole(server, place, share, entered):
    verdicts = VerdictLog(BucketState(Bucket(place)), "toy")

    def append(held: log.HeldLease, number: int) -> None:
        entries = log.read(verdicts)
        before = entries[-1].verdict_sha256 if entries else None
        log.append(
            verdicts, held, action="shadow", model_version=str(number), verdict_sha256=str(number) * 64,
            previous_verdict_sha256=before,
        )  # fmt: skip
        point(verdicts.store, "records/toy/newest/all/promotion", str(number).encode())

    with verdicts.lease(unexpected) as held:
        append(held, 1)
        killed_by_a_put(server, verdicts.key, share)
        with pytest.raises(StateError, match="does not answer"):
            append(held, 2)
        server.again()
        assert [entry.number for entry in log.read(verdicts)] == [1, 2][:entered]
        pointed = verdicts.store.get("records/toy/newest/all/promotion")
        assert pointed is not None
        assert pointed.content == b"1"
        append(held, 3)
    assert [entry.model_version for entry in log.read(verdicts)] == [*"12"[:entered], "3"]
