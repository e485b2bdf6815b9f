from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy_jobs
from known import known

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.errors import EvaluationError, UseCaseError
from trainworthy.lifecycle.evaluation.decision import decision_column
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.input_columns import changed_inputs_job
from trainworthy.lifecycle.evaluation.prediction_drift import prediction_drift_check
from trainworthy.lifecycle.predict import run_predict
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import Behaviour
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, DecisionSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.metric import estimate
from trainworthy.lifecycle.tasks.platt import fit_platt
from trainworthy.lifecycle.tasks.probabilities import log_loss

# The toy's network, with its answer replaced by one number for every row.
CONSTANT = ("return torch.sigmoid(outputs)", "return torch.sigmoid(outputs * 0.0 - 2.0)")


def more_positives(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with every second negative one left out: a base rate that has drifted upwards."""
    negatives = rows.index[rows["positive"] == 0]
    return rows.drop(negatives[::2])


@pytest.fixture(scope="module")
def drifted(splits, tmp_path_factory) -> Path:
    return toy_jobs.copy_splits(
        splits, tmp_path_factory.mktemp("drifted"), calibration=more_positives, benchmark=more_positives
    )


@pytest.fixture(scope="module")
def trained(splits, tmp_path_factory) -> TrainResult:
    return run_stage(toy_jobs.train_job(splits, tmp_path_factory.mktemp("trained"), "full"))


def predictions(trained: TrainResult, splits: Path, out: Path, split: str = "benchmark", **fields) -> pd.DataFrame:
    job = toy_jobs.predict_job(
        trained.artifact or "", trained.artifact_sha256 or "", splits / f"{split}.parquet", out,
        training_file=str(splits / "training.parquet"), calibration_file=str(splits / "calibration.parquet"),
        **fields,
    )  # fmt: skip
    return pd.read_parquet(run_predict(job).predictions.path)


def test_constant_candidate_gains_nothing_over_the_prior_when_the_base_rate_drifts(drifted, tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", CONSTANT)
    trained = run_stage(toy_jobs.train_job(drifted, tmp_path / "out", "full", use_case=use_case))
    table = predictions(trained, drifted, tmp_path, baselines=("prior",))
    rates = [pd.read_parquet(drifted / f"{name}.parquet")["positive"].mean() for name in ("training", "calibration")]
    assert rates[1] > rates[0] + 0.05
    assert table["candidate"].nunique() == 1
    gain = (log_loss(table["label"], table["prior"]) - log_loss(table["label"], table["candidate"])).mean()
    assert gain == pytest.approx(0.0, abs=1e-6)
    assert table["prior"].iloc[0] == pytest.approx(rates[1], abs=0.001)


def test_every_baseline_is_calibrated_on_the_calibration_rows(drifted, tmp_path):
    trained = run_stage(toy_jobs.train_job(drifted, tmp_path / "out", "full"))
    names = ("prior", "linear", "gradient_boosting")
    table = predictions(trained, drifted, tmp_path, "calibration", baselines=names)
    for name in (*names, "candidate"):
        assert fit_platt(table["label"], table[name]) == pytest.approx({"slope": 1.0, "intercept": 0.0}, abs=1e-2)


def test_slice_columns_replace_no_column_of_the_predictions(splits, trained, tmp_path):
    names = ("row", "group", "label", "candidate", "prior")
    named = toy_jobs.copy_splits(
        splits, tmp_path / "named", benchmark=lambda rows: rows.assign(**{name: rows["shop"] for name in names})
    )
    plain = predictions(trained, splits, tmp_path, baselines=("prior",))
    table = predictions(trained, named, tmp_path, baselines=("prior",), columns=(*names, "day", "positive"))
    pd.testing.assert_frame_equal(table[list(plain)], plain)
    rows = pd.read_parquet(named / "benchmark.parquet")
    for name in (*names, "day", "positive"):
        assert (table[f"slice:{name}"] == rows[name]).all()


def test_sensitive_slice_column_is_stored_as_numbers(splits, trained, tmp_path):
    rows = toy_jobs.ROWS.model_copy(update={"sensitive": ("shop",)})
    artifact, sha256 = trained.artifact or "", trained.artifact_sha256 or ""
    job = toy_jobs.predict_job(artifact, sha256, splits / "benchmark.parquet", tmp_path, columns=("shop", "day"))
    table = pd.read_parquet(run_predict(job.model_copy(update={"rows": rows})).predictions.path)
    shops = pd.read_parquet(splits / "benchmark.parquet")["shop"]
    assert table["slice:shop"].str.fullmatch(r"value \d+").all()
    assert pd.crosstab(table["slice:shop"], shops).gt(0).sum().eq(1).all()


def test_sensitive_groups_are_stored_as_numbers_and_what_is_measured_by_group_stays_the_same(splits, trained, tmp_path):
    # A group of two files is one group: validation is there twice.
    before = tuple(str(splits / f"{name}.parquet") for name in ("validation", "calibration", "validation"))
    artifact, sha256 = trained.artifact or "", trained.artifact_sha256 or ""
    job = toy_jobs.predict_job(artifact, sha256, splits / "benchmark.parquet", tmp_path, reference_files=before)
    found = []
    for name, sensitive in (("clear", ()), ("coded", ("day",))):
        (tmp_path / name).mkdir()
        rows = toy_jobs.ROWS.model_copy(update={"sensitive": sensitive})
        result = run_predict(job.model_copy(update={"rows": rows, "out": str(tmp_path / name)}))
        assert result.reference is not None
        found.append([pd.read_parquet(file.path) for file in (result.predictions, result.reference)])
    for clear, coded in zip(*found, strict=True):
        assert coded["group"].str.fullmatch(r"value \d+").all()
        together = pd.crosstab(coded["group"], clear["group"]).gt(0)
        assert together.sum(axis=0).eq(1).all()
        assert together.sum(axis=1).eq(1).all()
    estimates = [
        estimate(BINARY.metrics["auc"], *BINARY.checked(table["label"], table["candidate"]), table["group"])
        for table, _ in found
    ]
    assert estimates[0] == estimates[1]
    clear, coded = (prediction_drift_check(table, reference, BINARY) for table, reference in found)
    assert clear == coded


# A mean, a ratio of two sums, and a baseline that knows one column.
METRICS = """
import numpy as np


def cost(labels, answers, rows):
    return np.where(labels == 1, 10.0 * (answers < 0.5), 1.0 * (answers >= 0.5)) + 0 * rows["x1"].to_numpy()


def hits_among_alarms(labels, answers, rows):
    alarm = answers >= 0.5
    return np.stack([labels * alarm, alarm], axis=1)
"""
BASELINE = """

def baseline_by_x1(training, labels):
    high = training["x1"] > 0
    rates = {bool(side): float(labels[high == side].mean()) for side in (True, False)}
    return lambda rows: (rows["x1"] > 0).map(rates).to_numpy()
"""


def own_use_case(folder: Path, metrics: str = METRICS) -> Path:
    use_case = toy_jobs.changed_use_case(folder)
    (use_case / "metrics.py").write_text(metrics)
    with (use_case / "model.py").open("a") as model:
        model.write(BASELINE)
    return use_case


def test_own_metrics_and_an_own_baseline_are_measured_and_may_be_the_primary_metric(trained, splits, tmp_path):
    use_case = own_use_case(tmp_path / "toy")
    names = ("prior", "linear", "by_x1")
    job = toy_jobs.predict_job(
        trained.artifact or "", trained.artifact_sha256 or "", splits / "benchmark.parquet", tmp_path,
        training_file=str(splits / "training.parquet"), calibration_file=str(splits / "calibration.parquet"),
        baselines=names, metrics=("cost", "hits_among_alarms"), metric_columns=("x1",),
    )  # fmt: skip
    table = pd.read_parquet(run_predict(job.model_copy(update={"use_case_folder": str(use_case)})).predictions.path)
    primary = {"metric": "cost", "margin": 0.01}
    benchmark = {
        "primary": primary, "baselines": names, "slices": [], 
        "guardrails": [{"metric": "hits_among_alarms", "at_least": 0.1}],
        "metrics": {"cost": {"better": "less"}, "hits_among_alarms": {"better": "more"}},
    }  # fmt: skip
    spec = toy_jobs.spec_with(benchmark=benchmark).benchmark
    window = CheckResult(name="benchmark_window", status="pass", required=True)
    body = evaluate(table, spec, BINARY, benchmark_rows=len(table), window=window)
    measured = {(one.model, one.metric): one.estimate.value for one in body.metrics}
    labels, answers = table["label"].to_numpy(), table["candidate"].to_numpy()
    cost = np.where(labels == 1, 10.0 * (answers < 0.5), 1.0 * (answers >= 0.5)).mean()
    assert measured["candidate", "cost"] == pytest.approx(cost)
    assert measured["candidate", "hits_among_alarms"] == pytest.approx(labels[answers >= 0.5].mean())
    gains = {one.reference: one.gain for one in body.comparisons}
    assert gains["by_x1"].value == pytest.approx(measured["by_x1", "cost"] - measured["candidate", "cost"])
    assert measured["by_x1", "auc"] > 0.6


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("return labels[:3]", "became (3,)"),
        ("return np.stack([labels] * 3, axis=1)", "rows became"),
        ("return labels * np.nan", "rows have no finite figure"),
        ("return rows['shop']", "KeyError"),
    ],
)
def test_own_metric_that_gives_no_figure_a_row_is_told_with_its_name(trained, splits, tmp_path, given, told):
    metrics = f"import numpy as np\n\n\ndef cost(labels, answers, rows):\n    {given}\n"
    use_case = own_use_case(tmp_path / "toy", metrics)
    job = toy_jobs.predict_job(
        trained.artifact or "", trained.artifact_sha256 or "", splits / "benchmark.parquet", tmp_path, metrics=("cost",)
    )
    with pytest.raises(UseCaseError, match=r"metrics\.py: cost") as caught:
        run_predict(job.model_copy(update={"use_case_folder": str(use_case)}))
    assert told in str(caught.value)


def test_artifact_is_asked_again_with_changed_inputs_and_what_is_declared(splits, trained, tmp_path):
    tests = (
        BehaviourSpec(column="x1", direction="rises", at_most=0.3),
        BehaviourSpec(column="x1", direction="falls", at_most=0.3),
    )
    asked = changed_inputs_job(load_contract(toy_jobs.TOY / "contract.yaml"), toy_jobs.ROWS.features, tests)
    job = toy_jobs.predict_job(
        trained.artifact or "", trained.artifact_sha256 or "", splits / "benchmark.parquet", tmp_path,
        training_file=str(splits / "training.parquet"), changed_inputs=asked,
    )  # fmt: skip
    found = run_predict(job).behaviour
    told = known(found.changed_inputs)
    # The score is made of x1 most of all; the shop's part is small.
    assert [one.column for one in told.importance] == ["x1", "x2", "shop"]
    assert all(one.loss.low > 0 for one in told.importance)
    assert (told.reason, told.left_out) == ("", ())
    refused = {(one.column, one.change) for one in told.perturbations if one.refused == 1}
    assert refused == {("shop", "unknown"), ("shop", "missing"), ("x1", "missing"), ("x2", "missing")}
    rises, falls = (known(one.estimate) for one in found.behaviour)
    assert rises.high < 0.3
    assert falls.low > 0.8
    # It is asked of the same rows and by the same draws each time.
    assert run_predict(job).behaviour == found
    assert run_predict(job.model_copy(update={"changed_inputs": None})).behaviour == Behaviour()


# A missed row costs its score, which only rows of label 1 have above 0.
BY_SCORE = DecisionSpec.model_validate({"costs": {"false_positive": 0.3, "false_negative": "score"}})


def cost_job(trained: TrainResult, splits: Path, out: Path, **fields):
    return toy_jobs.predict_job(
        trained.artifact or "", trained.artifact_sha256 or "", splits / "benchmark.parquet", out,
        calibration_file=str(splits / "calibration.parquet"), decision=BY_SCORE, **fields,
    )  # fmt: skip


def test_rows_own_costs_choose_each_models_threshold_and_lie_beside_the_answers(trained, splits, tmp_path):
    training = str(splits / "training.parquet")
    result = run_predict(cost_job(trained, splits, tmp_path, baselines=("prior", "linear"), training_file=training))
    table, rows = pd.read_parquet(result.predictions.path), pd.read_parquet(splits / "benchmark.parquet")
    assert table["cost:row"].tolist() == np.where(rows["positive"] == 1, rows["score"], 0.3).tolist()
    calibration = pd.read_parquet(splits / "calibration.parquet")
    on_calibration = predictions(trained, splits, tmp_path, "calibration", baselines=("prior", "linear"))
    costs, labels = np.where(calibration["positive"] == 1, calibration["score"], 0.3), calibration["positive"] == 1
    for model, threshold in result.thresholds.items():
        answers = on_calibration[model].to_numpy()

        def total(at: float, answers=answers) -> float:
            return float(costs[(answers >= at) != labels].sum())

        assert total(threshold) == pytest.approx(min(total(at) for at in (*answers, 2.0)), abs=1e-9)
        assert (table[decision_column(model)] == (table[model] >= threshold)).all()
    assert set(result.thresholds) == {"candidate", "prior", "linear"}
    capacity = cost_job(trained, splits, tmp_path).model_copy(update={"decision": DecisionSpec(capacity=0.2)})
    acted = on_calibration["candidate"] >= run_predict(capacity).thresholds["candidate"]
    assert 0.15 < acted.mean() <= 0.2
    # The threshold that a model was registered with is not chosen again.
    frozen = cost_job(trained, splits, tmp_path, threshold=0.25).model_copy(update={"calibration_file": None})
    assert run_predict(frozen).thresholds == {"candidate": 0.25}


def test_costs_that_no_decision_can_be_told_by_are_told_for_both_splits_at_once(trained, splits, tmp_path):
    def with_score(value: float, label: int):
        return lambda rows: rows.assign(score=rows["score"].where(rows["positive"] != label, value))

    planted = toy_jobs.copy_splits(
        splits, tmp_path / "planted", calibration=with_score(0.0, 1), benchmark=with_score(np.nan, 1)
    )
    with pytest.raises(EvaluationError, match=r"benchmark\.decision\.costs") as caught:
        run_predict(cost_job(trained, planted, tmp_path))
    positives = {
        name: int(pd.read_parquet(splits / f"{name}.parquet")["positive"].sum())
        for name in ("benchmark", "calibration")
    }
    assert caught.value.value == (
        f"benchmark rows: costs.false_negative (score): of {positives['benchmark']} rows of label 1 "
        f"{positives['benchmark']} missing; "
        f"calibration rows: costs.false_negative (score): all {positives['calibration']} rows of label 1 cost 0"
    )
    # What a row of the other label would cost is never asked.
    healthy = toy_jobs.copy_splits(splits, tmp_path / "healthy", benchmark=with_score(np.nan, 0))
    assert run_predict(cost_job(trained, healthy, tmp_path)).rows > 0
