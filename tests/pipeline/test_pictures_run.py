"""A use case of pictures in three classes, from publishing to a verdict and to a service that is asked."""

import base64
import textwrap

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
import yaml
from known import known
from mlflow.exceptions import MlflowException
from toy_project import FIRST, Toy

from trainworthy.lifecycle.artifact import artifact_sha256
from trainworthy.lifecycle.data.file_rows import sha_column
from trainworthy.lifecycle.protocol.jobs import VerifyJob
from trainworthy.lifecycle.protocol.records import EvaluationReport, Snapshot, StageReport
from trainworthy.lifecycle.protocol.results import VerifyResult
from trainworthy.resources.worker_process import run_worker

DATASET = """
import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

NAMES = ("top", "middle", "bottom")


def build(out: Path, rows: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    (out / "files" / "shown").mkdir(parents=True)
    places = generator.integers(0, 3, rows)
    for row, place in enumerate(places):
        values = generator.integers(0, 200, (9, 9, 3))
        values[3 * place : 3 * place + 3] += 25
        Image.fromarray(values.astype(np.uint8)).save(out / "files" / "shown" / f"{row:05}.png")
    pd.DataFrame({
        "row_id": np.arange(rows), "picture": [f"files/shown/{row:05}.png" for row in range(rows)],
        "place": [NAMES[place] for place in places], "sheet": np.arange(rows) // 10,
    }).to_parquet(out / "rows.parquet", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, kind in (("--out", Path), ("--rows", int), ("--seed", int)):
        parser.add_argument(name, type=kind, required=True)
    build(**vars(parser.parse_args()))
"""
MODEL = """
import numpy as np
import torch
from PIL import Image
from torch import nn


def fit_preprocessing(training, hyperparameters):
    return {"mean": 0.42, "spread": 0.25}


def _points(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=np.float32) / 255


def to_tensors(rows, preprocessing):
    pictures = np.stack([_points(path) for path in rows["picture"]])
    scaled = (pictures - preprocessing["mean"]) / preprocessing["spread"]
    return {"picture": torch.from_numpy(scaled.astype(np.float32)).permute(0, 3, 1, 2).contiguous()}


class Network(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.SiLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(9 * width, 3)
        )

    def forward(self, inputs):
        return self.layers(inputs["picture"])


def build_model(preprocessing, hyperparameters):
    return Network(hyperparameters["width"])


def loss_fn(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def predict(outputs):
    return outputs.softmax(dim=1)
"""
STAGE = {
    "vars": ["data/pictures.yaml"],
    "cmd": "python use_cases/toy/dataset.py --out data/pictures --rows ${rows} --seed ${seed}",
    "deps": ["use_cases/toy/dataset.py"],
    "params": [{"data/pictures.yaml": None}],
    "outs": ["data/pictures"],
}


def column(name, logical_type, role, **properties):
    custom = {"role": role, "availableAt": "PT0S", **properties}
    return {
        "name": name, "logicalType": logical_type, "required": True,
        "customProperties": [{"property": key, "value": value} for key, value in custom.items()],
    }  # fmt: skip


