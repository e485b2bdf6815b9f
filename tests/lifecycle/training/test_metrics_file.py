"""The worker's metrics.jsonl: whole lines or none, also on a disk that is full for a while."""

import math
import threading
from collections import deque
from types import SimpleNamespace

import pytest

from trainworthy.lifecycle.engine.training.watching.window_signals import window_signals
from trainworthy.lifecycle.protocol.signals import Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm, CurvePoint
from trainworthy.lifecycle.storage import metrics_file
from trainworthy.lifecycle.storage.metrics_file import (
    AttemptLine,
    MetricsFile,
    MetricsLine,
    Windows,
    WindowSignals,
    append,
    line_of,
    read_from,
    windows_in,
)
from trainworthy.resources.mlflow import figures_of_line


def points(*steps: int) -> list[CurvePoint]:
    return [CurvePoint(step=n, rows=8, loss=1 / n, standard_error=0.1, learning_rate=0.1) for n in steps]


def steps_in(path) -> list[int]:
    return [line.point.step for line in read_from(path, 0)[0] if isinstance(line, MetricsLine)]


def test_metrics_file_holds_what_was_written_and_a_later_attempt_adds_to_it(tmp_path):
    for steps in ((1, 2), (2, 3)):
        file = MetricsFile(tmp_path / "metrics.jsonl")
        file.write(points(*steps))
        file.close()
    assert steps_in(tmp_path / "metrics.jsonl") == [1, 2, 2, 3]
    assert windows_in(tmp_path / "metrics.jsonl")[0].point == points(1)[0]


def test_points_of_a_lost_attempt_hold_no_more_and_repeated_ones_keep_their_time():
    first, other = points(1, 2, 3), points(3)[0].model_copy(update={"loss": 0.7})
    windows = Windows()
    windows.add([AttemptLine(from_step=0), *(MetricsLine(at_ms=n, point=point) for n, point in enumerate(first))])
    windows.add([AttemptLine(from_step=2), MetricsLine(at_ms=10, point=first[0]), MetricsLine(at_ms=11, point=other)])
    assert [(line.at_ms, line.point.step, line.point.loss) for line in windows.lines] == [
        (0, 1, 1.0), (1, 2, 0.5), (11, 3, 0.7),
    ]  # fmt: skip


def test_metrics_file_on_a_full_disk_waits_in_memory_and_is_replayed(tmp_path, monkeypatch):
    full, tried = threading.Event(), threading.Event()
    full.set()

    def on_this_disk(path, content):
        tried.set()
        if full.is_set():
            raise OSError(28, "No space left on device")
        append(path, content)

    monkeypatch.setattr(metrics_file, "append", on_this_disk)
    monkeypatch.setattr(metrics_file, "RETRY_SECONDS", 0.01)
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.write(points(1, 2))
    assert tried.wait(30)
    file.write(points(3))
    assert steps_in(tmp_path / "metrics.jsonl") == []
    full.clear()
    file.close()
    assert steps_in(tmp_path / "metrics.jsonl") == [1, 2, 3]


def test_metrics_file_that_can_never_be_written_ends_the_training_well_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metrics_file, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(metrics_file, "RETRY_SECONDS", 0.01)
    file = MetricsFile(tmp_path / "no folder" / "metrics.jsonl")
    file.write(points(1, 2))
    file.close()
    assert "2 lines" in capsys.readouterr().err


def test_line_half_written_by_a_kill_is_ended_and_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"at_ms": 1, "poi')
    file = MetricsFile(path)
    file.write(points(4))
    file.close()
    assert steps_in(path) == [4]


def test_reader_takes_no_half_line_and_goes_on_where_it_was(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_from(path, 0) == ([], 0)
    file = MetricsFile(path)
    file.write(points(1))
    file.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:10])
    lines, offset = read_from(path, 0)
    assert ([line.point.step for line in lines], offset) == ([1], len(whole))
    path.write_bytes(whole + whole)
    assert [line.point.step for line in read_from(path, offset)[0]] == [1]


def test_append_that_takes_a_part_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    append(path, b"one\n")
    opened = type(path).open

    class Short:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, content):
            return self.file.write(content[:2])

    monkeypatch.setattr(type(path), "open", lambda self, *given, **named: Short(opened(self, *given, **named)))
    with pytest.raises(OSError, match="took a part"):
        append(path, b"two\n")
    monkeypatch.undo()
    assert path.read_bytes() == b"one\n"


def test_signals_and_alarms_are_lines_of_their_own(tmp_path):
    alarm = Alarm(
        step=3, onset=3, last_step=3, monitor="loss_spike", severity="critical", symptom="s", evidence="e", cause="c",
        fix="f", action="warn",
    )  # fmt: skip
    signals = WindowSignals(step=4, grad_norm=0.5, update_ratio=None, seconds=0.01)
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.write([*points(4), signals, alarm])
    file.close()
    lines, _ = read_from(tmp_path / "metrics.jsonl", 0)
    assert [line.signals for line in lines if line.signals] == [signals]
    assert [line.alarm for line in lines if line.alarm] == [alarm]
    assert figures_of_line("full", line_of(signals, 0)) == (4, {"full/gradient_norm": 0.5, "full/update_seconds": 0.01})
    assert figures_of_line("full", line_of(alarm, 0)) == (3, {"full/alarm/loss_spike": 2.0})
    assert figures_of_line("full", line_of(points(1)[0], 0))[0] == points(1)[0].step


def test_window_signals_are_of_the_window_s_own_updates_and_finite():
    norms = [1.0, 2.0, math.nan, 4.0]
    recent = [Signals(step, 0.5, 0.3, 8, 0.1, norm, [norm], 0.01 * step, 0.0) for step, norm in enumerate(norms)]
    sample = Sample(2, ("w", "b"), (True, False), (2.0, 1.0), (0.02, 0.5), (0.0, 0.0), (), 1.0, 1.0, 0.0)
    watch = SimpleNamespace(recorder=SimpleNamespace(signals=deque(recent)), samples=deque([sample]))
    found = window_signals(watch, step=4, updates=3)
    assert found == WindowSignals(step=4, grad_norm=3.0, update_ratio=0.01, seconds=0.02)
    assert window_signals(watch, step=9, updates=3) is None
