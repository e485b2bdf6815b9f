"""Workers' jobs, the attempts that are entered of them, and the table's rows."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.attempts import AttemptRow, ChargedTo, StartedAttempt
from trainworthy.lifecycle.protocol.jobs import AnyJob, VerifyJob
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.attempts import this_process
from trainworthy.resources.settings import Settings

CHARGED = ChargedTo(
    run_id="run-1", use_case="toy", step="smoke", identity="i", dataset="toy@v1", sku="small", usd_per_hour=2.0
)


class Told:
    """A run's log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, line: str) -> None:
        self.lines.append(f"info: {line}")

    def warning(self, line: str) -> None:
        self.lines.append(f"warning: {line}")

    def error(self, line: str) -> None:
        self.lines.append(f"error: {line}")


def question(folder: Path) -> VerifyJob:
    return VerifyJob(use_case_folder="u", out=str(folder), device="cpu", artifact="a", artifact_sha256="s")


def training(folder: Path, reached: int = 0) -> AnyJob:
    """A training whose newest checkpoint is of that step."""
    if reached:
        (folder / "smoke" / "checkpoints" / f"step-{reached:08d}").mkdir(parents=True)
    return toy_jobs.train_job(folder, folder / "smoke")


def started(name: str, at: float = 100.0, **changed) -> StartedAttempt:
    fields = {
        "attempt": name, "charged_to": CHARGED, "job_kind": "train", "stage": "smoke", "launcher": "local",
        "process": this_process(), "device": "cpu", "world_size": 1, "from_step": 0, "started_at": at,
    }  # fmt: skip
    return StartedAttempt.model_validate(fields | changed)


def rows(settings: Settings, **which) -> list[AttemptRow]:
    return list(attempt_table(settings).rows(**which))
