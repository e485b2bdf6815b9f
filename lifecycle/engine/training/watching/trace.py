"""A trace of some updates by torch's profiler, for chrome://tracing or Perfetto: where an update's time goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from trainworthy.lifecycle.spec.training import ProfileSpec

NAME = "trace.json"


class Trace:
    """Records the declared updates and writes `trace.json` into the folder; nothing without a declaration.

    What the profiler or the disk raises ends the trace and is told: it never ends the training, nor hides what did.
    """

    def __init__(self, spec: ProfileSpec | None, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        self._profiler: torch.profiler.profile | None = None
        self._updates, self._later = 0, False
        self._error: Exception | None = None

    def after_update(self, step: int) -> None:
        """Begin or end at this step, if it is declared so."""
        if self.spec is None:
            return
        self._later = self._later or (step > self.spec.after_steps and not self._updates and self._profiler is None)
        if self._profiler is not None:
            self._updates += 1
            if self._updates == self.spec.steps:
                self.close()
        elif step == self.spec.after_steps:
            self._contained(self._begin)

    def close(self) -> None:
        """Write what was recorded, also of a training that ended meanwhile."""
        if self._profiler is not None:
            self._contained(self._write)
            self._profiler = None

    def notes(self) -> tuple[str, ...]:
        """Where the trace lies and of what, in words, or why there is none."""
        if self.spec is None:
            return ()
        after = f"after step {self.spec.after_steps}"
        if self._error is not None:
            return (f"no trace {after}: {type(self._error).__name__}: {self._error}",)
        if self._updates:
            return (f"{NAME} beside the checkpoints has {self._updates} updates {after}",)
        if not self._later:
            return (f"no trace: this stage made no update {after}",)
        earlier_trace = f"; {NAME} beside the checkpoints is of an earlier one" if (self.folder / NAME).exists() else ""
        return (f"no trace: this attempt went on from a later step than {self.spec.after_steps}{earlier_trace}",)

    def _begin(self) -> None:
        # Of every kind that this machine has: the CPU, and the GPU where there is one.
        profiler = torch.profiler.profile(activities=torch.profiler.supported_activities())
        profiler.start()
        self._profiler = profiler

    def _write(self) -> None:
        assert self._profiler is not None
        self._profiler.stop()
        if not self._updates:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        writing = self.folder / f".writing-{NAME}"
        self._profiler.export_chrome_trace(str(writing))
        os.replace(writing, self.folder / NAME)

    def _contained(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self._error = error
