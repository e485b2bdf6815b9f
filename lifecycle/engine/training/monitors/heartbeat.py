"""A thread that notices when no update ends for far longer than usual, and writes down where all threads are.

Its time is counted in its own wakes: each adds the seconds since the one before, but never more than twice what it
meant to sleep. So a process that was stopped, or a machine that slept, adds next to nothing, and on a crowded machine
the thread that waits is as late as the one it watches. What the training thread was ready and waited for a core that
other work had is taken off. Only time within an update is held against usual updates; what
lies between them, rows, checkpoints and validation, and the first update, which compiles, has FIRST_UPDATE_SECONDS.

Of a training script only its calls are seen, and what it does between two of them is its own: it may evaluate for
long. So the beats are its calls, an update lasts from one call of `step` to the next, and a hang is a warning, after
FIRST_UPDATE_SECONDS at the soonest.

It needs the interpreter's lock now and then: a call that holds it for ever is not seen.
"""

from __future__ import annotations

import faulthandler
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import severity_of, symptom_of
from trainworthy.lifecycle.processor import waits_for_cores
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.signals import FIRST_UPDATE_SECONDS

# An update hangs if it takes so many times the usual one, and so many seconds.
FACTOR, FEWEST_SECONDS = 50.0, 300.0
WAKE_SECONDS = 5.0
# Updates whose median is the usual one.
KEPT = 50
STACKS = "hang.txt"


class Heartbeat:
    """Beats at the beginning and end of each update; what hangs is told once, until the next beat.

    `tell` is called on the thread. All stacks are in `folder`/hang.txt by then. `hangs` are the findings that the
    training's own thread has not taken yet.
    """

    def __init__(
        self,
        folder: Path,
        tell: Callable[[Finding], None] = lambda finding: None,
        factor: float = FACTOR,
        fewest_seconds: float = FEWEST_SECONDS,
        first_seconds: float = FIRST_UPDATE_SECONDS,
        wake_seconds: float = WAKE_SECONDS,
        now: Callable[[], float] = time.monotonic,
        waits: Callable[[], Mapping[str, float] | None] = waits_for_cores,
        by_calls: bool = False,
    ) -> None:
        self.hangs: deque[Finding] = deque()
        self._by_calls = by_calls
        self._folder, self._tell, self._now, self._waits = folder, tell, now, waits
        # The thread that trains, and how long it has waited for a core so far.
        self._trains = str(threading.get_native_id())
        self._queued = self._queue()
        self._factor, self._fewest, self._first, self._wake = factor, fewest_seconds, first_seconds, wake_seconds
        self._beats, self._step, self._began = 0, 0, 0.0
        self._updates: deque[float] = deque(maxlen=KEPT)
        # Of the thread alone.
        self._last_beat, self._waited, self._reported, self._woke = 0, 0.0, False, now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @staticmethod
    def of_script(folder: Path, now: Callable[[], float] = time.monotonic) -> Heartbeat:
        """That of a training script."""
        return Heartbeat(folder, fewest_seconds=FIRST_UPDATE_SECONDS, now=now, by_calls=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(self._wake)

    def begin(self, step: int) -> None:
        """An update begins."""
        self._step, self._began = step, self._now()
        self._beats += 1

    def end(self) -> None:
        """The update that began has ended."""
        if self._beats % 2:
            self._updates.append(self._now() - self._began)
            self._beats += 1

    def next(self, step: int) -> None:
        """An update has ended, and the next one begins."""
        self.end()
        self.begin(step)

    def called(self) -> None:
        """The script asked for something, or wrote a checkpoint; whether an update is under way stays as it was."""
        self._beats += 2

    def _run(self) -> None:
        self._woke = self._now()
        while not self._ended.wait(self._wake):
            self.look()

    def look(self) -> None:
        """What the thread does at each wake."""
        now = self._now()
        seconds, self._woke = min(now - self._woke, 2 * self._wake), now
        queued = self._queue()
        seconds, self._queued = max(0.0, seconds - (queued - self._queued)), queued
        if self._beats != self._last_beat:
            self._last_beat, self._waited, self._reported = self._beats, 0.0, False
            return
        self._waited += seconds
        if self._waited <= self._limit() or self._reported:
            return
        self._reported = True
        path = self._folder / STACKS
        try:
            with path.open("w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
        except OSError as error:
            say(f"{path} could not be written: {error}")
        finding = self._no_call(path) if self._by_calls else self._no_step(path)
        say(f"{self._folder.name}: {finding.symptom}: {finding.evidence}")
        self._tell(finding)
        self.hangs.append(finding)

    def _queue(self) -> float:
        """Seconds that the training thread has waited for a core; 0 where the system does not tell."""
        return (self._waits() or {}).get(self._trains, 0.0)

    def _within(self) -> bool:
        """True while an update is made that is not the first."""
        return self._beats % 2 == 1 and len(self._updates) > 0

    def _limit(self) -> float:
        if not self._within():
            return self._first
        return max(self._fewest, self._factor * statistics.median(list(self._updates)))

    def _no_call(self, path: Path) -> Finding:
        return Finding(
            "hang", "warning", self._step, self._step, symptom_of("hang", "script"),
            f"no call of the session for {self._waited:.0f} s since update {self._step}: it hangs, or does something "
            f"else for as long; where each thread is: {path}",
        )  # fmt: skip

    def _no_step(self, path: Path) -> Finding:
        where = "within an update" if self._beats % 2 else "between two updates: rows, checkpoint or validation"
        usual = f", usually {statistics.median(list(self._updates)):.3g} s an update" if self._updates else ""
        return Finding(
            "hang", severity_of("hang"), self._step, self._step, symptom_of("hang"),
            f"no step for {self._waited:.0f} s {where} (step {self._step}), at most {self._limit():.0f} s{usual}; "
            f"where each thread is: {path}",
        )  # fmt: skip
