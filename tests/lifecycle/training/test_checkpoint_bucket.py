"""Copies of checkpoints in a bucket: what counts is decided by one object, which one machine alone can change."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import test_checkpoint
import toy_jobs

from tests import s3_servers
from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import load_newest, state_dict, write_checkpoint
from trainworthy.lifecycle.engine.training.checkpoints.checkpointing import go_back
from trainworthy.lifecycle.errors import LeaseLostError, SettingsError
from trainworthy.lifecycle.failure import EXIT_LEASE_LOST
from trainworthy.lifecycle.protocol.jobs import Interruptions, JobFile, TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint
from trainworthy.lifecycle.storage.durable import bucket as bucket_module
from trainworthy.lifecycle.storage.durable import lease
from trainworthy.lifecycle.storage.durable.bucket import Bucket, check_address, refuse_without_conditions
from trainworthy.lifecycle.storage.durable.bucket_errors import error_of
from trainworthy.lifecycle.storage.durable.bucket_store import FETCHED, HEAD, BucketHolder, BucketStore, read_head
from trainworthy.lifecycle.storage.durable.folder import FolderStore
from trainworthy.lifecycle.storage.durable.place import own_store, takes_copies, trial_store
from trainworthy.lifecycle.storage.durable.store import newest_sound


@pytest.fixture(scope="module")
def server():
    with s3_servers.moto_server() as address:
        yield address


@pytest.fixture
def place(server, monkeypatch, tmp_path) -> str:
    """An address below the bucket that no other test uses."""
    return f"{s3_servers.reached(monkeypatch, server)}/{tmp_path.name}"


class Machine:
    """A machine that trains the same, with a disk of its own."""

    def __init__(self, folder: Path, name: str, place: str) -> None:
        self.out = folder / name
        self.out.mkdir()
        self.bucket = Bucket(place)
        self.holder, self.store = BucketHolder(self.bucket, self.out), BucketStore(self.bucket, self.out)
        self.waited = 0.0

    def holds(self):
        def wait(seconds: float) -> None:
            self.waited += seconds

        return lease.held_lease(self.holder, self.out, wait)

    def writes(self, step: int) -> None:
        reference = write_checkpoint(self.out / "checkpoints", "mine", state_dict(test_checkpoint.state_at(step)))
        self.store.add(Path(reference.path))


def test_copies_are_the_two_newest_and_come_back_as_they_were(tmp_path, place):
    machine = Machine(tmp_path, "one", place)
    with machine.holds():
        for step in (10, 20, 30):
            machine.writes(step)
        assert machine.store.names() == ["step-00000030", "step-00000020"]
        state = toy_jobs.plain_state()
        found, notes = load_newest([FolderStore(tmp_path / "none"), machine.store], "mine", state)
        assert (found, state.step) == (True, 30)
        assert f"resumed from the copy step-00000030 in {place}" in notes
        machine.store.forget_after(20)
        assert machine.store.names() == ["step-00000020"]
        # Nothing lies there that does not count.
        assert {name.partition("/")[0] for name in machine.bucket.names()} == {
            HEAD, *(copy.objects for copy in read_head(machine.bucket).copies),
        }  # fmt: skip


def test_copy_whose_bytes_were_changed_in_the_bucket_is_passed_over(tmp_path, place):
    machine = Machine(tmp_path, "one", place)
    with machine.holds():
        for step in (10, 20):
            machine.writes(step)
        (newest,) = (copy for copy in read_head(machine.bucket).copies if copy.step == 20)
        (tmp_path / "other").write_bytes(b"other")
        machine.bucket.upload(f"{newest.objects}/state.pt", tmp_path / "other")
        state = toy_jobs.plain_state()
        found, notes = load_newest([machine.store], "mine", state)
    assert (found, state.step) == (True, 10)
    assert any("step-00000020: the checkpoint's bytes were changed" in note for note in notes)


def test_damaged_checkpoint_of_this_machine_is_never_copied(tmp_path, place):
    machine = Machine(tmp_path, "one", place)
    with machine.holds():
        reference = write_checkpoint(tmp_path / "c", "mine", state_dict(test_checkpoint.state_at(1)))
        (Path(reference.path) / "state.pt").write_bytes(b"other")
        with pytest.raises(OSError, match="the copy differs"):
            machine.store.add(Path(reference.path))
        assert machine.bucket.names() == [HEAD]


def test_machine_that_was_away_commits_nothing_after_another_took_over(tmp_path, place, monkeypatch):
    first, second = Machine(tmp_path, "first", place), Machine(tmp_path, "second", place)
    # As a stopped process: it lets go of nothing and renews nothing.
    first.holder.take("first", None)
    first.writes(10)
    with second.holds() as check:
        assert second.waited == lease.EXPIRES_SECONDS
        with pytest.raises(LeaseLostError, match="counts no more"):
            first.writes(20)
        with pytest.raises(LeaseLostError):
            first.store.forget_after(0)
        assert first.holder.renew("first") is not None
        first.holder.release("first")
        assert read_head(second.bucket).owner
        check()
        assert second.store.names() == ["step-00000010"]
        second.writes(30)
        assert second.store.names() == ["step-00000030", "step-00000010"]


def test_machine_that_let_go_is_not_waited_for_and_one_that_is_alive_is_left_alone(tmp_path, place, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    first, second = Machine(tmp_path, "first", place), Machine(tmp_path, "second", place)
    with first.holds() as check:
        with (
            pytest.raises(LeaseLostError, match="writes there now"),
            lease.held_lease(second.holder, second.out, lambda _: time.sleep(0.2)),
        ):
            pytest.fail("two machines hold one lease")
        check()
    with second.holds():
        assert second.waited == 0
    assert read_head(first.bucket).token == 2


def test_of_many_machines_at_once_one_becomes_the_holder(tmp_path, place):
    machines = [Machine(tmp_path, f"machine-{number}", place) for number in range(6)]
    ready, refused, took = threading.Barrier(len(machines)), [], []

    def take(machine: Machine) -> None:
        ready.wait()
        try:
            machine.holder.take(machine.out.name, None)
        except LeaseLostError:
            refused.append(machine)
        else:
            took.append(machine)

    threads = [threading.Thread(target=take, args=[machine]) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(took), len(refused)) == (1, 5)
    assert (read_head(took[0].bucket).owner, read_head(took[0].bucket).token) == (took[0].out.name, 1)
    took[0].writes(10)


def test_holder_that_slept_takes_nothing_away_from_the_one_after_it(tmp_path, place, monkeypatch):
    """Stopped wherever it is about to remove something: what it has read of what counts is old when it goes on."""
    first, second = Machine(tmp_path, "first", place), Machine(tmp_path, "second", place)
    delete, slept = Bucket.delete, []

    def late(self: Bucket, *names: str) -> None:
        if self is first.bucket and not slept and names:
            slept.append(names)
            second.holder.take("second", first.holder.read())
            for step in (40, 50):
                second.writes(step)
        delete(self, *names)

    first.holder.take("first", None)
    first.writes(10)
    first.writes(20)
    monkeypatch.setattr(Bucket, "delete", late)
    first.writes(30)
    assert slept
    assert second.store.names() == ["step-00000050", "step-00000040"]
    for name in second.store.names():
        verify_checkpoint(second.store.fetch(name))


def test_new_holder_removes_what_the_ones_before_left_and_what_others_ask_by_stays(tmp_path, place):
    first, second = Machine(tmp_path, "first", place), Machine(tmp_path, "second", place)
    first.holder.take("first", None)
    first.writes(10)
    (tmp_path / "file").write_bytes(b"half")
    for name in ("step-00000020-1-abc/state.pt", "step-00000020-9-abc/state.pt", ".condition-1"):
        second.bucket.upload(name, tmp_path / "file")
    with second.holds():
        left = {name.partition("/")[0] for name in second.bucket.names()}
    (copy,) = read_head(second.bucket).copies
    assert left == {HEAD, copy.objects, "step-00000020-9-abc", ".condition-1"}


def test_renewals_and_copies_of_one_machine_do_not_push_each_other_aside(tmp_path, place, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.001)
    machine = Machine(tmp_path, "one", place)
    with machine.holds() as check:
        for step in range(1, 9):
            machine.writes(step)
        check()
        assert machine.store.names() == ["step-00000008", "step-00000007"]
    assert read_head(machine.bucket).renewal > 10


def test_preflights_trial_leaves_nothing(place):
    bucket = Bucket(place)
    with trial_store(place) as store:
        assert store.names() == []
        assert bucket.names() != []
    takes_copies(place)
    assert bucket.names() == []


def test_store_that_keeps_no_conditions_is_refused(tmp_path, monkeypatch):
    with s3_servers.rclone_server(tmp_path) as address:
        place = f"{s3_servers.reached(monkeypatch, address)}/a"
        with pytest.raises(OSError, match="keeps no conditions") as told:
            takes_copies(place)
        assert told.value.errno == errno.ENOTSUP
        assert Bucket(place).names() == []
        # Its first word, before anything is written.
        with pytest.raises(OSError, match="keeps no conditions"):
            BucketHolder(Bucket(place), tmp_path).take("one", None)
        reached = s3_servers.reached(monkeypatch, address, secret="wrong")
        with pytest.raises(PermissionError, match="need GetObject"):
            takes_copies(f"{reached}/a")


def test_bucket_that_is_not_there_and_a_server_that_is_away_are_told_as_such(server, place, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no such bucket"):
        takes_copies("s3://elsewhere/a")
    monkeypatch.setattr(bucket_module, "RETRIES", 1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        s3_servers.reached(monkeypatch, f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(TimeoutError, match="does not answer") as told:
            takes_copies(place)
    assert told.value.errno == errno.ETIMEDOUT


@pytest.mark.parametrize(
    ("words", "number", "told"),
    [
        ("status code: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code>", errno.EACCES, "clock"),
        ("status code: 403 Forbidden: <Error><Code>AccessDenied</Code>", errno.EACCES, "403 AccessDenied"),
        ("status code: 503 Slow: <Error><Code>SlowDown</Code>", errno.ETIMEDOUT, "503 SlowDown"),
        ("status code: 507 Full: <Error><Code>XMinioStorageFull</Code>", errno.ENOSPC, "full"),
        ("status code: 400 Bad: <Error><Code>EntityTooLarge</Code>", errno.EIO, "EntityTooLarge"),
        (
            "Error performing GET http://h/a in 2.6ms - Server returned non-2xx status code: 404 Not Found: default "
            "backend - 404",
            errno.ETIMEDOUT,
            "404",
        ),
        ("Error performing PUT http://169.254.169.254/latest/api/token", errno.EACCES, "no credentials"),
    ],
)
def test_words_of_a_store_become_the_error_of_a_file(words, number, told):
    error = error_of(words, "s3://b/a")
    assert error.errno == number
    assert told in str(error)


@pytest.mark.parametrize("address", ["gs://bucket/a", "s3://", "s3://UPPER/a", "s3://bucket/../a", "s3://bucket//a"])
def test_address_that_is_none_is_refused(address):
    with pytest.raises(SettingsError, match="no address of a bucket that Trainworthy writes to"):
        check_address(address)


def test_object_of_others_in_the_place_of_ours_is_refused(tmp_path, place):
    machine = Machine(tmp_path, "one", place)
    machine.bucket.write(HEAD, b'{"form": "other"}', None)
    with pytest.raises(OSError, match="not written by Trainworthy"), machine.holds():
        pytest.fail("it was taken over")
    found = machine.bucket.read(HEAD)
    assert found is not None
    assert found[0] == b'{"form": "other"}'


@pytest.mark.parametrize(
    ("name", "objects"),
    [
        ("../../victim", f"step-00000010-1-{'a' * 32}"),
        ("/etc/victim", f"step-00000010-1-{'a' * 32}"),
        ("step-00000010/../x", f"step-00000010-1-{'a' * 32}"),
        ("step-x", f"step-00000010-1-{'a' * 32}"),
        ("step-00000010", "../other"),
    ],
)
def test_names_in_the_bucket_lead_nowhere_else(tmp_path, place, name, objects):
    machine = Machine(tmp_path, "one", place)
    (tmp_path / "file").write_bytes(b"planted")
    machine.bucket.upload(f"{objects.strip('./')}/authorized_keys", tmp_path / "file")
    head = {"form": 1, "token": 1, "copies": [{"name": name, "objects": objects, "token": 1}]}
    machine.bucket.write(HEAD, json.dumps(head).encode(), None)
    before = {path for path in tmp_path.rglob("*")}
    with pytest.raises(OSError, match="not written by Trainworthy"):
        newest_sound([machine.store], verify_checkpoint)
    assert {path for path in tmp_path.rglob("*")} == before


def test_clean_up_that_fails_leaves_a_copy_that_counts(tmp_path, place, monkeypatch):
    machine = Machine(tmp_path, "one", place)

    def away(self: Bucket, *names: str) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "the store does not answer")

    with machine.holds():
        for step in (10, 20):
            machine.writes(step)
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, "delete", away)
            machine.writes(30)
    assert machine.store.names() == ["step-00000030", "step-00000020"]
    # The next holder removes it.
    assert any(name.startswith("step-00000010") for name in machine.bucket.names())
    with Machine(tmp_path, "two", place).holds():
        assert not any(name.startswith("step-00000010") for name in machine.bucket.names())


def test_going_back_while_the_copies_cannot_be_reached_forgets_nothing(tmp_path, place, splits, monkeypatch):
    job = with_copies(splits, tmp_path / "out", place)
    reference = write_checkpoint(own_store(job).folder, job.identity, state_dict(test_checkpoint.state_at(20)))
    monkeypatch.setattr(BucketStore, "forget_after", lambda self, step: (_ for _ in ()).throw(TimeoutError("away")))
    with pytest.raises(TimeoutError):
        go_back(job, 10)
    assert verify_checkpoint(Path(reference.path))["step"] == 20


def test_what_was_fetched_goes_once_the_training_has_a_checkpoint_of_its_own(tmp_path, place):
    first, second = Machine(tmp_path, "first", place), Machine(tmp_path, "second", place)
    with first.holds():
        first.writes(10)
    with second.holds():
        assert second.store.fetch("step-00000010").is_dir()
        second.writes(20)
        assert [path.name for path in second.out.iterdir() if path.name == FETCHED] == []


def test_file_larger_than_a_part_comes_back_whole(tmp_path, place, monkeypatch):
    # S3 takes no smaller part.
    monkeypatch.setattr(bucket_module, "PART_BYTES", 5 * 2**20 + 7)
    content = os.urandom(12 * 2**20)
    (tmp_path / "large").write_bytes(content)
    bucket = Bucket(place)
    bucket.upload("folder/large", tmp_path / "large")
    bucket.download("folder/large", tmp_path / "back" / "large")
    assert (tmp_path / "back" / "large").read_bytes() == content
    refuse_without_conditions(bucket)


def with_copies(splits: Path, out: Path, place: str) -> TrainJob:
    spec = toy_jobs.spec_with(training={"batch_size": 32, "checkpoint_every_steps": 50})
    machine = Interruptions(durable=place)
    return toy_jobs.train_job(splits, out, "full", spec=spec, identity="run:full", interruptions=machine)


def started(job: TrainJob) -> subprocess.Popen:
    """A worker by its own command: one that is forked from here would share what this process has open."""
    Path(job.out).mkdir(exist_ok=True)
    (Path(job.out) / "job.json").write_text(JobFile(job=job).model_dump_json())
    command = [sys.executable, "-m", "trainworthy.lifecycle.worker", "--job", f"{job.out}/job.json"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def test_stopped_and_revived_training_ends_with_its_code_and_the_other_one_has_its_copies(
    splits, tmp_path, place, monkeypatch
):
    job = with_copies(splits, tmp_path / "first" / "out", place)
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    bucket = Bucket(f"{place}/run/out")
    with started(job) as worker:
        while not read_head(bucket).copies:
            assert worker.poll() is None
            time.sleep(0.02)
        worker.send_signal(signal.SIGSTOP)
        before = read_head(bucket)
        monkeypatch.setattr(lease, "EXPIRES_SECONDS", 0.3)
        monkeypatch.setattr(lease, "RENEW_SECONDS", 0.1)
        second = with_copies(splits, tmp_path / "second" / "out", place)
        assert toy_jobs.run_here(second) == (0, {})
        after = read_head(bucket)
        worker.send_signal(signal.SIGCONT)
        assert worker.wait(120) == EXIT_LEASE_LOST
    assert read_result(Path(job.out), job) is None
    result = read_result(Path(second.out), second)
    assert isinstance(result, TrainResult)
    assert result.resumed_from_step >= before.copies[0].step > 0
    assert any("resumed from the copy" in note for note in result.notes)
    # Not a byte of what counts was changed by the one that came back.
    assert read_head(bucket) == after
    assert after.token == 2
    copies = BucketStore(bucket, tmp_path)
    assert verify_checkpoint(copies.fetch(copies.names()[0]))["step"] == result.steps
