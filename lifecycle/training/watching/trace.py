"""A trace of some updates by torch's profiler, for chrome://tracing or Perfetto: where an update's time goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.training_spec import ProfileSpec

if TYPE_CHECKING:
    import torch

NAME = "trace.json"


class Trace:
    """Records the declared updates and writes `trace.json` into the folder; nothing without a declaration."""

    def __init__(self, spec: ProfileSpec | None, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        self._profiler: torch.profiler.profile | None = None

    def after_update(self, step: int) -> None:
        """Begin or end at this step, if it is declared so."""
        import torch

        if self.spec is None:
            return
        if step == self.spec.after_steps:
            # Of every kind that this machine has: the CPU, and the GPU where there is one.
            self._profiler = torch.profiler.profile(activities=torch.profiler.supported_activities())
            self._profiler.start()
        elif step == self.spec.after_steps + self.spec.steps:
            self.close()

    def close(self) -> None:
        """Write what was recorded, also of a training that ended meanwhile."""
        if self._profiler is None:
            return
        self._profiler.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        writing = self.folder / f".writing-{NAME}"
        self._profiler.export_chrome_trace(str(writing))
        os.replace(writing, self.folder / NAME)
        self._profiler = None

    def told(self) -> tuple[str, ...]:
        """Where the trace lies, in words; that there is none, if the stage had no such updates."""
        if self.spec is None:
            return ()
        if (self.folder / NAME).exists():
            return (f"{NAME} beside the checkpoints has {self.spec.steps} updates after step {self.spec.after_steps}",)
        return (f"no trace: this stage made no update after step {self.spec.after_steps}",)
