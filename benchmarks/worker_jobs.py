"""Two small jobs for `python -m trainworthy.lifecycle.worker`."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.failure import EXIT_BAD_INPUT
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, Rows, TrainJob
from trainworthy.lifecycle.use_case import load_use_case

EXIT_WITHOUT_ROWS = EXIT_BAD_INPUT


def without_rows_job(out: Path, use_case: Path) -> str:
    """A training whose file of rows is missing: all is loaded, torch and pandas too, and the work cannot begin."""
    return _write(out, use_case, out / "missing.parquet")


def one_step_job(out: Path, use_case: Path) -> Callable[[], str]:
    """A training of one update on one day's rows; each call forgets the answer, so that it runs again."""
    out.mkdir()
    rows = runpy.run_path(str(use_case / "dataset.py"))["one_day"](0, 1).dropna()
    rows.assign(positive=(rows["score"] > 0).astype(int)).to_parquet(out / "rows.parquet")

    def fresh() -> str:
        (out / "result.json").unlink(missing_ok=True)
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        return _write(out, use_case, out / "rows.parquet")

    return fresh


def _write(out: Path, use_case: Path, rows: Path) -> str:
    spec = load_use_case(use_case).spec
    values: dict[str, Any] = {name: getattr(spec, name) for name in ("stages", "training", "hyperparameters")}
    job = TrainJob(
        **values,
        use_case_folder=str(use_case),
        out=str(out),
        device="cpu",
        rows=Rows(features=("shop", "x1", "x2"), label="positive", group="day"),
        identity="benchmark",
        stage="full",
        training_file=str(rows),
        validation_file=str(rows),
        calibration_file=str(rows),
        stop_after_steps=1,
    )
    out.mkdir(exist_ok=True)
    path = out / "job.json"
    path.write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
    return str(path)
