"""The pilot's gate on real flights, month by month: the healthy network goes on, planted faults are stopped.

For each month from March to December the pilot trains on a tenth of all rows of the months before and is judged on
the month. A clock of ten months holds base rates from 14 to 34 % of late flights, and two of them in which it moves
so far that a healthy network lies above the label prior. Faults: training labels in random order, a learning rate that
vanishes. Target: no healthy pilot is stopped, and every planted one is. Beside them, without a target, a rate that is a
hundred times too high: preflight is there for it, and a schedule that ends at zero may still save such a training.

    make bench NAME=go_no_go                about 8 minutes on 2 cores
    python -m benchmarks.go_no_go 4 10      one or two months
    python -m benchmarks.go_no_go --record  and keep the counts of each of the stage's checks
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.flights_rows import labelled
from benchmarks.record import FaultRun, HealthyRun, keep, of_faults, of_healthy, whole_parts
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.jobs import Rows, TrainJob
from trainworthy.lifecycle.protocol.results import LINEAR, TrainResult
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.settings import PRODUCT

MONTHS = range(3, 13)
# By how much the declared learning rate is multiplied.
RATES = {"healthy": 1.0, "shuffled labels": 1.0, "vanishing rate": 1e-5, "rate x 100": 100.0}
# The checks of a stage that are there for each fault.
NAMED = {
    "shuffled labels": ("stage.references",),
    "vanishing rate": ("stage.references",),
    "rate x 100": ("stage.finite", "stage.references", "stage.loss_rise", "stage.monitors"),
}


def main() -> None:
    """Run every case of every month and print a row each."""
    parser = arguments(__doc__)
    parser.add_argument("months", nargs="*", type=int, help="months of 2013, 3 to 12; all of them without it")
    parser.add_argument("--record", action="store_true", help="keep the counts of each check, of all months")
    asked = parser.parse_args()
    record = whole_parts(parser, asked, asked.months)
    begin(asked.short)
    months = asked.months or (MONTHS[-1:] if asked.short else MONTHS)
    use_case = load_use_case(PRODUCT / "use_cases" / "flight_delays")
    contract = load_contract(use_case.contract_path)
    rows = labelled(contract, asked.short)
    wrong = dict.fromkeys(RATES, 0)
    judged: dict[str, list[tuple[CheckResult, ...]]] = {case: [] for case in RATES}
    for month in months:
        with tempfile.TemporaryDirectory() as folder:
            for case in RATES:
                result, checks = _pilot(use_case, contract, rows, month, case, Path(folder) / case)
                judged[case].append(checks)
                stopped = [check.name for check in stopping(checks)]
                wrong[case] += bool(stopped) == (case == "healthy")
                print(_row(month, case, result, stopped), flush=True)
    if record:
        _keep(judged)
    figures = {
        "months": len(months),
        "healthy_stopped": wrong["healthy"],
        "planted_not_stopped": wrong["shuffled labels"] + wrong["vanishing rate"],
        "rate_x_100_not_stopped": wrong["rate x 100"],
    }
    targets = {"healthy_stopped": 0, "planted_not_stopped": 0}
    finish("go_no_go", figures, targets, short=asked.short, zero_allowed=figures.keys() - {"months"})


def _keep(judged: dict[str, list[tuple[CheckResult, ...]]]) -> None:
    """Put the checks' counts into record.json: of planted cases what stopped them, of healthy ones all answers."""
    planted = [FaultRun(NAMED[case], _ids(stopping(checks))) for case in NAMED for checks in judged[case]]
    healthy = [as_healthy(checks) for checks in judged["healthy"]]
    keep("go_no_go", "planted", len(planted), of_faults(planted))
    keep("go_no_go", "healthy", len(healthy), of_healthy(healthy))


def as_healthy(checks: tuple[CheckResult, ...]) -> HealthyRun:
    failed = [check for check in checks if check.status == "fail"]
    return HealthyRun(
        looked=_ids(check for check in checks if check.status in ("pass", "fail")),
        alarms=_ids(check for check in checks if check.stops),
        warnings=_ids(check for check in failed if not check.stops),
    )


def _ids(checks: Iterable[CheckResult]) -> tuple[str, ...]:
    """As `trainworthy explain` knows them."""
    return tuple(f"stage.{check.name}" for check in checks)


def _pilot(
    use_case: UseCase, contract: Contract, rows: pd.DataFrame, month: int, case: str, out: Path
) -> tuple[TrainResult, tuple[CheckResult, ...]]:
    """The product's own stage and gate, on files as a snapshot has them."""
    before, held = rows[rows["date"] < pd.Timestamp(2013, month, 1)], rows[rows["month"] == month]
    label = contract.label.name
    if case == "shuffled labels":
        before = before.assign(**{label: np.random.default_rng(month).permutation(before[label].to_numpy())})
    out.mkdir()
    files = {"training": before, "validation": held, "calibration": held}
    for name, split in files.items():
        split.to_parquet(out / f"{name}.parquet", index=False)
    spec = use_case.spec
    optimizer = spec.training.optimizer
    faulty = optimizer.model_copy(update={"learning_rate": optimizer.learning_rate * RATES[case]})
    paths: dict[str, Any] = {f"{name}_file": str(out / f"{name}.parquet") for name in files}
    job = TrainJob(
        use_case_folder=str(use_case.folder),
        out=str(out),
        device="cpu",
        rows=Rows(features=contract.feature_columns, label=label, group=spec.split.resample_by),
        identity=f"go_no_go:{month}:{case}",
        stage="pilot",
        stages=spec.stages,
        training=spec.training.model_copy(update={"optimizer": faulty}),
        hyperparameters=spec.hyperparameters,
        **paths,
    )
    result = run_stage(job)
    return result, training_checks("pilot", result)


def _row(month: int, case: str, result: TrainResult, stopped: list[str]) -> str:
    """A row of the table in docs/benchmarks.md."""
    found, stop = result.references, f"stopped by {', '.join(stopped)}" if stopped else "goes on"
    linear = None if found is None else found.arm(LINEAR, "validation")
    if found is None or linear is None:
        return f"| {month} | {case} | – | – | – | {stop} |"
    rises = f"{found.network.value:.4f} (from {found.network.low:.4f}) | {linear.rise.value:.4f}"
    return f"| {month} | {case} | {rises} | {found.network_loss / found.prior_loss:.3f} | {stop} |"


if __name__ == "__main__":
    main()
