import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from verdict_logs import log_in, logged

from trainworthy.lifecycle.errors import RecordError, StateError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import VerdictLog
from trainworthy.lifecycle.storage.shared import folder
from trainworthy.lifecycle.storage.state import write_atomic

ROOT = Path(__file__).parents[2]


def of(path: Path) -> VerdictLog:
    return log_in(path.parents[1], path.stem)


def write(path: Path, *actions: str) -> None:
    """One entry an action, each after the one before it; its verdict's hash is its number repeated."""
    for action in actions:
        entries = log.read(of(path))
        logged(
            of(path),
            action=action,  # pyright: ignore[reportArgumentType]
            model_version=str(len(entries) + 1),
            verdict_sha256=str(len(entries) + 1) * 64,
            previous_verdict_sha256=entries[-1].verdict_sha256 if entries else None,
        )


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "verdicts" / "flights.jsonl"


def test_log_that_does_not_exist_is_empty(path):
    assert log.read(of(path)) == ()
    assert log.champion(()) is None


def test_log_gives_back_its_entries_as_a_chain(path):
    write(path, "promote", "shadow", "reject")
    entries = log.read(of(path))
    assert [(e.number, e.action) for e in entries] == [(1, "promote"), (2, "shadow"), (3, "reject")]
    assert [e.previous_verdict_sha256 for e in entries] == [None, "1" * 64, "2" * 64]
    assert [e.previous_entry_sha256 for e in entries] == [None, entries[0].entry_sha256, entries[1].entry_sha256]


# As it was written before entries had a reason.
OLD_LINE = (
    '{"action":"promote","entry_sha256":"26d9bb3b5ad473086161c203d22847472bf0b69b50426d431beba9acf3258c16",'
    '"model_version":"1","number":1,"previous_entry_sha256":null,"previous_verdict_sha256":null,"use_case":"toy",'
    f'"verdict_sha256":"{"1" * 64}","written_at":"2026-11-21T13:51:00+00:00"}}\n'
)


def test_log_of_the_form_before_reasons_is_read_and_goes_on(path):
    path.parent.mkdir()
    path.write_text(OLD_LINE)
    write(path, "rollback")
    old, new = log.read(of(path))
    assert (old.reason, new.reason, new.previous_entry_sha256) == ("", "", old.entry_sha256)
    assert path.read_text().startswith(OLD_LINE)


@pytest.mark.parametrize("reason", ["", "slipped in"])
def test_log_line_of_the_old_form_with_a_reason_put_in_is_refused(path, reason):
    path.parent.mkdir()
    path.write_text(change(OLD_LINE, reason=reason) + "\n")
    with refused(RecordError, "verdict_log.changed"):
        log.read(of(path))


def test_log_line_whose_reason_was_taken_out_is_refused(path):
    write(path, "promote")
    values = json.loads(path.read_text())
    del values["reason"]
    path.write_text(json.dumps(values) + "\n")
    with refused(RecordError, "verdict_log.changed"):
        log.read(of(path))


def test_champion_is_the_newest_promotion_or_rollback(path):
    for actions, version in (("reject", None), ("promote", "2"), ("shadow", "2"), ("promote", "4"), ("rollback", "5")):
        write(path, actions)
        found = log.champion(log.read(of(path)))
        assert (found.model_version if found else None) == version


def test_append_after_another_verdict_is_refused_and_writes_nothing(path):
    write(path, "promote", "shadow")
    before = path.read_bytes()
    for stale in (None, "1" * 64):
        with refused(RecordError, "verdict_log.moved_on"):
            logged(
                of(path),
                action="promote",
                model_version="3",
                verdict_sha256="3" * 64,
                previous_verdict_sha256=stale,
            )
    assert path.read_bytes() == before


def change(line: str, **values) -> str:
    return json.dumps({**json.loads(line), **values})


@pytest.mark.parametrize(
    ("tamper", "line", "code"),
    [
        (lambda lines: [lines[0], change(lines[1], action="promote"), lines[2]], 2, "changed"),
        (lambda lines: [lines[0], lines[2]], 2, "broken_chain"),
        (lambda lines: lines[1:], 1, "broken_chain"),
        (lambda lines: [lines[0], lines[2], lines[1]], 2, "broken_chain"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], 2, "broken_chain"),
        (lambda lines: [lines[0], "", *lines[1:]], 2, "no_entry"),
        (lambda lines: [lines[0], "[]", *lines[1:]], 2, "no_entry"),
        (lambda lines: [*lines, change(lines[2], extra=1)], 4, "no_entry"),
    ],
)
def test_log_with_a_broken_chain_is_refused_by_read_and_append(path, tamper, line, code):
    write(path, "promote", "shadow", "reject")
    path.write_text("\n".join(tamper(path.read_text().splitlines())) + "\n")
    with refused(RecordError, f"verdict_log.{code}") as caught:
        log.read(of(path))
    assert caught.value.problem.startswith(f"line {line} ")
    with refused(RecordError, f"verdict_log.{code}"):
        write(path, "promote")


def test_log_with_a_torn_last_line_is_refused_with_the_remedy(path):
    write(path, "promote", "shadow")
    path.write_bytes(path.read_bytes()[:-20])
    with refused(RecordError, "verdict_log.torn") as caught:
        log.read(of(path))
    assert caught.value.problem.startswith("line 2 ")


def test_append_that_cannot_be_written_leaves_the_log_as_it_was(path, monkeypatch):
    write(path, "promote")
    before = path.read_bytes()

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".jsonl":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_atomic(path, content)

    monkeypatch.setattr(folder, "write_atomic", full)
    with pytest.raises(StateError, match="No space left on device"):
        write(path, "shadow")
    monkeypatch.undo()
    assert path.read_bytes() == before


def test_append_by_processes_at_once_lets_one_through_for_each_state(path):
    program = f"""
from pathlib import Path
from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.storage.shared.folder import FolderState
import os
import sys
verdicts = log.VerdictLog(FolderState(Path({str(path.parents[1])!r})), "flights")
print("ready", flush=True)
sys.stdin.readline()
written = 0
while written < 40:
    entries = log.read(verdicts)
    try:
        with verdicts.lease(lambda: None) as held:
            log.append(verdicts, held, action="shadow", model_version=str(os.getpid()),
                verdict_sha256=f"{{os.getpid()}}-{{written}}",
                previous_verdict_sha256=entries[-1].verdict_sha256 if entries else None)
        written += 1
    except RecordError:
        pass
"""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    workers = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, **pipes) for _ in range(3)]
    for worker in workers:
        assert worker.stdout
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin
        worker.stdin.write(b"go\n")
        worker.stdin.close()
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0, 0]
    assert len(log.read(of(path))) == 120
    for worker in workers:
        assert worker.stdout
        worker.stdout.close()
