import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy_jobs
from refusals import refused

from trainworthy.lifecycle.artifact import export_model, load_artifact, verify_artifact
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.errors import CheckpointError, EvaluationError, UseCaseError
from trainworthy.lifecycle.predict import run_predict
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.platt import apply_platt
from trainworthy.lifecycle.tasks.probabilities import auc


@pytest.fixture(scope="module")
def trained(splits, tmp_path_factory) -> TrainResult:
    return run_stage(toy_jobs.train_job(splits, tmp_path_factory.mktemp("full"), "full"))


@pytest.fixture
def copied(trained, tmp_path) -> Path:
    import shutil

    return Path(shutil.copytree(trained.artifact, tmp_path / "artifact"))


def benchmark(splits) -> pd.DataFrame:
    return pd.read_parquet(splits / "benchmark.parquet")


def test_reloaded_artifact_gives_the_trained_models_predictions(trained, splits):
    import json

    import torch

    from trainworthy.lifecycle.scoring import predict_rows
    from trainworthy.lifecycle.task import load_task

    rows = benchmark(splits)
    found = load_artifact(Path(trained.artifact), trained.artifact_sha256)(rows)
    task = load_task(toy_jobs.TOY)
    folder = Path(trained.artifact)
    preprocessing, calibration = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("preprocessing", "calibration")
    )
    model = task.build_model(preprocessing, toy_jobs.SPEC.hyperparameters)
    checkpoint = torch.load(Path(trained.checkpoint.path) / "state.pt", weights_only=True)
    model.load_state_dict(checkpoint["model"])
    direct = apply_platt(
        predict_rows(task, model, preprocessing, rows[["shop", "x1", "x2"]], "cpu", BINARY), calibration
    )
    np.testing.assert_allclose(found, direct, atol=1e-6)


def test_reloaded_artifact_keeps_the_order_of_its_preprocessing(splits, tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", ('for name in ("x1", "x2")', 'for name in ("x2", "x1")'))
    result = run_stage(toy_jobs.train_job(splits, tmp_path / "out", "full", use_case=use_case))
    assert result.artifact is not None
    rows = benchmark(splits)
    probabilities = load_artifact(Path(result.artifact), result.artifact_sha256 or "")(rows)
    assert auc(rows["positive"], probabilities) > 0.85


def test_artifact_of_equal_code_in_another_folder_is_the_same_and_names_neither(splits, tmp_path):
    results = []
    for name in ("private_one", "private_two"):
        use_case = toy_jobs.changed_use_case(tmp_path / name)
        job = toy_jobs.train_job(splits, tmp_path / f"out_{name}", "full", use_case=use_case)
        results.append(run_stage(job))
    assert results[0].artifact_sha256 == results[1].artifact_sha256
    with zipfile.ZipFile(Path(results[0].artifact or "") / "model.pt2") as model:
        members = {name: model.read(name) for name in model.namelist()}
    assert any(name.endswith("models/model.json") for name in members)
    for content in members.values():
        assert b"private_one" not in content
        assert str(tmp_path).encode() not in content
        assert b"site-packages" not in content


@pytest.mark.parametrize(("name", "stopped"), [("model.py", True), ("more.py", True), ("notes.txt", False)])
def test_artifact_is_not_written_from_code_that_changed_during_the_training(splits, tmp_path, name, stopped):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy")
    job = toy_jobs.train_job(splits, tmp_path / "out", "full", use_case=use_case)

    def change() -> bool:
        with (use_case / name).open("a") as file:
            file.write("# another thought\n")
        return False

    if not stopped:
        assert run_stage(job, should_stop=change).artifact
        return
    with pytest.raises(UseCaseError, match="changed during the training") as caught:
        run_stage(job, should_stop=change)
    assert "run the training again" in str(caught.value)
    assert not (tmp_path / "out" / "artifact").exists()


def test_artifact_answers_one_row_and_many_alike(trained, splits):
    score, rows = load_artifact(Path(trained.artifact), trained.artifact_sha256), benchmark(splits).head(50)
    one_by_one = np.concatenate([score(rows.iloc[[number]]) for number in range(50)])
    np.testing.assert_allclose(one_by_one, score(rows), atol=1e-6)


def test_artifact_answers_an_unseen_category(trained, splits):
    score = load_artifact(Path(trained.artifact), trained.artifact_sha256)
    unseen = score(benchmark(splits).head(5).assign(shop="east"))
    assert ((unseen > 0) & (unseen < 1)).all()


def test_artifact_refuses_to_score_a_null_that_the_model_does_not_know(trained, splits):
    score = load_artifact(Path(trained.artifact), trained.artifact_sha256)
    rows = benchmark(splits).head(5)
    with_null = rows.assign(x1=rows["x1"].where(rows.index != rows.index[2]))
    with pytest.raises(EvaluationError, match="1 of 5 probabilities are not finite"):
        score(with_null)


def test_artifact_refuses_rows_without_a_feature(trained, splits):
    score = load_artifact(Path(trained.artifact), trained.artifact_sha256)
    with pytest.raises(KeyError, match="x1"):
        score(benchmark(splits).drop(columns="x1"))


def test_artifact_reads_no_column_but_its_features(trained, splits):
    score, rows = load_artifact(Path(trained.artifact), trained.artifact_sha256), benchmark(splits)
    assert (score(rows) == score(rows[["x2", "x1", "shop"]])).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "model.pt2").write_bytes((folder / "model.pt2").read_bytes()[:-1] + b"x"),
        lambda folder: (folder / "calibration.json").write_text('{"slope": 1.0, "intercept": 0.0}'),
        lambda folder: (folder / "code" / "model.py").write_text("raise SystemExit"),
        lambda folder: (folder / "code" / "dataset.py").unlink(),
        lambda folder: (folder / "code" / "more.py").write_text(""),
    ],
)
def test_artifact_with_a_changed_file_is_refused_before_anything_is_loaded(copied, trained, change):
    verify_artifact(copied, trained.artifact_sha256)
    change(copied)
    with refused(CheckpointError, "artifact.changed"):
        load_artifact(copied, trained.artifact_sha256)


