"""The toy use case as jobs for the worker: its split files, built once, and copies of its code with a fault in it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import SPLITS, split_rows
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.folder_lock import locked
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import AnyJob, JobFile, PredictJob, PreflightJob, Rows, TrainJob
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.lifecycle.worker import main
from trainworthy.resources import fork_server

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "toy" / "use_cases" / "toy"
SPEC = load_use_case(TOY).spec
# Of all jobs here: cuda runs the same tests on a GPU (make test-gpu).
DEVICE: Any = os.environ.get("TRAINWORTHY_TEST_DEVICE", "cpu")
# As long as they are these, one server forks all workers: a training in this process sets more variables.
VARIABLES = frozenset(os.environ)
_servers: list[fork_server.ForkServer] = []
ROWS = Rows(features=("shop", "x1", "x2"), label="positive", group="day", keys=("row_id",))


def spec_with(**sections: Any) -> UseCaseSpec:
    """The toy's spec with some values replaced: training={"epochs": 1}; nested mappings are merged."""
    return UseCaseSpec.model_validate(merged(SPEC.model_dump(mode="json"), sections))


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values with some replaced, mapping by mapping."""
    both = {name for name, change in changes.items() if isinstance(change, dict) and isinstance(values.get(name), dict)}
    return values | changes | {name: merged(values[name], changes[name]) for name in both}


def days(count: int) -> pd.DataFrame:
    """The toy's first days, as its dataset has them."""
    sys.path.insert(0, str(TOY))
    try:
        from dataset import one_day  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(TOY))
        sys.modules.pop("dataset", None)
    return pd.concat([one_day(day, 1) for day in range(count)], ignore_index=True)


def build_splits(folder: Path) -> Path:
    """training, validation, calibration and benchmark of the toy's first 120 days as Parquet files."""
    frame = days(120)
    contract = load_contract(TOY / "contract.yaml")
    for name, rows in split_rows(with_label(frame, contract.label), SPEC.split, contract).items():
        rows.to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def copy_splits(splits: Path, folder: Path, **changes: Any) -> Path:
    """The split files anew, each named one changed by a function: training=lambda rows: rows.head(200)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SPLITS:
        rows = pd.read_parquet(splits / f"{name}.parquet")
        changes.get(name, lambda rows: rows)(rows).to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def changed_use_case(folder: Path, *replacements: tuple[str, str]) -> Path:
    """A copy of the toy use case; each (old, new) is replaced in its model.py, and old has to be there."""
    shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / "model.py").read_text()
    for old, new in replacements:
        assert old in source, old
        source = source.replace(old, new)
    (folder / "model.py").write_text(source)
    return folder


def train_job(
    splits: Path, out: Path, stage: str = "smoke", *, spec: UseCaseSpec = SPEC, use_case: Path = TOY, **fields: Any
) -> TrainJob:
    """A job for one stage of the toy."""
    values: dict[str, Any] = {
        "use_case_folder": str(use_case),
        "out": str(out),
        "device": DEVICE,
        "rows": ROWS,
        "identity": f"toy:{stage}" if spec.stages.mode == "restart" else "toy",
        "stage": stage,
        "stages": spec.stages,
        "training": spec.training,
        "hyperparameters": spec.hyperparameters,
        **{f"{name}_file": str(splits / f"{name}.parquet") for name in ("training", "validation", "calibration")},
    }
    return TrainJob(**(values | fields))


def preflight_job(
    splits: Path, out: Path, *, spec: UseCaseSpec = SPEC, use_case: Path = TOY, **fields: Any
) -> PreflightJob:
    """A preflight job of the toy against 4 GiB."""
    values: dict[str, Any] = {
        "use_case_folder": str(use_case),
        "out": str(out),
        "device": DEVICE,
        "rows": ROWS,
        "training": spec.training,
        "stages": spec.stages,
        "hyperparameters": spec.hyperparameters,
        "training_file": str(splits / "training.parquet"),
        "validation_file": str(splits / "validation.parquet"),
        "claims": spec.preflight,
        "split": spec.split,
        "prediction_time": spec.prediction_time,
        "data_folders": (str(splits),),
        "memory_limit_bytes": 4 * 2**30,
    }
    return PreflightJob(**(values | fields))


def predict_job(artifact: str, sha256: str, rows_file: Path, out: Path, **fields: Any) -> PredictJob:
    """A job that scores `rows_file` with an artifact."""
    return PredictJob(
        use_case_folder=str(TOY), out=str(out), device=DEVICE, rows=ROWS, artifact=artifact, artifact_sha256=sha256,
        rows_file=str(rows_file), **fields,
    )  # fmt: skip


def write_job(job: AnyJob) -> Path:
    """job.json in the job's folder, as the worker is given it."""
    out = Path(job.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "job.json").write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
    return out / "job.json"


def run_here(job: AnyJob) -> tuple[int, dict[str, Any]]:
    """As run_worker, in this process: without the two seconds that a process takes to import torch."""
    code = main(["--job", str(write_job(job))])
    return code, error_of(job)


def error_of(job: AnyJob) -> dict[str, Any]:
    """What the worker told in error.json, {} if nothing."""
    told = Path(job.out) / "error.json"
    return json.loads(told.read_text()) if told.is_file() else {}


def start_worker(job: AnyJob, *, start_new_session: bool = False) -> subprocess.Popen[str]:
    """The worker as a real process on the job; its lines are read from stderr."""
    return subprocess.Popen(
        [sys.executable, "-m", "trainworthy.lifecycle.worker", "--job", str(write_job(job))],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def environment() -> dict[str, str]:
    """That of a worker: what this process began with, and settings of the project."""
    known = ((name, value) for name, value in os.environ.items() if name in VARIABLES or name.startswith("TRAINWORTHY"))
    kept = {name: value for name, value in known if not name.startswith("DAGSTER_PIPES")}
    path = os.pathsep.join([str(ROOT / "src"), *kept.get("PYTHONPATH", "").split(os.pathsep)])
    return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def forked_worker(job: AnyJob) -> Iterator[fork_server.Leader]:
    """The worker as a run has it from its second one on: forked from a process that has imported torch, 2 CPU s less.

    It is there no more afterwards.
    """
    file = write_job(job)
    with pytest.MonkeyPatch.context() as patch, locked(Path(job.out), print) as lock:
        # Not the server of another file's runs, which have another environment.
        patch.setattr(fork_server, "_started", _servers)
        leader = fork_server.start_worker(["--job", str(file)], environment(), lock)
    try:
        yield leader
    finally:
        if leader.poll() is None:
            os.kill(leader.pid, signal.SIGKILL)
            leader.wait(60)


def run_worker(job: AnyJob) -> tuple[int, dict[str, Any]]:
    """Exit code of the worker and what it told in error.json, {} if nothing."""
    with start_worker(job) as process:
        try:
            process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, error_of(job)


def plain_state(parameters: int = 3, value: float = 1.0) -> TrainState:
    """A tiny model and its optimizer after no step."""
    import torch

    model = torch.nn.Linear(parameters, 1)
    torch.nn.init.constant_(model.weight, value)
    torch.nn.init.zeros_(model.bias)
    return TrainState(model, (torch.optim.AdamW(model.parameters(), lr=0.1),))
