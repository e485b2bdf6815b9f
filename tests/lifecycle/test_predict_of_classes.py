"""Answers of a model of classes, as they are kept row by row."""

import kind_jobs
import pandas as pd
import pytest

from trainworthy.lifecycle.evaluation.decision import cheapest, cost_table, decision_column
from trainworthy.lifecycle.predict import run_predict
from trainworthy.lifecycle.protocol.jobs import PredictJob
from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.lifecycle.tasks.kind import from_columns
from trainworthy.lifecycle.tasks.multiclass import Multiclass

TOP = {"top": {"low": 9.0, "middle": 9.0, "high": 9.0}}


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> kind_jobs.KindCase:
    return kind_jobs.kind_case("multiclass", tmp_path_factory.mktemp("graded") / "case")


@pytest.fixture(scope="module")
def scored(graded, tmp_path_factory) -> pd.DataFrame:
    """Answers of a trained model with a matrix, by a slice of the label's own column."""
    trained = graded.train(tmp_path_factory.mktemp("trained"), "full")
    job = PredictJob(
        use_case_folder=str(graded.folder), out=str(tmp_path_factory.mktemp("scored")), device="cpu", rows=graded.rows,
        artifact=trained.artifact, artifact_sha256=trained.artifact_sha256,
        rows_file=str(graded.splits / "benchmark.parquet"), training_file=str(graded.splits / "training.parquet"),
        calibration_file=str(graded.splits / "calibration.parquet"), baselines=("prior", "linear"),
        decision=DecisionSpec(cost_matrix=TOP), columns=("grade", "shop"),
    )  # fmt: skip
    result = run_predict(job)
    assert result.thresholds == {}
    return pd.read_parquet(result.predictions.path)


def test_what_each_model_decided_is_kept_row_by_row(graded, scored):
    kind, costs = Multiclass(kind_jobs.GRADES), cost_table(TOP, kind_jobs.GRADES)
    for model in ("candidate", "prior", "linear"):
        found = from_columns(kind, model, scored)
        assert scored[decision_column(model)].tolist() == cheapest(found, costs).tolist()
    assert (scored["decision:candidate"] != from_columns(kind, "candidate", scored).argmax(axis=1)).any()
