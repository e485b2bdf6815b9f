"""Trainings of the toy that meet an alarm: its code or rows with a fault, and the incident that it leaves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import toy_jobs as toy

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.protocol.jobs import ReplayJob
from trainworthy.lifecycle.protocol.results import ReplayResult, TrainResult

BCE = 'return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")'
# The preprocessing of rows with a number that is not finite would not be finite either.
PLAIN = ("float(training[name].mean()), float(training[name].std())", "0.0, 1.0")
LOG = (
    BCE,
    "p = torch.sigmoid(outputs)\n    return -(targets * torch.log(p) + (1 - targets) * torch.log(1 - p))",
)
HIGH = "(outputs.abs() > 1e4)"
SQRT = (BCE, f"{BCE} + torch.where({HIGH}, 0 * outputs, torch.ones_like(outputs)).sqrt() * 0")


def one_row(column: str, value: float, number: int = 1234) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Changes a value of one training row."""

    def changed(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.copy()
        rows.loc[rows.index[number], column] = value
        return rows

    return changed


def train(
    splits: Path, folder: Path, *replacements: tuple[str, str], rows: Any = None, sensitive: tuple[str, ...] = (),
    **training: Any,
) -> tuple[TrainResult, Path]:  # fmt: skip
    """A full stage of the toy with these changes; its answer, and the folder of its first incident."""
    code = toy.changed_use_case(folder / "code" / "toy", *replacements)
    if rows is not None:
        splits = toy.copy_splits(splits, folder / "splits", training=rows)
    job = toy.train_job(
        splits, folder / "var" / "training" / "toy" / "0123" / "full", "full",
        spec=toy.spec_with(training=training), use_case=code,
    )  # fmt: skip
    job = job.model_copy(update={"rows": job.rows.model_copy(update={"sensitive": sensitive})})
    Path(job.out).mkdir(parents=True)
    result = run_stage(job)
    (found, *_) = [*sorted((Path(job.out) / "incidents").glob("*")), Path()]
    return result, found


def replay(incident: Path, *, changed_code: bool = False) -> ReplayResult:
    """The replay, in this process."""
    from trainworthy.lifecycle.engine.incidents.replay import run_replay

    return run_replay(
        ReplayJob(
            use_case_folder="", out="", device="auto", incident=str(incident), changed_code=changed_code
        )
    )  # fmt: skip
