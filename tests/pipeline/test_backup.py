"""trainworthy backup and restore: the same state at another place, and nothing of what is not what was written."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from doctor_checks import bad
from toy_project import ROOT

from tests.refusals import refused
from trainworthy.lifecycle.errors import BackupError, SettingsError, TrainworthyError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.attempts import ChargedTo, StartedAttempt
from trainworthy.lifecycle.storage.records import FileRecordStore
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.pipeline.backup import take
from trainworthy.pipeline.backup.consistent import problems
from trainworthy.pipeline.backup.manifest import FILE, SEAL, read_manifest, write_manifest
from trainworthy.pipeline.backup.places import places
from trainworthy.pipeline.backup.postgres import databases, dump
from trainworthy.pipeline.backup.restore import restore_backup
from trainworthy.pipeline.backup.take import take_backup
from trainworthy.pipeline.backup.verify import verified
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.commands import next_version
from trainworthy.pipeline.doctor import runs
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.attempts import this_process
from trainworthy.resources.dagster_settings import database_address, refuse_unset, storage_kind
from trainworthy.resources.settings import DATABASE, read_settings

WORDS = b"what nobody can make again\n"
DATABASE_OF_OURS = "dagster/history/metrics.db"


@pytest.fixture
def state(place) -> Path:
    """A small state folder of the project in the environment: a record and what leads to it, a file, a database."""
    state = place / "state"
    promoted = told(state, "first")
    log.append(
        state / "verdicts" / "toy.jsonl", use_case="toy", action="shadow", model_version="1", verdict_sha256=promoted,
        previous_verdict_sha256=None,
    )  # fmt: skip
    (state / "contracts").mkdir()
    (state / "contracts" / "a.json").write_bytes(WORDS)
    (state / "empty").mkdir()
    (state / DATABASE_OF_OURS).parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(state / DATABASE_OF_OURS)) as connection, connection:
        connection.execute("CREATE TABLE told (number INTEGER)")
    return state


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


def test_trained_state_is_the_same_at_another_place(toy, tmp_path, capsys):
    backup, other = tmp_path / "backup", type(toy)(toy.root, tmp_path / "other")
    store = FileRecordStore(StateFolder(toy.var))
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
        assert len(capsys.readouterr().out.splitlines()) == 8
    assert other.champion() == "1"
    (run_id,) = FileRecordStore(StateFolder(other.var)).run_ids("toy")
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
    before, ordered = contents(state), FileRecordStore(StateFolder(state)).run_ids("toy")
    take_it(place / "backup")
    restored(place / "backup", place / "other", monkeypatch)
    after = contents(place / "other")
    assert {name: content for name, content in after.items() if not name.endswith(".db")} == {
        name: content for name, content in before.items() if not name.endswith(".db")
    }
    assert (place / "other" / "empty").is_dir()
    assert ordered == ["first", "second", "third"]
    assert FileRecordStore(StateFolder(place / "other")).run_ids("toy") == ordered
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
        entries = log.read(state / "verdicts" / "toy.jsonl")
        written.append(told(state, f"meanwhile{len(written)}"))
        log.append(
            state / "verdicts" / "toy.jsonl", use_case="toy", action="shadow", model_version="1",
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
    newest = log.read(state / "verdicts" / "toy.jsonl")[-1]
    log.append(
        state / "verdicts" / "toy.jsonl", use_case="toy", action="promote", model_version="2",
        verdict_sha256=newest.verdict_sha256, previous_verdict_sha256=newest.verdict_sha256,
    )  # fmt: skip
    assert problems(state, own_registry=True) == ["version 2 of toy is champion, and MLflow does not have it"]
    assert problems(state, own_registry=False) == []


def test_backup_without_the_state_folders_registry_is_restored_without_it(state, place, monkeypatch):
    newest = log.read(state / "verdicts" / "toy.jsonl")[-1]
    log.append(
        state / "verdicts" / "toy.jsonl", use_case="toy", action="promote", model_version="2",
        verdict_sha256=newest.verdict_sha256, previous_verdict_sha256=newest.verdict_sha256,
    )  # fmt: skip
    (state / "mlflow").mkdir()
    (state / "mlflow" / "model.pt2").write_bytes(WORDS)
    settings = read_settings()
    take_backup(settings, places(settings, [], None, ["mlflow"]), place / "backup")
    restored(place / "backup", place / "other", monkeypatch)
    champion = log.champion(log.read(place / "other" / "verdicts" / "toy.jsonl"))
    assert champion is not None
    assert champion.model_version == "2"
    assert not (place / "other" / "mlflow").exists()


def entered(run_id: str) -> None:
    attempt_table(read_settings()).start(
        StartedAttempt(
            attempt="a", charged_to=ChargedTo(run_id=run_id, use_case="toy", step="full", identity="i"),
            job_kind="train", stage="full", launcher="local", process=this_process(), device="cpu", world_size=1,
            from_step=0, started_at=0.0,
        )
    )  # fmt: skip


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


# What is restored


@pytest.fixture
def backup(state, place) -> Path:
    take_it(place / "backup")
    return place / "backup"


def resealed(backup: Path, old: str, new: str) -> None:
    """As somebody would change it who knows of the hash beside it."""
    content = (backup / FILE).read_text()
    assert old in content
    content = content.replace(old, new)
    (backup / FILE).write_text(content)
    (backup / SEAL).write_text(f"{hashlib.sha256(content.encode()).hexdigest()}  {FILE}\n")


def one_byte(backup: Path) -> None:
    path = backup / "state" / "contracts" / "a.json"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def link_out(backup: Path) -> None:
    path = backup / "state" / "contracts" / "a.json"
    shutil.move(path, backup.parent / "elsewhere.json")
    path.symlink_to(backup.parent / "elsewhere.json")


def folder_link_out(backup: Path) -> None:
    shutil.move(backup / "state" / "contracts", backup.parent / "elsewhere")
    (backup / "state" / "contracts").symlink_to(backup.parent / "elsewhere")


FAULTS = {
    "a byte changed": (one_byte, "changed: state/contracts/a.json"),
    "a file missing": (lambda b: (b / "state/contracts/a.json").unlink(), "missing: state/contracts/a.json"),
    "a file more": (lambda b: (b / "state/contracts/b.json").write_bytes(b""), "not of this backup: state/contracts/b"),
    "a link out": (link_out, "never followed"),
    "a folder that is a link out": (folder_link_out, "never followed"),
    "no manifest": (lambda b: (b / FILE).unlink(), "no whole backup"),
    "the manifest changed": (lambda b: (b / FILE).write_text("{}"), "manifest was changed"),
    "a name that leads out": (
        lambda b: resealed(b, "state/contracts/a.json", "state/../../escaped"),
        "leads out of the backup",
    ),
    "a whole path": (lambda b: resealed(b, "state/contracts/a.json", "/etc/escaped"), "leads out of the backup"),
    "a later form": (lambda b: resealed(b, '"form":1', '"form":"two"'), "no known form"),
    "a record gone, by its manifest too": (
        lambda b: drop(b, "objects"),
        "does not hold together",
    ),
}


def drop(backup: Path, part: str) -> None:
    """Take a file out and seal the rest: every hash is right, and something that is named is missing."""
    manifest, _ = read_manifest(backup)
    (name,) = (name for name in manifest.files if part in name)
    (backup / name).unlink()
    left = {other: kept for other, kept in manifest.files.items() if other != name}
    write_manifest(backup, manifest.model_copy(update={"files": left}))


@pytest.mark.parametrize("fault", FAULTS)
def test_backup_that_is_not_what_was_written_restores_nothing(backup, place, monkeypatch, fault):
    plant, words = FAULTS[fault]
    plant(backup)
    with pytest.raises(BackupError, match=words):
        restored(backup, place / "other", monkeypatch)
    assert not (place / "other").exists()
    assert unfinished(place) == []
    assert not (place / "escaped").exists()


def test_verify_looks_at_all_and_writes_nothing(backup, place, monkeypatch, capsys):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(place / "other"))
    assert main(["restore", "--verify", str(backup)]) == 0
    one_byte(backup)
    assert main(["restore", "--verify", str(backup)]) == 1
    assert "changed: state/contracts/a.json" in capsys.readouterr().err
    assert not (place / "other").exists()


def test_place_that_is_in_use_is_left_as_it_is(backup, place, state, monkeypatch):
    before = contents(state)
    with refused(BackupError, "backup.in_use"):
        restored(backup, state, monkeypatch)
    assert contents(state) == before
    (place / "empty").mkdir()
    restored(backup, place / "empty", monkeypatch)
    assert (place / "empty" / "contracts" / "a.json").read_bytes() == WORDS


def test_disk_that_fails_on_the_way_leaves_nothing(backup, place, monkeypatch):
    from trainworthy.pipeline.backup import restore

    plain, done = restore.copied, []

    def failing(source: Path, target: Path, **how: bool):
        done.append(target)
        if len(done) == 3:
            raise OSError(5, "Input/output error")
        return plain(source, target, **how)

    monkeypatch.setattr(restore, "copied", failing)
    with pytest.raises(OSError, match="Input/output"):
        restored(backup, place / "other", monkeypatch)
    assert not (place / "other").exists()
    assert unfinished(place) == []


SLOWLY = """\
import sys, time
from trainworthy.pipeline.backup import restore, take
from trainworthy.pipeline.cli import main

