"""From which probability on a row counts as 1, and what decisions cost."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from sklearn.metrics import precision_score, recall_score

from trainworthy.lifecycle.evaluation.comparison import comparison
from trainworthy.lifecycle.evaluation.decided_alike import decisions_check
from trainworthy.lifecycle.evaluation.decision import (
    cheapest,
    cost_table,
    decided,
    decision_column,
    decision_metrics,
    reported_of_decisions,
    threshold_for,
)
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, DecisionSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.metric import estimate
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.statistic_columns import as_columns

WINDOW = CheckResult(name="benchmark_window", status="pass", required=True)


def benchmark(metric="decision_cost", **decision) -> BenchmarkSpec:
    return BenchmarkSpec.model_validate(
        {
            "primary": {"metric": metric, "margin": 0.01},
            "baselines": ["prior", "linear"],
            "decision": decision,
            "latency_ms": 1,
            "size_mb": 1,
        }
    )


def answers(threshold: float, rows: int = 4000) -> pd.DataFrame:
    """The candidate knows the truth, linear a blurred one; all decide at the threshold."""
    random = np.random.default_rng(0)
    truth = random.beta(1, 5, rows)
    frame = pd.DataFrame({"row": np.arange(rows), "group": np.arange(rows) // 100})
    frame["label"] = (random.random(rows) < truth).astype(int)
    frame["candidate"], frame["linear"], frame["prior"] = truth, 0.5 * truth + 0.1, truth.mean()
    for model in ("candidate", "linear", "prior"):
        frame[decision_column(model)] = (frame[model] >= threshold).astype(float)
    return frame


def test_costs_give_the_threshold_that_is_cheapest_for_calibrated_answers():
    spec = benchmark(costs={"false_positive": 1, "false_negative": 9})
    assert spec.decision is not None
    threshold = threshold_for(spec.decision, np.zeros(3))
    assert threshold == 0.1
    metric = decision_metrics(spec, BINARY)["decision_cost"]
    assert metric.rows is not None
    rows = metric.rows
    frame = answers(threshold, 200_000)

    def cost(at: float) -> float:
        return float(rows(frame["label"].to_numpy(), (frame["candidate"] >= at).to_numpy().astype(float)).mean())

    assert cost(threshold) < min(cost(0.05), cost(0.2), cost(0.5))
    wrong = (frame["label"] == 0) & (frame["candidate"] >= 0.1), (frame["label"] == 1) & (frame["candidate"] < 0.1)
    assert cost(threshold) == pytest.approx((wrong[0].sum() + 9 * wrong[1].sum()) / len(frame), abs=1e-12)


@pytest.mark.parametrize(
    ("found", "capacity", "acted"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], 0.2, 2),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], 0.29, 2),
        # Rows of one answer are acted on together or not at all.
        ([0.1, 0.1, 0.5, 0.5, 0.5, 0.9], 0.5, 1),
        ([0.5] * 10, 0.2, 0),
        ([1.0] * 10, 0.2, 0),
    ],
)
def test_a_capacity_is_never_exceeded_on_the_rows_that_it_is_chosen_on(found, capacity, acted):
    threshold = threshold_for(DecisionSpec(capacity=capacity), np.array(found))
    assert (np.array(found) >= threshold).sum() == acted


def test_metrics_of_decisions_are_at_the_operating_point_and_others_are_not():
    spec = benchmark("recall", threshold=0.2)
    frame = answers(0.2)
    body = evaluate(frame, spec, BINARY, benchmark_rows=len(frame), window=WINDOW)
    found = {one.metric: one.estimate.value for one in body.metrics if one.model == "candidate"}
    decided = frame["candidate"] >= 0.2
    assert found["recall"] == pytest.approx(recall_score(frame["label"], decided), abs=1e-12)
    assert found["precision"] == pytest.approx(precision_score(frame["label"], decided), abs=1e-12)
    plain = frame.drop(columns=[name for name in frame.columns if name.startswith("decision:")])
    free = BenchmarkSpec.model_validate({**spec.model_dump(), "decision": None})
    other = evaluate(plain, free, BINARY, benchmark_rows=len(frame), window=WINDOW)
    without = {one.metric: one.estimate.value for one in other.metrics if one.model == "candidate"}
    assert without["auc"] == found["auc"]
    assert without["log_loss"] == found["log_loss"]
    assert without["recall"] < found["recall"]


def test_each_model_is_measured_at_its_own_operating_point():
    spec = benchmark(costs={"false_positive": 1, "false_negative": 9})
    frame = answers(0.1)
    frame[decision_column("linear")] = 1.0
    gain = comparison(spec, BINARY, ("candidate", frame), ("linear", frame), "linear").gain
    metric = decision_metrics(spec, BINARY)["decision_cost"]
    labels = frame["label"].to_numpy()
    mine, theirs = (
        estimate(metric, labels, frame[decision_column(model)].to_numpy(), frame["group"]).value
        for model in ("candidate", "linear")
    )
    assert gain.value == pytest.approx(theirs - mine, abs=1e-12)
    assert theirs == pytest.approx((labels == 0).mean(), abs=1e-12)


def test_a_table_without_decisions_is_incomplete():
    spec = benchmark("recall", threshold=0.2)
    frame = answers(0.2).drop(columns=decision_column("linear"))
    body = evaluate(frame, spec, BINARY, benchmark_rows=len(frame), window=WINDOW)
    assert {check.name: check.status for check in body.checks}["predictions"] == "fail"


@pytest.mark.parametrize(
    "wrong",
    [{}, {"threshold": 0.5, "capacity": 0.1}, {"threshold": 1}, {"capacity": 0}, {"costs": {"false_positive": 1}},
     {"costs": {"false_positive": 0, "false_negative": 1}}],
)  # fmt: skip
def test_a_decision_that_says_too_little_or_too_much_is_refused(wrong):
    with pytest.raises(ValueError, match="validation error"):
        benchmark("recall", **wrong)


CLASSES = Multiclass(("early", "on time", "late"))


def test_cost_matrix_answers_the_class_of_the_least_expected_cost():
    spec = benchmark(cost_matrix={"late": {"early": 10, "on time": 4}})
    metric = decision_metrics(spec, CLASSES)["decision_cost"]
    assert metric.rows is not None
    answers = np.array([[0.6, 0.25, 0.15], [0.9, 0.05, 0.05], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
    # Expected costs of answering each class: of the first row 0.25 + 1.5, 0.6 + 0.6 and 0.85.
    decided = cheapest(answers, cost_table({"late": {"early": 10, "on time": 4}}, CLASSES.answer_names))
    assert metric.rows(np.array([2, 2, 0, 1]), decided).tolist() == [0.0, 10.0, 1.0, 0.0]
    assert (metric.low, metric.high, metric.higher_is_better) == (0.0, 10.0, False)
    assert reported_of_decisions(spec, CLASSES) == ("decision_cost",)


def test_cost_matrix_of_ones_is_the_error_rate_of_the_most_probable_class():
    random = np.random.default_rng(0)
    answers, labels = random.dirichlet((1, 1, 1), 500), random.integers(0, 3, 500)
    metric = decision_metrics(benchmark(cost_matrix={"late": {"early": 1}}), CLASSES)["decision_cost"]
    assert metric.rows is not None
    decided = cheapest(answers, cost_table({"late": {"early": 1}}, CLASSES.answer_names))
    assert (metric.rows(labels, decided) == (answers.argmax(axis=1) != labels)).all()


def test_evaluation_of_classes_measures_what_decisions_cost():
    random = np.random.default_rng(0)
    truth = random.dirichlet((1, 1, 1), 3000)
    labels = np.array([random.choice(3, p=one) for one in truth])
    mean = np.tile(truth.mean(axis=0), (3000, 1))
    frame = pd.DataFrame({"row": np.arange(3000), "group": np.arange(3000) // 100, "label": labels})
    spec = benchmark(cost_matrix={"late": {"early": 10, "on time": 4}})
    assert spec.decision is not None
    for model, answer in (("candidate", truth), ("linear", 0.7 * truth + 0.3 * mean), ("prior", mean)):
        frame = frame.assign(**as_columns(CLASSES, model, answer))
        frame[decision_column(model)] = decided(spec.decision, CLASSES, answer, None)
    found = evaluate(frame, spec, CLASSES, benchmark_rows=3000, window=WINDOW)
    assert not [check for check in found.checks if check.stops]
    costs = {one.model: one.estimate.value for one in found.metrics if one.metric == "decision_cost"}
    assert costs["candidate"] < costs["linear"] < costs["prior"]
    (over_prior,) = [one for one in found.comparisons if one.reference == "prior"]
    assert over_prior.gain.low > 0


@pytest.mark.parametrize(
    ("matrix", "told"),
    [({"late": {"late": 2}}, "costs nothing"), ({}, "at least 1"), ({"late": {"early": -1}}, "greater than or equal")],
)
def test_cost_matrix_that_says_nothing_sensible_is_refused(matrix, told):
    with pytest.raises(ValidationError, match=told):
        benchmark(cost_matrix=matrix)


def test_decisions_that_tell_rows_apart_pass_and_say_how_many_are_acted_on():
    spec = benchmark(costs={"false_positive": 1, "false_negative": 9})
    (check,) = decisions_check(answers(0.1), spec, BINARY, 0.1)
    assert check.status == "pass"
    acted = int(answers(0.1)["decision:candidate"].sum())
    assert (
        check.evidence == f"the candidate acts on {acted:,} of 4,000 benchmark rows ({acted / 4000:.2%}; from 0.1 on)"
    )
    assert (
        decisions_check(answers(0.1), benchmark(threshold=0.1).model_copy(update={"decision": None}), BINARY, 0.1) == ()
    )


@pytest.mark.parametrize(("declared", "threshold", "says", "fix"), [
    ({"costs": {"false_positive": 50, "false_negative": 1}}, 50 / 51, "acts on none of 4,000 benchmark rows",
     "acting on a row of label 0 costs 50, not acting on a row of label 1 costs 1: if that is the wrong way round"),
    ({"costs": {"false_positive": 1, "false_negative": 1e9}}, 1e-9, "acts on all of 4,000 benchmark rows", "1000"),
    ({"threshold": 0.999}, 0.999, "acts on none of 4,000 benchmark rows (it acts from 0.999 on)", "decide from a"),
    ({"capacity": 0.001}, 2.0, "acts on none of 4,000 benchmark rows (it acts from 2 on)", "lie on one side of it"),
])  # fmt: skip
def test_decisions_that_are_alike_on_every_row_ask_a_person_and_cap_the_verdict(declared, threshold, says, fix):
    (check,) = decisions_check(answers(threshold), benchmark(**declared), BINARY, threshold)
    assert (check.status, check.stops) == ("insufficient", False)
    assert says in check.evidence
    assert check.evidence.endswith("whoever decides so needs no model")
    assert fix in check.fix


def test_rows_of_weight_0_are_no_decision():
    table = answers(0.3).assign(weight=1.0)
    table.loc[table["decision:candidate"] == 1, "weight"] = 0.0
    (check,) = decisions_check(table, benchmark(threshold=0.3), BINARY, 0.3)
    assert check.status == "insufficient"
    assert "none of" in check.evidence


def test_class_that_is_decided_for_every_row_is_named_with_how_the_matrix_is_read():
    kind = Multiclass(("early", "late"))
    table = pd.DataFrame({"label": [0, 1] * 10, "group": range(20), "decision:candidate": [1.0] * 20})
    spec = benchmark("log_loss", cost_matrix={"early": {"late": 0.1}})
    (check,) = decisions_check(table, spec, kind, None)
    assert check.status == "insufficient"
    assert "decides late for all benchmark rows" in check.evidence
    assert "{true class: {answered class: cost}}" in check.fix
    (sound,) = decisions_check(table.assign(**{"decision:candidate": [0.0, 1.0] * 10}), spec, kind, None)
    assert (sound.status, sound.evidence) == ("pass", "the candidate decides 2 classes")