def with_pictures(toy: Toy) -> Toy:
    """The toy as a use case of pictures; its dataset is published."""
    contract = yaml.safe_load((toy.folder / "contract.yaml").read_text())
    contract = {key: contract[key] for key in ("apiVersion", "kind", "id", "version", "status")} | {
        "customProperties": [{"property": "label", "value": {
            "name": "shown", "version": 1, "column": "place", "type": "class", "classes": ["top", "middle", "bottom"],
        }}],
        "schema": [{"name": "toy", "properties": [
            column("row_id", "integer", "key") | {"primaryKey": True},
            column("picture", "string", "feature", file="picture", size=[9, 9]),
            column("place", "string", "target", availableAt="P1D"),
            column("sheet", "integer", "other"),
        ]}],
    }  # fmt: skip
    spec = yaml.safe_load((toy.folder / "use_case.yaml").read_text())
    spec |= {
        "dataset": {"name": "pictures", "version": "v1"}, "target": "shown", "task": {"kind": "multiclass"},
        "split": {
            "by": "group", "group": "sheet", "salt": "v1", "resample_by": "sheet",
            "shares": {"validation": 0.2, "calibration": 0.15, "benchmark": 0.2},
        },
        "hyperparameters": {"width": 8},
    }  # fmt: skip
    spec["training"] |= {"tensors": "per_batch", "batch_size": 32, "epochs": 15}
    spec["compute"]["loaders"] = 1
    spec["benchmark"] = {
        "primary": {"metric": "log_loss", "margin": 0.05}, "baselines": ["prior", "linear", "gradient_boosting"],
        "latency_ms": 200, "size_mb": 5, "slice_rows": 30,
        "slices": [{"where": "`picture.brightness` > 0.42", "name": "bright", "at_most": 9.0}],
    }  # fmt: skip
    del spec["prediction_time"]
    (toy.folder / "contract.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))
    (toy.folder / "use_case.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    (toy.folder / "dataset.py").write_text(textwrap.dedent(DATASET))
    (toy.folder / "model.py").write_text(MODEL)
    stages = yaml.safe_load((toy.root / "dvc.yaml").read_text())
    stages["stages"]["pictures"] = STAGE
    (toy.root / "dvc.yaml").write_text(yaml.safe_dump(stages, sort_keys=False))
    (toy.root / "data" / "pictures.yaml").write_text("rows: 1200\nseed: 1\n")
    done = toy.call("-m", "trainworthy.pipeline.cli", "datasets", "publish", "pictures", "v1", "rows=1200", "seed=1")
    assert done.code == 0, done.out
    toy.commit()
    return toy


@pytest.mark.slow
def test_pictures_are_published_checked_trained_judged_and_served(fresh, tmp_path, monkeypatch):
    toy = with_pictures(fresh)
    assert (check := toy.call("-m", "trainworthy.pipeline.cli", "check", "toy")).code == 0, check.out
    done = toy.run(intent=FIRST)
    assert done.code == 0, done.out[-6000:]
    snapshot = toy.record(done.run_id, "snapshot")
    assert isinstance(snapshot, Snapshot)
    found = {one.name: one for one in snapshot.checks}
    assert (found["files"].status, found["files"].evidence) == ("pass", "1,200 files of picture can be read")
    training = pd.read_parquet(toy.var / snapshot.splits["training"].file.path)
    assert training[sha_column("picture")].nunique() == len(training)
    evaluation = toy.record(done.run_id, "evaluation")
    assert isinstance(evaluation, EvaluationReport)
    assert "picture: its values are files" in known(evaluation.changed_inputs).left_out
    # What pictures are like is told beside the table's columns, and a condition on it decides.
    assert any(axis.by.startswith("picture.") for axis in known(evaluation.residuals).axes)
    (bright,) = evaluation.slices
    assert bright.slice == "bright"
    assert 0 < bright.rows < evaluation.rows
    predictions = pd.read_parquet(toy.var / evaluation.predictions.path)
    # The thumbnails tell the place as well, so that baselines are no straw men.
    assert (predictions.filter(like="linear").to_numpy().argmax(1) == predictions["label"]).mean() > 0.6
    assert toy.verdict(done.run_id).decision in ("promote", "shadow", "reject")
    full = toy.record(done.run_id, "full")
    assert isinstance(full, StageReport)
    assert full.artifact is not None
    artifact = toy.var / full.artifact
    job = VerifyJob(
        use_case_folder=str(toy.folder), out=str(tmp_path / "verify"), device="cpu", artifact=str(artifact),
        artifact_sha256=artifact_sha256(artifact),
    )  # fmt: skip
    # In a process of its own, as a rollback does it.
    verified = run_worker(job)
    assert isinstance(verified, VerifyResult)
    assert (verified.golden.requests, verified.golden.difference) == (50, 0.0)
    with toy.tracking() as tracking:
        registered = tracking.versions("toy")[0]
        assert registered.artifact.is_dir()
        served = mlflow.pyfunc.load_model(registered.source)
    picture = toy.var / next(iter(sorted((toy.var / "datasets" / "pictures").glob("*/files/files/shown/*.png"))))
    content = f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"
    with pytest.raises(MlflowException, match="this service opens none"):
        served.predict(pd.DataFrame({"picture": [str(picture)]}))
    monkeypatch.setenv("TRAINWORTHY_SERVED_FILES", str(picture.parent))
    answers = served.predict(pd.DataFrame({"picture": [picture.name, content]}))
    assert list(answers.columns) == ["top", "middle", "bottom"]
    assert np.array_equal(answers.iloc[0], answers.iloc[1])