def copied(*given, plain=take.copied, **how):
    found = plain(*given, **how)
    print("copied", flush=True)
    time.sleep(600)
    return found

take.copied = restore.copied = copied
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("command", "number"), [("backup", signal.SIGHUP), ("restore", signal.SIGTERM)])
def test_command_that_is_asked_to_end_leaves_nothing(backup, place, monkeypatch, command, number):
    """As by docker stop, or where the terminal of kubectl exec is lost."""
    target = place / ("other" if command == "restore" else "backup2")
    if command == "restore":
        monkeypatch.setenv("TRAINWORTHY_VAR", str(target))
    asked = [sys.executable, "-c", SLOWLY, command, str(backup if command == "restore" else target)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "copied\n"
        assert unfinished(place) != []
        process.send_signal(number)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert f"{command}: ended by {number.name}" in told
    assert unfinished(place) == []
    assert not target.exists()


# Settings


def test_server_of_mlflow_is_named_or_left_out_on_purpose(state, place, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somebody:secret@127.0.0.1:9")
    settings = read_settings()
    with pytest.raises(BackupError, match="registry is on a server") as caught:
        places(settings, [], None, [])
    assert "secret" not in str(caught.value)
    assert "--without mlflow" in caught.value.fix
    with pytest.raises(BackupError, match="not set"):
        places(settings, ["MLFLOW_DATABASE"], place, [])
    assert places(settings, [], None, ["mlflow"]).without == ("mlflow",)
    monkeypatch.setenv("MLFLOW_DATABASE", "postgresql://u:p@h/mlflow")
    with pytest.raises(BackupError, match="artifacts is not there"):
        places(settings, ["MLFLOW_DATABASE"], place / "mistyped", [])
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(BackupError, match="has no server"):
        places(settings, ["MLFLOW_DATABASE"], place, [])


def test_variable_that_dagster_yaml_asks_for_is_one_clear_error(state, place, monkeypatch, capsys):
    home = place / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("storage:\n  postgres: {postgres_url: {env: DAGSTER_DATABASE}}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.delenv("DAGSTER_DATABASE", raising=False)
    with refused(SettingsError, "dagster.unset"):
        places(read_settings(), [], None, [])
    # So do the commands that open Dagster or start it.
    (line,) = bad(runs.stuck)
    assert "asks for a variable that is not set: DAGSTER_DATABASE" in line
    assert "export DAGSTER_DATABASE=" in line
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    assert main(["ui", "--port", port]) == 1
    assert "not set: DAGSTER_DATABASE" in capsys.readouterr().err
    with refused(SettingsError, "dagster.unset"):
        next_version._become("dagster job execute")
    # A label is no variable.
    labels = "run_launcher: {config: {run_k8s_config: {pod_template_spec_metadata: {labels: {env: production}}}}}\n"
    (home / "dagster.yaml").write_text(f"{labels}storage:\n  sqlite: {{base_dir: /elsewhere}}\n")
    refuse_unset(home)
    with pytest.raises(BackupError, match="neither the state folder nor PostgreSQL"):
        places(read_settings(), [], None, [])
    assert places(read_settings(), [], None, ["dagster"]).databases == ()


def test_places_of_another_kind_than_the_backups_are_refused(backup, place, state, monkeypatch):
    (state / "attempts.db").touch()
    entered("5" * 32)
    shutil.rmtree(backup)
    take_it(backup, running=True)
    monkeypatch.setenv(DATABASE, "postgresql://somebody:secret@127.0.0.1:9/none")
    with pytest.raises(BackupError, match="attempts as a file") as caught:
        restored(backup, place / "other", monkeypatch)
    assert "secret" not in str(caught.value)
    assert not (place / "other").exists()


def test_database_that_two_names_lead_to_is_one(state, place, monkeypatch):
    home = place / "home"
    home.mkdir()
    db = {"username": "u", "password": "p/@", "hostname": "h", "db_name": "trainworthy"}
    (home / "dagster.yaml").write_text(json.dumps({"storage": {"postgres": {"postgres_db": db}}}))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv(DATABASE, "postgresql://other:q@h:5432/trainworthy?sslmode=require")
    (one,) = places(read_settings(), [], None, []).databases
    assert one.holds == ("dagster", "attempts")
    assert "p%2F" not in repr(one)
    monkeypatch.setenv(DATABASE, "postgresql://other:q@h:5433/trainworthy")
    assert [found.holds for found in places(read_settings(), [], None, []).databases] == [("dagster",), ("attempts",)]


def test_database_of_dagsters_helm_chart_is_found_too(place, monkeypatch):
    """The chart writes three storages with one database, and the password in a variable of its own."""
    db = {
        "username": "u", "password": {"env": "DAGSTER_PG_PASSWORD"}, "hostname": "h", "db_name": "n", "port": 5433,
        "params": {"sslmode": "require"},
    }  # fmt: skip
    storage = {"module": "dagster_postgres.run_storage", "class": "PostgresRunStorage", "config": {"postgres_db": db}}
    (place / "dagster.yaml").write_text(json.dumps({"run_storage": storage}))
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "a/b@c")
    assert storage_kind(place) == "postgresql"
    assert database_address(place) == "postgresql://u:a%2Fb%40c@h:5433/n?sslmode=require"
    (place / "dagster.yaml").write_text(json.dumps({"run_storage": {"module": "dagster_mysql.run_storage"}}))
    assert storage_kind(place) == "other"


def test_missing_pg_dump_is_told_with_its_package(state, place, monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://u:secret@127.0.0.1:9/none")
    monkeypatch.setattr(take, "in_progress", lambda settings, where: [])
    monkeypatch.setenv("PATH", str(place / "empty"))
    with pytest.raises(BackupError, match="pg_dump is missing") as caught:
        take_it(place / "backup")
    assert "apt-get install postgresql-client" in caught.value.fix
    assert not (place / "backup").exists()


@pytest.mark.parametrize("address", ["u:s3%2Fcret@127.0.0.1:9/none", "u@127.0.0.1:9/none?password=s3%2Fcret"])
def test_password_goes_by_the_environment_and_is_never_told(place, monkeypatch, address):
    """Also one in the address's query, which SQLAlchemy takes as well."""
    (programs := place / "programs").mkdir()
    (program := programs / "pg_dump").write_text('#!/bin/sh\necho "$@ and $PGPASSWORD" | tee "$OUT" >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("OUT", str(place / "told"))
    (database,) = databases({"attempts": f"postgresql://{address}"})
    with pytest.raises(BackupError, match="pg_dump failed") as caught:
        dump(database, place / "a.dump")
    command, _, password = (place / "told").read_text().strip().partition(" and ")
    assert "--dbname=postgresql://u@127.0.0.1:9/none " in command
    assert password == "s3/cret"
    assert "cret" not in str(caught.value)


def test_database_that_is_away_is_told_without_its_password(state, place, monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://u:s3cret@127.0.0.1:9/none")
    with pytest.raises(TrainworthyError) as caught:
        take_it(place / "backup")
    assert "s3cret" not in str(caught.value)


@pytest.mark.skipif(
    shutil.which("pg_dump") is None, reason="pg_dump is not installed: apt-get install postgresql-client"
)
def test_pg_dump_that_gets_no_answer_is_told_without_the_password(state, place, monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://u:s3cret@127.0.0.1:9/none")
    monkeypatch.setattr(take, "in_progress", lambda settings, where: [])
    with pytest.raises(BackupError, match="pg_dump failed") as caught:
        take_it(place / "backup")
    assert "s3cret" not in str(caught.value)
    assert unfinished(place) == []
