"""The registered model of each kind, loaded as a service loads it, answers as its artifact does."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow.exceptions import MlflowException

from trainworthy.lifecycle.artifact import artifact_kind, load_artifact, write_artifact
from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.task import load_task
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.resources.mlflow_model import save_pyfunc
from trainworthy.resources.served_model import SERVED_FILES, ServedModel, align

MODEL = """
import torch


def fit_preprocessing(training, hyperparameters):
    return {}


def to_tensors(rows, preprocessing):
    return {"x": torch.tensor(rows[["a", "b"]].to_numpy(), dtype=torch.float32)}


class Net(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, outputs))

    def forward(self, inputs):
        return self.layers(inputs["x"])


def build_model(preprocessing, hyperparameters):
    return Net(hyperparameters["outputs"])


def loss_fn(outputs, targets):
    return LOSS


def predict(outputs):
    return PREDICT
"""
KINDS = {
    "binary": (
        Target(kind="binary"), 1,
        "torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction='none')",
        "torch.sigmoid(outputs[:, 0])",
    ),
    "multiclass": (
        Target(kind="multiclass", classes=("on time", "late", "lost")), 3,
        "torch.nn.functional.cross_entropy(outputs, targets, reduction='none')", "outputs.softmax(dim=1)",
    ),
    "multilabel": (
        Target(kind="multilabel", classes=("late", "wet", "full")), 3,
        "torch.nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction='none').mean(1)",
        "torch.sigmoid(outputs)",
    ),
    "number": (Target(kind="regression"), 1, "(outputs[:, 0] - targets) ** 2", "outputs[:, 0]"),
    "quantiles": (
        Target(kind="regression", quantiles=(0.1, 0.5, 0.9)), 3,
        "torch.stack([torch.maximum(q * (targets - o), (q - 1) * (targets - o)) "
        "for q, o in zip((0.1, 0.5, 0.9), outputs.T)]).mean(0)",
        "outputs.sort(dim=1).values",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(KINDS))
def served(request, tmp_path_factory):
    """The artifact of a two-layer network of the kind, trained for some updates, and its form in MLflow."""
    target, outputs, loss, predict = KINDS[request.param]
    folder, kind = tmp_path_factory.mktemp(request.param), kind_of(target)
    (folder / "code").mkdir()
    (folder / "code" / "model.py").write_text(MODEL.replace("LOSS", loss).replace("PREDICT", predict))
    task = load_task(folder / "code")
    torch.manual_seed(0)
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(64, 2)), columns=["a", "b"])
    labels = kind.sample_labels(len(rows))
    targets = torch.from_numpy(kind.targets(labels))
    model, inputs = task.build_model({}, {"outputs": outputs}), task.to_tensors(rows, {})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        task.loss_fn(model(inputs), targets).mean().backward()
        optimizer.step()
    answers = task.predict(model(inputs)).detach().double().numpy()
    write_artifact(
        folder / "artifact", task_folder=folder / "code", model=model, example=inputs, preprocessing={},
        calibration=kind.fit_calibration(labels, answers), target=target, requests=rows.head(8),
    )  # fmt: skip
    save_pyfunc(folder / "served", folder / "artifact")
    return folder, rows.tail(5)


def test_served_model_answers_as_its_artifact_with_a_named_column_for_each_class_or_quantile(served):
    import mlflow.pyfunc

    from trainworthy.lifecycle.artifact import artifact_sha256

    folder, rows = served
    kind = artifact_kind(folder / "artifact")
    evaluated = load_artifact(folder / "artifact", artifact_sha256(folder / "artifact"))(rows)
    found = mlflow.pyfunc.load_model(str(folder / "served")).predict(rows)
    np.testing.assert_array_equal(np.asarray(found), evaluated)
    if kind.answer_names == ("",):
        assert isinstance(found, np.ndarray)
        assert found.shape == (5,)
    else:
        assert list(found.columns) == list(kind.answer_names)
        assert list(found.index) == list(rows.index)


POINTS = {
    "binary": OperatingPoint(decision=DecisionSpec(capacity=0.5), threshold=0.5),
    "multiclass": OperatingPoint(decision=DecisionSpec(cost_matrix={"lost": {"on time": 10, "late": 10}})),
}


@pytest.mark.parametrize("served", list(POINTS), indirect=True)
def test_served_model_decides_by_the_point_that_is_frozen_with_it_and_its_artifact_stays_the_same(served, tmp_path):
    import mlflow.pyfunc

    from trainworthy.lifecycle.artifact import artifact_sha256
    from trainworthy.lifecycle.evaluation.operating_point import read_point

    folder, rows = served
    kind, sha256 = artifact_kind(folder / "artifact"), artifact_sha256(folder / "artifact")
    evaluated = load_artifact(folder / "artifact", sha256)(rows)
    point = POINTS[kind.name]
    if point.threshold is not None:
        # One of the rows lies on the threshold, and so counts as 1.
        point = point.model_copy(update={"threshold": float(np.median(evaluated))})
    save_pyfunc(tmp_path / "served", folder / "artifact", point=point)
    assert artifact_sha256(tmp_path / "served" / "artifacts" / "artifact") == sha256
    assert read_point(tmp_path / "served" / "artifacts" / "decision.json") == point
    found = mlflow.pyfunc.load_model(str(tmp_path / "served")).predict(rows)
    (tmp_path / "served" / "artifacts" / "decision.json").unlink()
    with pytest.raises(ChampionError, match="the registered decision is gone"):
        mlflow.pyfunc.load_model(str(tmp_path / "served"))
    assert list(found.index) == list(rows.index)
    if kind.name == "binary":
        assert list(found) == ["probability", "decision"]
        np.testing.assert_array_equal(found["probability"], evaluated)
        assert found["decision"].tolist() == (evaluated >= point.threshold).astype(int).tolist()
        assert found["decision"].sum() == 3
        return
    assert list(found) == ["on time", "late", "lost", "decision"]
    np.testing.assert_array_equal(found.drop(columns="decision"), evaluated)
    costs = np.array([[0, 1, 1], [1, 0, 1], [10, 10, 0]])
    assert found["decision"].tolist() == [kind.answer_names[place] for place in (evaluated @ costs).argmin(axis=1)]
    assert "lost" in set(found["decision"])


@pytest.mark.slow
@pytest.mark.parametrize("served", ["binary"], indirect=True)
@pytest.mark.parametrize("beside", [True, False], ids=["with its code", "without"])
def test_model_registered_by_the_earlier_name_answers_where_trainworthy_is_loaded(served, beside, tmp_path):
    """Its own copy of lifecycle answers, as when it was registered; without that copy the one that is here."""
    from trainworthy.lifecycle.artifact import artifact_sha256

    folder, rows = served
    earlier = Path(shutil.copytree(folder / "served", tmp_path / "served"))
    stored = earlier / "code" / "trainworthy"
    (stored / "lifecycle" / "__init__.py").write_text('"""As it was before there was trainworthy."""')
    shutil.move(stored / "lifecycle", earlier / "code" / "lifecycle")
    shutil.rmtree(stored)
    for path in earlier.rglob("*.py"):
        path.write_text(path.read_text().replace("trainworthy.lifecycle", "lifecycle"))
    if not beside:
        shutil.rmtree(earlier / "code" / "lifecycle")
    rows.to_parquet(tmp_path / "rows.parquet")
    code = f"""
