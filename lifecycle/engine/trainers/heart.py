"""The heartbeat of a training by a script: its calls of the handle are the beats.

What a script does between two calls is its own: it may evaluate for long. So it is told, as a warning, after
FIRST_UPDATE_SECONDS without a call, and only where that is also many times what lies between two updates otherwise.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.engine.training.monitors.heartbeat import Heartbeat
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.signals import FIRST_UPDATE_SECONDS


class ScriptHeartbeat(Heartbeat):
    """From one update that is told to the next. `hangs` is what it has found and is no alarm yet."""

    def __init__(self, job: TrainJob, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(Path(job.out), self._found, fewest_seconds=FIRST_UPDATE_SECONDS, now=now)
        self._stage = job.stage
        self.hangs: deque[Finding] = deque()

    def told(self, step: int) -> None:
        """An update was told."""
        self.end()
        self.begin(step)

    def called(self) -> None:
        """The script asked for something, or wrote a checkpoint."""
        # Whether an update is under way stays as it was.
        self._beats += 2

    def _found(self, finding: Finding) -> None:
        say(f"{self._stage}: {finding.symptom}: {finding.evidence}")
        self.hangs.append(finding)

    def _finding(self, path: Path) -> Finding:
        return Finding(
            "hang", "warning", self._step, self._step, "the training script has called nothing for long",
            f"no call of the session for {self._waited:.0f} s since update {self._step}: it hangs, or does something "
            f"else for as long; where each thread is: {path}",
        )  # fmt: skip
