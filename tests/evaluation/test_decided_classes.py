"""Of a cost matrix all figures of decisions are about the class that is decided, and those of probabilities are not."""

from pathlib import Path

import numpy as np
import pandas as pd
import planted
import pytest
from known import known
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, precision_score, recall_score

from trainworthy.lifecycle.evaluation.compare import compared
from trainworthy.lifecycle.evaluation.comparison import comparison
from trainworthy.lifecycle.evaluation.decision import cheapest, cost_table, decided, decision_column, of_decisions
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.fairness import fairness
from trainworthy.lifecycle.evaluation.model_figures import model_figures
from trainworthy.lifecycle.evaluation.rescored import InputProbe
from trainworthy.lifecycle.evaluation.slice_parts import slice_parts
from trainworthy.lifecycle.evaluation.slice_results import with_gains
from trainworthy.lifecycle.promotion.evidence import guardrail_results
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import Metric
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, DecisionSpec, FairnessSpec
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.statistic_columns import as_columns, from_columns

NAMES = ("damaged", "late", "ok")
KIND = Multiclass(NAMES)
ROWS = 4_000
WINDOW = CheckResult(name="benchmark_window", status="pass", required=True)
# Under the first no damaged parcel may be missed, under the second every mistake costs the same.
PLANTED = {"damaged": {"late": 60.0, "ok": 60.0}}
EVEN = {"damaged": {"late": 1.0}}


def benchmark(matrix: dict | None, metric: str = "log_loss", **others) -> BenchmarkSpec:
    return BenchmarkSpec.model_validate(
        {
            "primary": {"metric": metric, "margin": 0.01},
            "guardrails": [
                {"metric": "recall[damaged]", "at_least": 0.8},
                {"metric": "precision[damaged]", "at_least": 0},
            ],
            "baselines": ["prior", "linear"],
            "decision": None if matrix is None else {"cost_matrix": matrix},
            "latency_ms": 1,
            "size_mb": 1,
            "slice_rows": 50,
        }
        | others
    )