def test_artifact_with_another_manifest_is_refused(copied, trained):
    with refused(CheckpointError, "artifact.other_manifest"):
        load_artifact(copied, "0" * 64)
    (copied / "manifest.json").unlink()
    with refused(CheckpointError, "artifact.missing"):
        load_artifact(copied, trained.artifact_sha256)


def test_prediction_holds_the_artifact_and_its_baselines_beside_the_labels(trained, splits, tmp_path):
    rows_file = splits / "benchmark.parquet"
    job = toy_jobs.predict_job(
        trained.artifact, trained.artifact_sha256, rows_file, tmp_path,
        columns=("shop",), baselines=("prior", "linear"), training_file=str(splits / "training.parquet"),
        calibration_file=str(splits / "calibration.parquet"),
    )  # fmt: skip
    result = run_predict(job)
    table, rows = pd.read_parquet(result.predictions.path), benchmark(splits)
    assert list(table) == ["row", "group", "label", "candidate", "slice:shop", "prior", "linear"]
    assert (table["label"] == rows["positive"].to_numpy()).all()
    assert (table["slice:shop"] == rows["shop"].to_numpy()).all()
    assert auc(table["label"], table["candidate"]) > auc(table["label"], table["linear"]) > 0.8
    assert result.rows == len(rows)
    assert result.latency.most_ms > 0


def test_prediction_of_the_first_rows_only_is_limited(trained, splits, tmp_path):
    rows_file = splits / "benchmark.parquet"
    job = toy_jobs.predict_job(trained.artifact, trained.artifact_sha256, rows_file, tmp_path, limit=7)
    assert len(pd.read_parquet(run_predict(job).predictions.path)) == 7


def test_artifact_ships_no_training_rows(trained):
    import torch

    inputs, _ = torch.export.load(Path(trained.artifact) / "model.pt2").example_inputs
    assert all(float(tensor.abs().sum()) == 0 for tensor in inputs[0].values())


class Recurrent(torch.nn.Module):
    """Reads a sequence by a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(3, 4, batch_first=True)

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.layer(inputs["steps"])[0][:, -1, 0]


def test_export_of_a_recurrent_layer_is_silent(tmp_path, recwarn):
    export_model(Recurrent(), {"steps": torch.randn(2, 5, 3)}, tmp_path / "model.pt2")
    assert not [str(warning.message) for warning in recwarn if "_flat_weights" in str(warning.message)]
    assert (tmp_path / "model.pt2").is_file()
