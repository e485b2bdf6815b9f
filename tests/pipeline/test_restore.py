"""trainworthy restore: nothing of what is not what was written, and nothing half."""

import hashlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from backups import WORDS, contents, restored, unfinished

from tests.refusals import refused
from trainworthy.lifecycle.errors import BackupError
from trainworthy.pipeline.backup.manifest import FILE, SEAL, read_manifest, write_manifest
from trainworthy.pipeline.cli import main


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
