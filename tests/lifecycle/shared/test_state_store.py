"""What several machines share, in a folder and in a bucket: the same questions to both."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from verdict_logs import unexpected

from tests import s3_servers
from trainworthy.lifecycle.errors import LeaseLostError, RecordError, SettingsError, StateError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import VerdictLog
from trainworthy.lifecycle.storage.durable import bucket as bucket_module
from trainworthy.lifecycle.storage.durable import lease as lease_module
from trainworthy.lifecycle.storage.durable.bucket import Bucket, ObjectChangedError
from trainworthy.lifecycle.storage.shared.bucket import BucketState
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.shared.store import StateStore, point, put_same

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server():
    with s3_servers.moto_server() as address:
        yield address


@pytest.fixture(params=["folder", "bucket"])
def place(request, tmp_path, monkeypatch) -> str:
    """An empty folder, or an address below the bucket that no other test uses."""
    if request.param == "folder":
        (folder := tmp_path / "shared").mkdir()
        return str(folder)
    server = request.getfixturevalue("server")
    return f"{s3_servers.reached(monkeypatch, server)}/{tmp_path.name}"


def opened(place: str) -> StateStore:
    """As another machine opens it."""
    return BucketState(Bucket(place)) if "://" in place else FolderState(Path(place))


def lost(host: str) -> LeaseLostError:
    return LeaseLostError("lost", value=host, fix="none")


def test_key_is_written_once_and_changed_only_as_it_was_read(place):
    store, other = opened(place), opened(place)
    assert store.get("a/b.json") is None
    store.put_new("a/b.json", b"1")
    with pytest.raises(ObjectChangedError):
        other.put_new("a/b.json", b"2")
    first = other.get("a/b.json")
    assert first is not None
    assert first.content == b"1"
    store.swap("a/b.json", b"3", first.version)
    with pytest.raises(ObjectChangedError):
        other.swap("a/b.json", b"4", first.version)
    with pytest.raises(ObjectChangedError):
        other.swap("a/none", b"4", first.version)
    found = other.get("a/b.json")
    assert found is not None
    assert (found.content, other.get("a/none")) == (b"3", None)


def test_what_goes_by_its_hash_is_written_twice_and_a_pointer_follows_the_last(place):
    store = opened(place)
    put_same(store, "objects/1", b"1")
    put_same(store, "objects/1", b"1")
    for content in (b"1", b"2", b"2"):
        point(store, "newest", content)
    found = store.get("newest")
    assert found is not None
    assert found.content == b"2"


def test_names_are_those_below_a_key_newest_first(place, monkeypatch):
    store = opened(place)
    for name in ("runs/b/one", "runs/a/one", "runsother/x"):
        store.put_new(name, b"1")
    if isinstance(store, FolderState):
        # Of files that were written within one tick of the clock either may be the newer.
        for name, at in (("runs/b/one", 1), ("runs/a/one", 2)):
            os.utime(Path(place) / name, (at, at))
        assert store.names("runs") == ["runs/a/one", "runs/b/one"]
    assert sorted(store.names("runs")) == ["runs/a/one", "runs/b/one"]
    assert store.names("none") == []


def test_children_are_the_names_right_below_a_key_the_one_that_was_written_to_last_first(place):
    store = opened(place)
    for name in ("runs/b/one", "runs/b/two", "runs/a/one", "runs/c", "runsother/x"):
        store.put_new(name, b"1")
    if isinstance(store, FolderState):
        for name, at in (("runs/a", 1), ("runs/b", 2), ("runs/c", 3)):
            os.utime(Path(place) / name, (at, at))
        (Path(place) / "runs" / ".left").write_bytes(b"")
        assert store.children("runs") == ["c", "b", "a"]
        # Also what only changes: a run that goes on is the newest.
        point(store, "runs/a/one", b"2")
        assert store.children("runs") == ["a", "c", "b"]
    assert sorted(store.children("runs")) == ["a", "b", "c"]
    assert store.children("none") == []


def test_names_in_a_bucket_take_one_request_for_a_thousand_of_them(server, monkeypatch):
    store = opened(f"{s3_servers.reached(monkeypatch, server)}/listed")
    for run in range(20):
        for step in ("dataset", "snapshot", "smoke"):
            store.put_new(f"runs/run-{run:02d}/{step}", b"1")
    asked: list[str] = []
    with s3_servers.requests(monkeypatch, asked):
        assert len(store.children("runs")) == 20
    assert len(asked) == 1


def test_file_that_is_removed_while_it_is_listed_is_no_error(tmp_path, monkeypatch):
    store, asked = FolderState(tmp_path), Path.stat
    store.put_new("runs/a", b"1")
    (tmp_path / "runs" / "gone").symlink_to(tmp_path / "nowhere")

    def removed_then(self, **how):
        found = asked(self, **how)
        if self.name == "a":
            self.unlink()
        return found

    monkeypatch.setattr(Path, "stat", removed_then)
    assert store.names("runs") == ["runs/a"]
    assert store.names("runs") == store.children("runs") == []


@pytest.mark.parametrize("key", ["../victim", "/etc/victim", "a//b", "a/../../b", ".hidden"])
def test_key_that_would_lead_elsewhere_is_refused(place, key):
    store = opened(place)
    for use in (
        store.get,
        store.names,
        store.children,
        lambda key: store.put_new(key, b"1"),
        lambda key: store.swap(key, b"", ""),
    ):
        with pytest.raises(SettingsError, match="would leave the state folder"):
            use(key)


def test_of_many_that_count_at_once_none_is_lost(place):
    def count(number: int) -> None:
        store = opened(place)
        ready.wait()
        for _ in range(5):
            while True:
                try:
                    stored = store.get("count")
                    if stored is None:
                        store.put_new("count", b"1")
                    else:
                        store.swap("count", str(int(stored.content) + 1).encode(), stored.version)
                except ObjectChangedError:
                    continue
                break

    ready = threading.Barrier(4)
    threads = [threading.Thread(target=count, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = opened(place).get("count")
    assert found is not None
    assert found.content == b"20"


def test_token_of_a_lease_rises_with_each_holder_and_above_what_is_known(place):
    store, tokens = opened(place), []
    for known in (0, 0, 7, 0):
        with store.lease("verdicts/toy", known, unexpected, lost) as held:
            held.check()
            tokens.append((held.token, held.took_over))
    assert tokens == [(1, False), (2, False), (8, False), (9, False)]


def test_lease_of_a_holder_that_lives_is_waited_for(place, monkeypatch):
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(lease_module, "EXPIRES_SECONDS", 1.0)
    waits, taken, let_go = threading.Event(), [], []

    def second() -> None:
        with opened(place).lease("verdicts/toy", 0, waits.set, lost) as held:
            taken.append((held.token, held.took_over, bool(let_go)))

    thread = threading.Thread(target=second)
    with opened(place).lease("verdicts/toy", 0, unexpected, lost) as held:
        thread.start()
        assert waits.wait(60)
        # Longer than a lease lasts that nobody renews.
        threading.Event().wait(1.5 * lease_module.EXPIRES_SECONDS)
        held.check()
        let_go.append(True)
    thread.join()
    assert taken == [(2, False, True)]


def forgotten(store: StateStore, stack: ExitStack, monkeypatch) -> log.HeldLease:
    """A lease whose holder sleeps from here on, and which the storage gives to the next one all the same."""
    if isinstance(store, FolderState):
        held = stack.enter_context(store.lease("verdicts/toy", 0, unexpected, lost))
        # A file server that restarted and forgot its locks.
        (Path(store.where) / "verdicts/toy.lock").unlink()
        return held
    monkeypatch.setattr(lease_module, "EXPIRES_SECONDS", 0.3)
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(lease_module.Lease, "run", lambda self: None)
        return stack.enter_context(store.lease("verdicts/toy", 0, unexpected, lost))


def test_holder_that_was_taken_over_writes_nothing_and_lets_go_of_nothing(place, monkeypatch):
    first, second = opened(place), opened(place)
    first.put_new("log", b"old")
    before = first.get("log")
    assert before is not None
    with ExitStack() as newer:
        with ExitStack() as older:
            slept = forgotten(first, older, monkeypatch)
            held = newer.enter_context(second.lease("verdicts/toy", 0, lambda: None, lost))
            assert (slept.token, held.token) == (1, 2)
            with pytest.raises(LeaseLostError) as told:
                first.swap("log", b"mine", before.version, slept)
            assert told.value.value == socket.gethostname()
            with pytest.raises(LeaseLostError):
                slept.check()
        held.check()
        second.swap("log", b"new", before.version, held)
    found = first.get("log")
    assert found is not None
    assert found.content == b"new"


def append(verdicts: VerdictLog, held: log.HeldLease, number: int, action: log.Action = "shadow") -> log.LogEntry:
    """An entry after the newest one."""
    entries = log.read(verdicts)
    return log.append(
        verdicts, held, action=action, model_version=str(number), verdict_sha256=str(number) * 64,
        previous_verdict_sha256=entries[-1].verdict_sha256 if entries else None,
    )  # fmt: skip


def test_entry_has_the_token_of_its_lease_and_one_judgement_waits_for_the_other(place):
    for number in (1, 2):
        verdicts = VerdictLog(opened(place), "toy")
        with verdicts.lease(unexpected) as held:
            append(verdicts, held, number)
    assert [(entry.number, entry.token) for entry in log.read(verdicts)] == [(1, 1), (2, 2)]


def test_entry_whose_answer_was_lost_is_entered_once(place, monkeypatch):
    """As where a client sends it again, and is refused by what it wrote itself."""
    verdicts = VerdictLog(opened(place), "toy")
    kind, lost_answers = type(verdicts.store), []

    def answer_lost(write):
        def called(self, key, *given):
            write(self, key, *given)
            lost_answers.append(key)
            raise ObjectChangedError(key)

        return called

    with verdicts.lease(unexpected) as held, monkeypatch.context() as patch:
        patch.setattr(kind, "put_new", answer_lost(kind.put_new))
        patch.setattr(kind, "swap", answer_lost(kind.swap))
        made = [append(verdicts, held, number) for number in (1, 2)]
    assert lost_answers == [verdicts.key] * 2
    assert log.read(verdicts) == tuple(made)


def test_log_whose_lease_was_lost_with_a_disk_goes_on_above_its_tokens(place):
    verdicts = VerdictLog(opened(place), "toy")
    for number in (1, 2, 3):
        with verdicts.lease(unexpected) as held:
            append(verdicts, held, number)
    if "://" in place:
        Bucket(place).delete("verdicts/toy.lease")
    else:
        (Path(place) / "verdicts/toy.lease").unlink()
    with verdicts.lease(unexpected) as held:
        append(verdicts, held, 4)
    assert [entry.token for entry in log.read(verdicts)] == [1, 2, 3, 4]


def test_judgement_that_was_taken_over_enters_nothing_wherever_it_was_stopped(place, monkeypatch):
    """Stopped between its look at the log and its write: what it has read is old when it goes on."""
    first, second = VerdictLog(opened(place), "toy"), VerdictLog(opened(place), "toy")
    with second.lease(unexpected) as held:
        append(second, held, 1)
    with ExitStack() as newer, ExitStack() as older:
        slept, newest = forgotten(first.store, older, monkeypatch), []
        swap = type(first.store).swap

        def late(self, key, content, version, held=None):
            if self is first.store and not newest:
                newest.append(newer.enter_context(second.lease(lambda: None)))
            if self is first.store:
                # As if the look at the lease had been before it slept: only the version is left to refuse it.
                held = None if "://" in place else held
            swap(self, key, content, version, held)

        monkeypatch.setattr(type(first.store), "swap", late)
        with pytest.raises(LeaseLostError):
            append(first, slept, 2)
        (held,) = newest
        assert [entry.number for entry in log.read(second)] == [1]
        assert append(second, held, 3).previous_verdict_sha256 == "1" * 64
    assert [(entry.number, entry.model_version, entry.token) for entry in log.read(second)] == [
        (1, "1", 1),
        (2, "3", 3),
    ]


def test_first_entry_of_a_judgement_that_was_taken_over_is_none(place, monkeypatch):
    first, second = VerdictLog(opened(place), "toy"), VerdictLog(opened(place), "toy")
    with ExitStack() as older:
        slept = forgotten(first.store, older, monkeypatch)
        with second.lease(lambda: None), pytest.raises(LeaseLostError):
            append(first, slept, 1)
    with pytest.raises(LeaseLostError):
        append(first, slept, 1)
    assert log.read(second) == ()


def test_judgement_whose_take_over_failed_leaves_the_next_one_to_take_over_too(server, tmp_path, monkeypatch):
    """Else the first one's entry, which is still on its way, would be refused by nobody."""
    place = f"{s3_servers.reached(monkeypatch, server)}/{tmp_path.name}"
    first, second = VerdictLog(opened(place), "toy"), VerdictLog(opened(place), "toy")
    with second.lease(unexpected) as held:
        append(second, held, 1)
    read = first.store.get(first.key)
    assert read is not None
    with ExitStack() as older:
        forgotten(first.store, older, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(log, "_written", lambda *_: (_ for _ in ()).throw(StateError("away", fix="wait")))
            with pytest.raises(StateError), second.lease(lambda: None):
                pytest.fail("it judges without a fence")
        with second.lease(lambda: None) as held:
            assert held.took_over
            with pytest.raises(ObjectChangedError):
                first.store.swap(first.key, b"late", read.version)
            assert append(second, held, 2).token == held.token == 4


def test_lease_that_somebody_removed_is_nobodys_any_more(server, tmp_path, monkeypatch):
    place = f"{s3_servers.reached(monkeypatch, server)}/{tmp_path.name}"
    verdicts = VerdictLog(opened(place), "toy")
    with verdicts.lease(unexpected) as held:
        Bucket(place).delete("verdicts/toy.lease")
        with verdicts.lease(unexpected) as second:
            assert second.token == held.token
            with pytest.raises(LeaseLostError):
                append(verdicts, held, 1)
            append(verdicts, second, 2)


def test_log_that_cannot_be_trusted_is_refused_whoever_holds_its_lease(place):
    verdicts = VerdictLog(opened(place), "toy")
    verdicts.store.put_new(verdicts.key, b'{"token":3}\n{"action":"promote"}\n')
    with verdicts.lease(unexpected) as held, pytest.raises(RecordError, match="line 2 of the verdict log"):
        append(verdicts, held, 1)
    assert held.token == 4


PROGRAM = """
import sys
from pathlib import Path
from trainworthy.lifecycle.errors import LeaseLostError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.storage.durable import lease
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.lifecycle.storage.shared.bucket import BucketState
from trainworthy.lifecycle.storage.shared.folder import FolderState

place, count, lease.RENEW_SECONDS, lease.EXPIRES_SECONDS = sys.argv[1], int(sys.argv[2]), 0.05, 60.0
store = BucketState(Bucket(place)) if "://" in place else FolderState(Path(place))
verdicts, written = log.VerdictLog(store, "toy"), 0
while written < count:
    with verdicts.lease(lambda: None) as held:
        print("holds", flush=True)
        if count == 1:
            sys.stdin.readline()
        entries = log.read(verdicts)
        try:
            log.append(verdicts, held, action="shadow", model_version=f"{sys.argv[3]}-{written}",
                verdict_sha256=f"{sys.argv[3]}-{written}",
                previous_verdict_sha256=entries[-1].verdict_sha256 if entries else None)
        except LeaseLostError as error:
            print(error)
            sys.exit(66)
    written += 1
"""


def started(place: str, count: int, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, place, str(count), name], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def test_processes_that_judge_at_once_lose_no_entry(place):
    with started(place, 6, "a") as one, started(place, 6, "b") as two:
        one.communicate(timeout=120)
        two.communicate(timeout=120)
    assert (one.returncode, two.returncode) == (0, 0)
    entries = log.read(VerdictLog(opened(place), "toy"))
    assert {entry.model_version for entry in entries} == {f"{name}-{n}" for name in "ab" for n in range(6)}
    assert [entry.token for entry in entries] == list(range(1, 13))


def test_stopped_and_revived_process_enters_nothing(server, tmp_path, monkeypatch):
    """In a bucket. In a folder the kernel keeps a stopped process's lock, and others wait for it."""
    place = f"{s3_servers.reached(monkeypatch, server)}/{tmp_path.name}"
    with started(place, 1, "slept") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(lease_module, "EXPIRES_SECONDS", 0.5)
        monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.1)
        verdicts, waited = VerdictLog(opened(place), "toy"), []
        with verdicts.lease(lambda: waited.append(True)) as held:
            assert (waited, held.took_over) == ([True], True)
            append(verdicts, held, 1)
        before = Bucket(place).read(verdicts.key)
        process.send_signal(signal.SIGCONT)
        told, _ = process.communicate("\n", timeout=120)
    assert process.returncode == 66
    assert "another run judges toy or rolls it back: this one was away for longer than its lease" in told
    assert Bucket(place).read(verdicts.key) == before
    (entry,) = log.read(verdicts)
    assert (entry.model_version, entry.token) == ("1", 2)
    head = Bucket(place).read("verdicts/toy.lease")
    assert head is not None
    assert json.loads(head[0])["token"] == 2


