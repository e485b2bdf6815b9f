"""trainworthy backup: the same state at another place, a copy that holds together, and what is refused."""

import contextlib
import hashlib
import os
import shutil
import sqlite3
from pathlib import Path

import dagster as dg
import pytest
from backups import DATABASE_OF_OURS, WORDS, contents, entered, restored, take_it, told, unfinished
from toy_project import ROOT
from verdict_logs import log_in, logged

from tests.refusals import refused
from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.pipeline.backup import take
from trainworthy.pipeline.backup.consistent import problems
from trainworthy.pipeline.backup.places import places
from trainworthy.pipeline.backup.take import take_backup
from trainworthy.pipeline.backup.verify import verified
from trainworthy.pipeline.cli import main
from trainworthy.resources.settings import read_settings


def test_trained_state_is_the_same_at_another_place(toy, tmp_path, capsys):
    backup, other = tmp_path / "backup", type(toy)(toy.root, tmp_path / "other")
    store = StateRecords(FolderState(toy.var))
    with toy._settings():
        assert main(["verdict", "toy"]) == 0
        before = capsys.readouterr().out
        assert main(["backup", str(backup)]) == 0
        said = capsys.readouterr().out
    assert verified(backup)[1] in said
    # Nothing but the backup is left to restore from.
    shutil.rmtree(toy.var)
    with other._settings():
        assert main(["restore", str(backup)]) == 0
        assert "✓ verdicts toy: 1 entries, champion 1" in capsys.readouterr().out
        assert main(["champion", "toy"]) == 0
        assert capsys.readouterr().out == "1\n"
        assert main(["verdict", "toy"]) == 0
        assert capsys.readouterr().out == before.replace(str(toy.var), str(other.var))
        assert main(["attempts", "toy"]) == 0
        assert "7 attempts: " in capsys.readouterr().out
    assert other.champion() == "1"
    (run_id,) = StateRecords(FolderState(other.var)).run_ids("toy")
    assert other.status(run_id) == "SUCCESS"
    with other.tracking() as tracking:
        model = tracking.champion("toy")
        assert model is not None
        assert model.artifact.is_relative_to(other.var)
        assert (model.artifact / "model.pt2").is_file()
    assert store.run_ids("toy") == []


def test_files_times_and_empty_folders_come_back_as_they_were(state, place, monkeypatch):
    for number, run in enumerate(("third", "second")):
        told(state, run)
        os.utime(state / "records" / "toy" / "runs" / run, (number, number))
    before, ordered = contents(state), StateRecords(FolderState(state)).run_ids("toy")
    take_it(place / "backup")
    restored(place / "backup", place / "other", monkeypatch)
    after = contents(place / "other")
    assert {name: content for name, content in after.items() if not name.endswith(".db")} == {
        name: content for name, content in before.items() if not name.endswith(".db")
    }
    assert (place / "other" / "empty").is_dir()
    assert ordered == ["first", "second", "third"]
    assert StateRecords(FolderState(place / "other")).run_ids("toy") == ordered
    assert unfinished(place) == []