import sys, mlflow.pyfunc, numpy, pandas, trainworthy.lifecycle.artifact
found = mlflow.pyfunc.load_model({str(earlier)!r}).predict(pandas.read_parquet({str(tmp_path / "rows.parquet")!r}))
numpy.save({str(tmp_path / "found.npy")!r}, numpy.asarray(found))
same = sys.modules["lifecycle.artifact"] is trainworthy.lifecycle.artifact
assert same is {not beside}, sys.modules["lifecycle.artifact"]
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    evaluated = load_artifact(folder / "artifact", artifact_sha256(folder / "artifact"))(rows)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), evaluated)


def test_served_model_of_files_opens_no_path_unless_a_folder_is_named(tmp_path, monkeypatch):
    served = ServedModel()
    seen: list[object] = []
    score = SimpleNamespace(whole=lambda rows: seen.extend(rows["picture"]) or np.zeros(len(rows)))
    served._golden = None
    served._score, served._files = score, {"picture": "picture"}  # pyright: ignore[reportAttributeAccessIssue]
    asked = pd.DataFrame({"picture": [str(tmp_path / "a.png"), "data:image/png;base64,AAAA"]})
    with pytest.raises(MlflowException, match="this service opens none"):
        served.predict(None, asked)
    monkeypatch.setenv(SERVED_FILES, str(tmp_path))
    assert np.asarray(served.predict(None, asked)).tolist() == [0, 0]
    assert seen == [str(tmp_path.resolve() / "a.png"), "data:image/png;base64,AAAA"]
    monkeypatch.setenv(SERVED_FILES, str(tmp_path / "other"))
    with pytest.raises(MlflowException, match="outside the folder"):
        served.predict(None, asked)


def test_request_is_brought_into_the_form_that_the_model_was_trained_with():
    at = pd.to_datetime(["2024-03-01 10:00"])
    trained = pd.DataFrame({"day": [at[0].date()], "at": at.tz_localize("UTC"), "plain": at, "x": [1.0], "gone": [2.0]})
    asked = pd.DataFrame({"x": [3.0], "plain": at, "at": at, "day": at})
    found = align(asked, trained)
    assert found["day"].tolist() == trained["day"].tolist()
    assert found["at"].tolist() == trained["at"].tolist()
    assert found["plain"].tolist() == trained["plain"].tolist()
    assert found["gone"].isna().all()
    assert list(asked) == ["x", "plain", "at", "day"]