def answers(matrix: dict | None, *models: str) -> pd.DataFrame:
    """Damaged is never the most probable class; the champion knows less, and decides by the same matrix."""
    random = np.random.default_rng(0)
    sure = random.random(ROWS)
    truth = np.stack([np.where(sure < 0.2, 0.3, 0.002), np.full(ROWS, 0.2), np.zeros(ROWS)], axis=1)
    truth[:, 2] = 1 - truth.sum(axis=1)
    labels = (random.random(ROWS)[:, None] > truth.cumsum(axis=1)).sum(axis=1)
    mean = np.tile(truth.mean(axis=0), (ROWS, 1))
    frame = pd.DataFrame({"row": np.arange(ROWS), "group": np.arange(ROWS) // 100, "label": labels})
    frame["slice:depot"] = np.where(np.arange(ROWS) % 4 == 0, "Ybbs", "Melk")
    blurred = {"candidate": 1.0, "linear": 0.6, "champion": 0.7, "prior": 0.0}
    for model in models or ("candidate", "linear", "prior"):
        answer = blurred[model] * truth + (1 - blurred[model]) * mean
        frame = frame.assign(**as_columns(KIND, model, answer))
        if matrix is not None:
            frame[decision_column(model)] = decided(DecisionSpec(cost_matrix=matrix), KIND, answer, None)
    return frame


def figures(metrics: tuple[Metric, ...], model: str = "candidate", part: str | None = None) -> dict[str, float]:
    return {one.metric: one.estimate.value for one in metrics if (one.model, one.slice) == (model, part)}


def test_metrics_of_decisions_are_of_the_class_that_is_decided_and_those_of_probabilities_are_not():
    spec, frame = benchmark(PLANTED, slices=["depot"]), answers(PLANTED)
    found = evaluate(frame, spec, KIND, benchmark_rows=ROWS, window=WINDOW)
    assert not [check for check in found.checks if check.stops]
    for model in ("candidate", "linear"):
        labels, own = frame["label"], frame[decision_column(model)]
        told = figures(found.metrics, model)
        assert told["accuracy"] == pytest.approx(accuracy_score(labels, own))
        assert told["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, own))
        assert told["macro_f1"] == pytest.approx(f1_score(labels, own, average="macro"))
        assert told["recall[damaged]"] == pytest.approx(recall_score(labels, own, labels=[0], average="macro"))
        assert told["precision[damaged]"] == pytest.approx(precision_score(labels, own, labels=[0], average="macro"))
        assert told["decision_cost"] == pytest.approx(cost_table(PLANTED, NAMES)[labels, own].mean())
    ybbs = frame[frame["slice:depot"] == "Ybbs"]
    of_slice = figures(found.metrics, part="depot=Ybbs")
    assert of_slice["accuracy"] == pytest.approx(accuracy_score(ybbs["label"], ybbs["decision:candidate"]))
    plain = figures(evaluate(answers(None), benchmark(None), KIND, benchmark_rows=ROWS, window=WINDOW).metrics)
    same = ("log_loss", "brier", "calibration_error")
    assert [figures(found.metrics)[name] for name in same] == [plain[name] for name in same]
    probable = from_columns(KIND, "candidate", frame).argmax(axis=1)
    assert plain["accuracy"] == pytest.approx(accuracy_score(frame["label"], probable))
    assert plain["accuracy"] != figures(found.metrics)["accuracy"]


@pytest.mark.parametrize(("matrix", "kept"), [(PLANTED, True), (EVEN, False), (None, False)])
def test_a_guardrail_judges_the_class_that_is_decided(matrix, kept):
    spec, frame = benchmark(matrix), answers(matrix)
    found = evaluate(frame, spec, KIND, benchmark_rows=ROWS, window=WINDOW)
    recall = known(guardrail_results(spec.guardrails, found.metrics, "candidate")[0].estimate)
    assert (recall.low > 0.8) == kept
    # Without a matrix, and by one in which all mistakes cost the same, damaged is never answered.
    assert (recall.value == 0) == (not kept)


def test_the_champion_beside_it_is_of_the_classes_that_it_decides():
    spec = benchmark(PLANTED, "accuracy", slices=[{"where": "depot == 'Ybbs'", "name": "ybbs", "champion_margin": 0.1}])
    frame = answers(PLANTED, "candidate", "linear", "prior", "champion")
    theirs = model_figures(frame, "champion", spec, KIND, parts=(), features=None, ordered=False)
    own = frame["decision:champion"]
    assert figures(theirs.metrics, "champion")["accuracy"] == pytest.approx(accuracy_score(frame["label"], own))
    right = {model: frame[decision_column(model)] == frame["label"] for model in ("candidate", "champion")}
    gain = comparison(spec, KIND, ("candidate", frame), ("champion", frame), "champion").gain
    assert gain.value == pytest.approx(right["candidate"].mean() - right["champion"].mean())
    assert gain.value != 0
    # As promotion has it: another table, in which the champion's answers are those of its candidate.
    other = frame.drop(columns=[name for name in frame.columns if "candidate" in name])
    other = other.rename(columns=lambda name: name.replace("champion", "candidate"))
    parts = slice_parts(spec, frame, pd.DataFrame({"depot": frame["slice:depot"]}), Path(), ())
    measured = evaluate(frame, spec, KIND, benchmark_rows=ROWS, window=WINDOW, parts=parts).slices
    (of_part,) = with_gains(measured, parts, frame, other, spec, KIND)
    (mask,) = (part.mask for part in parts)
    inside = right["candidate"][mask].mean() - right["champion"][mask].mean()
    assert known(of_part.gain).value == pytest.approx(inside)


def test_two_models_are_compared_by_what_they_decide_even_where_it_was_not_kept():
    spec = benchmark(PLANTED, "accuracy", slices=["depot"])
    frame = answers(PLANTED, "candidate", "champion")
    found = compared(frame, spec, KIND, {})
    whole = {one.metric: one for one in found if not one.part}
    for model, name in (("candidate", "first"), ("champion", "second")):
        estimate = known(getattr(whole["accuracy"], name))
        assert estimate.value == pytest.approx(accuracy_score(frame["label"], frame[decision_column(model)]))
    assert {one.part for one in found if one.part} == {"depot=Ybbs", "depot=Melk"}
    older = frame.drop(columns=[decision_column(model) for model in ("candidate", "champion")])
    assert compared(older, spec, KIND, {}) == found


def test_rates_by_a_protected_column_are_of_the_class_that_is_decided():
    frame = answers(PLANTED)
    # Of Ybbs nothing is ever decided to be damaged, of Melk as the matrix says; probabilities are alike.
    frame.loc[(frame["slice:depot"] == "Ybbs") & (frame["decision:candidate"] == 0), "decision:candidate"] = 2
    declared = FairnessSpec(columns=("depot",), minimum_rows=50)
    found = {(one.claim, one.rate): one for one in fairness(frame, declared, "candidate", KIND)}
    for place, name in enumerate(NAMES):
        so, said = frame["label"] == place, frame["decision:candidate"] == place
        wanted = {
            "selection_rate": said.groupby(frame["slice:depot"]).mean(),
            "true_positive_rate": said[so].groupby(frame["slice:depot"]).mean(),
            "false_positive_rate": said[~so].groupby(frame["slice:depot"]).mean(),
        }
        for rate, by_depot in wanted.items():
            told = {one.value: known(one.rate).value for one in found[f"class {name}", rate].values}
            assert told == pytest.approx({f"depot={depot}": share for depot, share in by_depot.items()})
    damaged = found["class damaged", "true_positive_rate"]
    assert (damaged.highest, damaged.lowest) == ("depot=Melk", "depot=Ybbs")
    healthy = fairness(answers(PLANTED), declared, "candidate", KIND)
    (fair,) = (one for one in healthy if (one.claim, one.rate) == ("class damaged", "true_positive_rate"))
    assert known(fair.widest).difference.high < 0.1 < known(damaged.widest).difference.low


def test_answers_flip_where_another_class_is_decided():
    frame = planted.rows()
    damaged = planted.sigmoid(frame["x1"].to_numpy() - 3)
    labels = np.zeros(len(frame), dtype=np.int64)

    def model(some: pd.DataFrame) -> np.ndarray:
        first = planted.sigmoid(some["x1"].to_numpy() - 3)
        return np.stack([first, (1 - first) / 3, (1 - first) / 1.5], axis=1)

    def flips(matrix: dict | None) -> float:
        spec = None if matrix is None else DecisionSpec(cost_matrix=matrix)
        decide = None if spec is None else lambda some: decided(spec, KIND, some, None)
        asked = InputProbe(KIND, frame, labels, frame["day"], None, model, decide)
        return known(asked.moved(asked.again(frame["x1"] + 0.5))).value

    by_cost = cost_table(PLANTED, NAMES)
    before, after = (cheapest(model(some), by_cost) for some in (frame, frame.assign(x1=frame["x1"] + 0.5)))
    assert flips(PLANTED) == pytest.approx((before != after).mean())
    assert flips(None) == flips(EVEN) != flips(PLANTED)
    assert damaged.mean() < 0.5


def test_metrics_of_decisions_are_those_that_a_declared_decision_changes():
    names = ("accuracy", "recall[damaged]", "decision_cost", "log_loss", "calibration_error", "own")
    by_matrix = [of_decisions(benchmark(PLANTED), KIND, name) for name in names]
    assert by_matrix == [True, True, True, False, False, False]
    assert not any(of_decisions(benchmark(None), KIND, name) for name in names)


def test_a_table_without_the_classes_that_are_decided_is_incomplete():
    frame = answers(PLANTED).drop(columns="decision:linear")
    found = evaluate(frame, benchmark(PLANTED), KIND, benchmark_rows=ROWS, window=WINDOW)
    assert {check.name: check.status for check in found.checks}["predictions"] == "fail"