def test_database_that_is_being_written_is_one_moment_of_it(state, place, monkeypatch):
    with contextlib.closing(sqlite3.connect(state / DATABASE_OF_OURS, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO told VALUES (1)")
        # Committed and in the file beside it alone, with a change that is not committed behind it.
        writer.execute("BEGIN")
        writer.execute("INSERT INTO told VALUES (2)")
        assert (state / f"{DATABASE_OF_OURS}-wal").stat().st_size > 0
        take_it(place / "backup")
    restored(place / "backup", place / "other", monkeypatch)
    with contextlib.closing(sqlite3.connect(place / "other" / DATABASE_OF_OURS)) as connection:
        assert connection.execute("SELECT number FROM told").fetchall() == [(1,)]
    assert not (place / "other" / f"{DATABASE_OF_OURS}-wal").exists()


def test_database_that_is_no_one_of_ours_comes_back_byte_for_byte_with_its_mode(state, place, monkeypatch):
    """A dataset's file goes by the hash of its bytes, which SQLite would change; what is damaged is its owner's."""
    (data := state / "datasets" / "toy").mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(data / "rows.sqlite")) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE flights (delay INTEGER)")
        connection.execute("INSERT INTO flights VALUES (7)")
    (data / "header.db").write_bytes(b"SQLite format 3\0")
    (data / "rows.sqlite-wal").write_bytes(WORDS)
    os.link(data / "rows.sqlite", data / f"{hashlib.sha256((data / 'rows.sqlite').read_bytes()).hexdigest()}.db")
    (data / "rows.sqlite").chmod(0o444)
    (data / "header.db").chmod(0o750)
    before, modes = contents(data), {path.name: path.stat().st_mode for path in data.iterdir()}
    take_it(place / "backup")
    # On a disk that has no modes, as a stick has none.
    for path in (place / "backup" / "state" / "datasets" / "toy").iterdir():
        path.chmod(0o700)
    restored(place / "backup", place / "other", monkeypatch)
    after = place / "other" / "datasets" / "toy"
    assert contents(after) == before
    assert {path.name: path.stat().st_mode for path in after.iterdir()} == modes


@pytest.mark.parametrize("name", ["records/.DS_Store", "records/toy/.DS_Store", "records/toy/runs/first/.DS_Store"])
def test_file_that_a_file_browser_leaves_is_copied_once(state, place, monkeypatch, name):
    (state / name).write_bytes(b"\xff\xfe")
    take_it(place / "backup")
    restored(place / "backup", place / "other", monkeypatch)
    assert (place / "other" / name).read_bytes() == b"\xff\xfe"


def test_folder_of_two_turns_that_is_a_file_is_copied_once(state, place):
    (state / "mlflow").write_bytes(WORDS)
    take_it(place / "backup")
    assert "state/mlflow" in verified(place / "backup")[0].files


def test_what_is_made_again_by_itself_is_left_out(state, place):
    for name in ("dvc/cache/files/a", "dvc/site/b", "dvc/work/c", "dvc/remote/files/a"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_bytes(WORDS)
    take_it(place / "backup")
    manifest, _ = verified(place / "backup")
    assert [name for name in manifest.files if "/dvc/" in name] == ["state/dvc/remote/files/a"]


def test_run_that_goes_on_meanwhile_leaves_no_name_without_what_it_names(state, place, monkeypatch):
    """Before each file that is copied, a run writes a record, what leads to it, and an entry of the verdict log."""
    plain, written = take.copied, []

    def copied_meanwhile(source: Path, target: Path, **how: bool):
        entries = log.read(log_in(state))
        written.append(told(state, f"meanwhile{len(written)}"))
        logged(
            log_in(state), action="shadow", model_version="1",
            verdict_sha256=written[-1], previous_verdict_sha256=entries[-1].verdict_sha256,
        )  # fmt: skip
        return plain(source, target, **how)

    monkeypatch.setattr(take, "copied", copied_meanwhile)
    take_it(place / "backup", running=True)
    manifest, _ = verified(place / "backup")
    assert len(written) >= len([name for name in manifest.files if name.startswith("state/")])
    assert problems(place / "backup" / "state", own_registry=True) == []
    # So it is not because nothing of it was copied.
    assert any(written[0] in name for name in manifest.files)


def test_file_that_goes_while_it_is_taken_is_named(state, place, monkeypatch):
    def gone(source: Path, target: Path, **how: bool):
        if source.name == "a.json":
            source.unlink()
        return plain(source, target, **how)

    plain = take.copied
    monkeypatch.setattr(take, "copied", gone)
    take_it(place / "backup")
    assert verified(place / "backup")[0].gone == ("state/contracts/a.json",)


def test_copy_that_does_not_hold_together_is_no_backup(state, place):
    (state / "records" / "toy" / "runs" / "first" / "pilot").write_text("0" * 64)
    (state / "verdicts" / "other.jsonl").write_bytes(b'{"torn')
    with pytest.raises(BackupError, match="does not hold together") as caught:
        take_it(place / "backup")
    assert "records/toy/runs/first/pilot names the record 000000000000" in str(caught.value)
    assert "was torn while it was written" in str(caught.value)
    assert not (place / "backup").exists()
    assert unfinished(place) == []


def test_champion_that_the_registry_does_not_have_is_told(state, place):
    newest = log.read(log_in(state))[-1]
    logged(
        log_in(state), action="promote", model_version="2",
        verdict_sha256=newest.verdict_sha256, previous_verdict_sha256=newest.verdict_sha256,
    )  # fmt: skip
    assert problems(state, own_registry=True) == ["version 2 of toy is champion, and MLflow does not have it"]
    assert problems(state, own_registry=False) == []


def test_backup_without_the_state_folders_registry_is_restored_without_it(state, place, monkeypatch):
    newest = log.read(log_in(state))[-1]
    logged(
        log_in(state), action="promote", model_version="2",
        verdict_sha256=newest.verdict_sha256, previous_verdict_sha256=newest.verdict_sha256,
    )  # fmt: skip
    (state / "mlflow").mkdir()
    (state / "mlflow" / "model.pt2").write_bytes(WORDS)
    settings = read_settings()
    take_backup(settings, places(settings, [], None, ["mlflow"]), place / "backup")
    restored(place / "backup", place / "other", monkeypatch)
    champion = log.champion(log.read(log_in(place / "other")))
    assert champion is not None
    assert champion.model_version == "2"
    assert not (place / "other" / "mlflow").exists()


def test_runs_in_progress_are_refused_and_named_where_they_are_not(state, place):
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        for run_id, status in (("1" * 32, "STARTING"), ("2" * 32, "STARTED"), ("3" * 32, "SUCCESS")):
            instance.add_run(dg.DagsterRun(job_name="train_toy", run_id=run_id, status=dg.DagsterRunStatus[status]))
    entered("4" * 32)
    with refused(BackupError, "backup.running") as caught:
        take_it(place / "backup")
    assert not (place / "backup").exists()
    for words in ("train_toy 11111111 (STARTING)", "train_toy 22222222 (STARTED)", "toy full on", "44444444"):
        assert words in str(caught.value)
    assert "33333333" not in str(caught.value)
    take_it(place / "backup", running=True)
    assert len(verified(place / "backup")[0].running) == 3


@pytest.mark.parametrize("link", ["file", "folder"])
def test_link_in_the_state_folder_is_never_followed(state, place, link):
    (place / "secret").mkdir()
    (place / "secret" / "key").write_bytes(b"not of the state folder")
    (state / "contracts" / "b").symlink_to(place / "secret" / "key" if link == "file" else place / "secret")
    with pytest.raises(BackupError, match="never followed") as caught:
        take_it(place / "backup")
    assert f"contracts/b -> {place / 'secret'}" in str(caught.value)
    assert not (place / "backup").exists()


@pytest.mark.parametrize("where", ["inside", "taken", "file", "nowhere"])
def test_backup_refuses_a_place_that_is_none(state, place, where):
    target = {"inside": state / "backup", "taken": place / "project", "file": state / "contracts" / "a.json"}.get(
        where, place / "nowhere" / "backup"
    )
    before = contents(place)
    with pytest.raises(BackupError):
        take_it(target)
    assert contents(place) == before


def test_backup_needs_room_and_a_state_folder(state, place, monkeypatch):
    usage = shutil.disk_usage(place)
    with monkeypatch.context() as patch:
        patch.setattr(take.shutil, "disk_usage", lambda folder: usage._replace(free=10))
        with pytest.raises(BackupError, match=r"its disk has 0\.0 GB"):
            take_it(place / "backup")
    shutil.rmtree(state)
    with pytest.raises(BackupError, match="no state folder"):
        take_it(place / "backup")


def test_damaged_database_is_told_and_no_backup(state, place):
    content = bytearray((state / DATABASE_OF_OURS).read_bytes())
    content[4096:4100] = b"\xff\xff\xff\xff"
    (state / DATABASE_OF_OURS).write_bytes(content)
    with pytest.raises(BackupError, match="damaged"):
        take_it(place / "backup")
    assert not (place / "backup").exists()
