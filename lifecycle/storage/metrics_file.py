"""What a worker has measured so far, a line a window, in `metrics.jsonl` of its folder: others read along.

Appended by a thread of its own: a disk that is slow or full never stops a training. What could not be written waits in
memory and is written once it can be. A window that is trained again after a kill is written again. Each attempt begins
with a line that says from which step it goes on: what lies after it was lost with the attempt before.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.records import Alarm, CurvePoint
from trainworthy.lifecycle.spec.frozen import Frozen

FILE_NAME = "metrics.jsonl"
RETRY_SECONDS = 2.0
# How long a training that has ended waits for its disk.
CLOSE_SECONDS = 5.0


class WindowSignals(Frozen):
    """What the monitors saw of a window that ends at `step`.

    `grad_norm` is the median of its updates before clipping, `update_ratio` the median over parameters of the newest
    update's size relative to theirs, `seconds` the median of an update.
    """

    step: int
    grad_norm: float
    update_ratio: float | None
    seconds: float


class MetricsLine(Frozen):
    """A point, signals or an alarm, and when it was measured, in milliseconds since 1970."""

    at_ms: int
    point: CurvePoint | None = None
    signals: WindowSignals | None = None
    alarm: Alarm | None = None

    @property
    def step(self) -> int:
        """The update that it is about."""
        return self._entry.step

    @property
    def key(self) -> tuple[int, str, str | None]:
        """Lines of equal keys tell of the same."""
        match self._entry:
            case CurvePoint() as point:
                return point.step, point.figure, point.slice
            case Alarm() as alarm:
                return alarm.step, f"alarm of {alarm.monitor}", None
            case WindowSignals() as signals:
                return signals.step, "signals", None

    @property
    def _entry(self) -> CurvePoint | WindowSignals | Alarm:
        entry = self.point or self.signals or self.alarm
        assert entry is not None
        return entry


class AttemptLine(Frozen):
    """An attempt begins at the checkpoint of `from_step`: later points of those before it no longer hold."""

    from_step: int


Line = MetricsLine | AttemptLine


class Windows:
    """The points of a file that still hold, each with the time of its first measuring."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, str, str | None], MetricsLine] = {}

    def add(self, lines: Iterable[Line]) -> None:
        """What the file says next."""
        for line in lines:
            if isinstance(line, AttemptLine):
                self._lines = {key: earlier for key, earlier in self._lines.items() if earlier.step <= line.from_step}
                continue
            # An equal one that is repeated keeps its time: with it, a second write to MLflow is the first one's.
            before = self._lines.get(line.key)
            if before is None or before.model_copy(update={"at_ms": line.at_ms}) != line:
                self._lines[line.key] = line

    @property
    def lines(self) -> list[MetricsLine]:
        return list(self._lines.values())


class MetricsFile:
    """Appends lines without ever raising or waiting for the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[Line] = deque()
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics.jsonl", daemon=True)
        self._thread.start()

    def begin(self, from_step: int, points: Sequence[CurvePoint]) -> None:
        """An attempt goes on from this step; `points` are those until then: a kill may have kept them from the file."""
        self._waiting.append(AttemptLine(from_step=from_step))
        self.write(points)

    def write(self, points: Sequence[CurvePoint | WindowSignals | Alarm]) -> None:
        """A line each, written soon."""
        at_ms = time.time_ns() // 1_000_000
        self._waiting.extend([line_of(point, at_ms) for point in points])
        self._wake.set()

    def close(self) -> None:
        """Write what waits, for CLOSE_SECONDS at most; what is left then is told, and is in the worker's answer."""
        self._ended.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        if self._waiting:
            say(f"{len(self._waiting)} lines of {self._path} could not be written; the answer holds them all")

    def _run(self) -> None:
        while not (self._ended.is_set() and not self._waiting):
            self._wake.wait(RETRY_SECONDS if self._waiting else None)
            self._wake.clear()
            # By number: the training appends meanwhile.
            count = len(self._waiting)
            with contextlib.suppress(OSError):
                append(self._path, b"".join(_text(self._waiting[number]) for number in range(count)))
                for _ in range(count):
                    self._waiting.popleft()


def line_of(measured: CurvePoint | WindowSignals | Alarm, at_ms: int) -> MetricsLine:
    """The line that tells of it."""
    match measured:
        case CurvePoint():
            return MetricsLine(at_ms=at_ms, point=measured)
        case WindowSignals():
            return MetricsLine(at_ms=at_ms, signals=measured)
        case Alarm():
            return MetricsLine(at_ms=at_ms, alarm=measured)


def _text(line: Line) -> bytes:
    return json.dumps(line.model_dump(mode="json", exclude_defaults=True), allow_nan=False).encode() + b"\n"


def append(path: Path, content: bytes) -> None:
    """Append whole lines or nothing. Raises OSError. A line that a kill has left half-written is ended first."""
    if not content:
        return
    with path.open("ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
            content = b"\n" + content
        try:
            if file.write(content) != len(content):
                raise OSError(f"{path} took a part of {len(content)} bytes")
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise


def windows_in(path: Path) -> list[MetricsLine]:
    """The points of the file that still hold. Raises OSError."""
    windows = Windows()
    windows.add(read_from(path, 0)[0])
    return windows.lines


def read_from(path: Path, offset: int) -> tuple[list[Line], int]:
    """The whole lines from `offset` on, and where to go on reading; lines that are none are left out.

    Nothing where there is no file yet. Raises OSError.
    """
    if not path.is_file():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read()
    content = content[: content.rfind(b"\n") + 1]
    lines: list[Line] = []
    for line in content.splitlines():
        for kind in (MetricsLine, AttemptLine):
            with contextlib.suppress(ValidationError):
                lines.append(kind.model_validate_json(line))
    return lines, offset + len(content)
