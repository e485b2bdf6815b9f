"""The check `references` on tables from outside of this project's examples: healthy trainings, and planted faults.

Each case of references_cases.py is trained as a use case of its own by the product's stage, and judged by its gate: the
healthy ones at smoke and pilot with several seeds, the planted ones at the pilot. Target: no healthy stage is stopped.
Warnings of healthy ones and missed faults are listed by name. The seconds are CPU time, of the whole stage and of its
references.

    make bench NAME=references                 about 4 minutes on 2 busy cores
    python -m benchmarks.references waves      cases with these letters in their name
    python -m benchmarks.references --record   and keep the counts of the check
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from benchmarks.record import FaultRun, HealthyRun, keep, of_faults, of_healthy, whole_parts
from benchmarks.references_cases import GROUPS, HEALTHY, PLANTED, Case
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import Rows, TrainJob
from trainworthy.lifecycle.protocol.results import References
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.spec.training import StagesSpec, TrainingSpec

Stage = Literal["smoke", "pilot"]
SEEDS = (0, 1)
STAGES: tuple[Stage, ...] = ("smoke", "pilot")
NAME = "stage.references"


@dataclass(frozen=True)
class Ran:
    """A stage of a case: its check, whether any check stopped it, and CPU seconds."""

    case: str
    stage: str
    seed: int
    check: CheckResult
    stopped: tuple[str, ...]
    seconds: float
    references_seconds: float

    @property
    def warns(self) -> bool:
        return self.check.status == "fail" and not self.check.stops


def main() -> None:
    """Run every case and print a row each."""
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", help="letters of cases' names; all of them without it")
    parser.add_argument("--record", action="store_true", help="keep the counts of the check, of all cases")
    asked = parser.parse_args()
    record = whole_parts(parser, asked, asked.names)
    begin(asked.short)
    # Networks so small spend more on threads than on themselves.
    torch.set_num_threads(1)
    names = asked.names or (["wine", "whole numbers"] if asked.short else [""])
    seeds = SEEDS[:1] if asked.short else SEEDS
    print("| case | stage, seed | says | code | CPU s, of references | evidence |\n|---|---|---|---|---|---|")
    healthy = [
        _told(run(case, stage, seed))
        for case in _named(HEALTHY, names) for stage in STAGES for seed in seeds
    ]  # fmt: skip
    planted = [_told(run(case, "pilot", 0)) for case in _named(PLANTED, names)]
    if record:
        _keep(healthy, planted)
    missed = [run.case for run in planted if not run.warns and not run.stopped]
    print("missed: " + (", ".join(missed) or "none"))
    print("healthy, warned: " + (", ".join(f"{run.case} ({run.stage})" for run in healthy if run.warns) or "none"))
    figures = {
        "healthy": len(healthy),
        "healthy_stopped": sum(bool(run.stopped) for run in healthy),
        "healthy_warned": sum(run.warns for run in healthy),
        "planted": len(planted),
        "planted_missed": len(missed),
        "references_cpu_s_median": float(np.median([run.references_seconds for run in healthy])),
        "references_cpu_s_most": max(run.references_seconds for run in [*healthy, *planted]),
    }
    zero = {"healthy", "healthy_stopped", "healthy_warned", "planted", "planted_missed"}
    finish("references", figures, {"healthy_stopped": 0}, short=asked.short, zero_allowed=zero)


def _named(cases: Iterable[Case], names: Sequence[str]) -> list[Case]:
    return [case for case in cases if any(name in case.name for name in names)]


def _keep(healthy: Sequence[Ran], planted: Sequence[Ran]) -> None:
    """Put the check's counts into record.json."""
    faults = [FaultRun((NAME,), (NAME,) if run.check.status == "fail" else ()) for run in planted]
    sound = [
        HealthyRun(
            looked=(NAME,) if run.check.status != "insufficient" else (), alarms=(NAME,) if run.check.stops else (),
            warnings=(NAME,) if run.warns else (),
        )
        for run in healthy
    ]  # fmt: skip
    keep("references", "planted", len(faults), of_faults(faults))
    keep("references", "healthy", len(sound), of_healthy(sound))


def run(case: Case, stage: Stage, seed: int) -> Ran:
    """The product's own stage and gate, on files as a snapshot has them."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = run_stage(job_of(case, stage, seed, Path(folder)))
    took = time.process_time() - began
    checks = training_checks(stage, result)
    check = next(one for one in checks if one.name == "references")
    stopped = tuple(one.name for one in checks if one.stops)
    return Ran(case.name, stage, seed, check, stopped, took, _seconds(result.references))


def _seconds(references: References | None) -> float:
    return 0.0 if references is None else sum(arm.cpu_seconds for arm in references.arms)


def job_of(case: Case, stage: Stage, seed: int, folder: Path) -> TrainJob:
    (folder / "model.py").write_text(case.source())
    table = case.rows(np.random.default_rng(seed)).reset_index(drop=True)
    table["part"] = np.arange(len(table)) * GROUPS // len(table)
    changes = {"training": case.of_training, "validation": case.of_validation, "calibration": None}
    parts = {"training": table["part"] % 3 != 0, "validation": table["part"] % 3 == 0}
    for name, change in changes.items():
        rows = table[parts["training" if name == "training" else "validation"]].reset_index(drop=True)
        (rows if change is None else change(rows)).to_parquet(folder / f"{name}.parquet", index=False)
    paths: dict[str, Any] = {f"{name}_file": str(folder / f"{name}.parquet") for name in changes}
    return TrainJob(
        use_case_folder=str(folder), out=str(folder / "out"), device="cpu", identity=f"references:{case.name}:{seed}",
        stage=stage, rows=_columns(case, table), hyperparameters={},
        stages=StagesSpec.model_validate({"smoke": 0.1, "pilot": 0.6, "full": 1.0}),
        training=TrainingSpec.model_validate(TRAINING | {"seed": seed} | dict(case.training)), **paths,
    )  # fmt: skip


TRAINING: dict[str, Any] = {
    "optimizer": {"name": "adamw", "learning_rate": 0.01, "weight_decay": 0.01}, "batch_size": 64, "epochs": 15,
    "schedule": {"warmup": 0.1, "decay": "cosine"}, "precision": "fp32", "clip_norm": 1.0,
}  # fmt: skip


def _columns(case: Case, table: pd.DataFrame) -> Rows:
    classes = tuple(sorted(table["y"].unique().tolist())) if case.kind == "multiclass" else ()
    features = tuple(name for name in table.columns if name not in ("y", "part"))
    target = Target.model_validate({"kind": case.kind} | ({"classes": classes} if classes else {}))
    return Rows(features=features, label="y", group="part", target=target)


def _told(run: Ran) -> Ran:
    """The run, once its row of the table is printed."""
    stopped = f", stopped by {', '.join(run.stopped)}" if run.stopped else ""
    says = f"{run.check.status}{' (warning)' if run.warns else ''}{stopped}"
    seconds = f"{run.seconds:.1f}, {run.references_seconds:.1f}"
    evidence = run.check.evidence.replace("|", "/")
    print(f"| {run.case} | {run.stage}, {run.seed} | {says} | {run.check.code} | {seconds} | {evidence} |", flush=True)
    return run


if __name__ == "__main__":
    main()