def test_store_is_asked_before_anything_is_written_and_keeps_nothing_of_it(place):
    store = opened(place)
    store.check()
    assert store.names("verdicts") == []
    if "://" in place:
        assert Bucket(place).names() == []


def test_folder_that_is_not_there_or_keeps_no_locks_is_refused(tmp_path, monkeypatch):
    with pytest.raises(StateError, match="mount it, or name another one"):
        FolderState(tmp_path / "none").check()
    assert not (tmp_path / "none").exists()
    store = FolderState(tmp_path)
    store.check()
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    with pytest.raises(StateError, match="cannot be written") as told:
        store.check()
    assert "keeps no locks" in told.value.fix


def test_bucket_that_is_missing_or_refuses_or_keeps_no_conditions_is_one_clear_error(server, monkeypatch, tmp_path):
    s3_servers.reached(monkeypatch, server)
    with pytest.raises(StateError, match="there is no such bucket") as told:
        opened("s3://elsewhere/a").check()
    assert told.value.value == "s3://elsewhere/a"
    with s3_servers.rclone_server(tmp_path) as address:
        place = f"{s3_servers.reached(monkeypatch, address)}/a"
        with pytest.raises(StateError, match="keeps no conditions") as told:
            opened(place).check()
        assert "TRAINWORTHY_STATE" in told.value.fix
        assert Bucket(place).names() == []
        with pytest.raises(StateError, match="need GetObject"):
            opened(f"{s3_servers.reached(monkeypatch, address, secret='wrong')}/a").get("records/a")


def test_server_that_is_away_is_told_as_such(server, monkeypatch):
    monkeypatch.setattr(bucket_module, "RETRIES", 1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        s3_servers.reached(monkeypatch, f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(StateError, match="does not answer") as told:
            opened("s3://models/a").get("records/a")
    assert isinstance(told.value.__cause__, OSError)
    assert told.value.__cause__.errno == errno.ETIMEDOUT
