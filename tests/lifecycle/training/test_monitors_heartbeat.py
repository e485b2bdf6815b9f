"""What hangs is told, with all stacks; what only takes long, or was stopped, is not. With a clock moved by hand."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import toy_jobs

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training import course
from trainworthy.lifecycle.engine.training.monitors.heartbeat import STACKS, Heartbeat
from trainworthy.lifecycle.failure import EXIT_HANG, End, cause_of_end
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile


class Clocked:
    """A heartbeat of updates of 0.2 s, and what it told."""

    def __init__(self, folder: Path, updates: int = 10) -> None:
        self.time, self.told, self.queued = 1000.0, [], 50.0
        waits = lambda: {str(threading.get_native_id()): self.queued}
        self.heart = Heartbeat(folder, self.told.append, now=lambda: self.time, waits=waits)
        for step in range(updates):
            self.heart.begin(step)
            self.time += 0.2
            self.heart.end()

    def passes(self, seconds: float, wake: float = 5.0, queued: float = 0.0) -> None:
        """Time passes, a share of it waiting for a core, and the thread wakes."""
        for _ in range(int(seconds / wake)):
            self.time += wake
            self.queued += queued * wake
            self.heart.look()


def test_heartbeat_of_an_update_that_never_ends_tells_once_where_all_threads_are(tmp_path):
    clocked = Clocked(tmp_path)
    clocked.heart.begin(10)
    clocked.passes(290)
    assert clocked.told == []
    clocked.passes(4000)
    (finding,) = clocked.told
    assert (finding.monitor, finding.severity, finding.step) == ("hang", "critical", 10)
    assert "within an update" in finding.evidence
    assert "test_monitors_heartbeat.py" in (tmp_path / STACKS).read_text()


def test_heartbeat_of_an_update_that_other_work_keeps_from_a_core_is_quiet(tmp_path):
    clocked = Clocked(tmp_path)
    clocked.heart.begin(10)
    clocked.passes(2900, queued=0.9)
    assert clocked.told == []
    clocked.passes(300, queued=0.1)
    assert [finding.monitor for finding in clocked.told] == ["hang"]


def test_heartbeat_of_rows_that_never_come_tells_later(tmp_path):
    clocked = Clocked(tmp_path)
    clocked.passes(1790)
    assert clocked.told == []
    clocked.passes(30)
    assert "between two updates" in clocked.told[0].evidence


@pytest.mark.parametrize(
    ("updates", "within", "seconds"),
    [(0, True, 1700), (10, False, 1700), (10, True, 290)],
    ids=["the first update compiles", "a long checkpoint or validation", "a slow update"],
)
def test_heartbeat_of_what_only_takes_long_is_quiet(tmp_path, updates, within, seconds):
    clocked = Clocked(tmp_path, updates)
    if within:
        clocked.heart.begin(updates)
    for _ in range(3):
        clocked.passes(seconds)
        clocked.heart.end()
        clocked.heart.begin(updates)
        clocked.heart.end()
        if within and updates:
            clocked.heart.begin(updates)
    assert clocked.told == []


def test_heartbeat_of_slow_updates_allows_a_slower_one(tmp_path):
    clocked = Clocked(tmp_path, 0)
    for step in range(5):
        clocked.heart.begin(step)
        clocked.time += 60
        clocked.heart.end()
    clocked.heart.begin(5)
    clocked.passes(2900)
    assert clocked.told == []
    clocked.passes(200)
    assert len(clocked.told) == 1


def test_heartbeat_of_a_stopped_process_or_a_machine_that_slept_is_quiet(tmp_path):
    clocked = Clocked(tmp_path)
    clocked.heart.begin(10)
    # The thread was stopped with the process: it wakes once, hours later.
    for _ in range(20):
        clocked.passes(36_000, wake=36_000)
    assert clocked.told == []


@pytest.mark.parametrize(("seconds", "hangs"), [(250, []), (350, [("hang", 5, "warn")])])
def test_training_whose_update_hangs_has_the_hang_as_an_alarm(splits, tmp_path, monkeypatch, seconds, hangs):
    class Hand(Heartbeat):
        """Goes by a clock that stands still, but for so many seconds within update 5."""

        def __init__(self, folder, tell):
            self.time = 1000.0
            super().__init__(folder, tell, now=lambda: self.time, waits=lambda: None)

        def begin(self, step):
            super().begin(step)
            for _ in range(seconds // 5 if step == 5 else 0):
                self.time += 5
                self.look()

    monkeypatch.setattr(course, "Heartbeat", Hand)
    result = run_stage(toy_jobs.train_job(splits, tmp_path / "out"))
    assert [(alarm.monitor, alarm.step, alarm.action) for alarm in result.alarms] == hangs
    assert (tmp_path / "out" / STACKS).exists() == bool(hangs)
    assert result.steps == result.planned_steps


def test_hang_ends_the_process_with_its_own_class_where_that_is_declared(splits, tmp_path):
    spec = toy_jobs.spec_with(training={"monitors": {"hang": "stop"}})
    job = toy_jobs.train_job(splits, tmp_path / "out", "full", spec=spec)
    (tmp_path / "out").mkdir()
    (tmp_path / "job.json").write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
    code = f"""
from pathlib import Path
from trainworthy.lifecycle.protocol.jobs import JobFile
from trainworthy.lifecycle.engine.training.course import end_if_declared
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
job = JobFile.model_validate_json(Path({str(tmp_path / "job.json")!r}).read_bytes()).job
end_if_declared(job, Finding("hang", "critical", 3, 3, "the training hangs", "no step for 400 s"))
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=toy_jobs.ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_HANG, ended.stderr
    told = json.loads((tmp_path / "out" / "error.json").read_text())
    assert told["problem"] == "the training hangs: no step for 400 s"
    assert cause_of_end(End(exit_code=EXIT_HANG, told=told)) == "hang"
