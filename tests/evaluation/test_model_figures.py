"""The champion is told as the candidate is: the same answers under either name measure the same."""

import numpy as np
import pytest
from test_evaluate import BINARY, SPEC, WINDOW, predictions

from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.model_figures import model_figures
from trainworthy.lifecycle.protocol.figures import BenchmarkFigures, ModelFigures
from trainworthy.lifecycle.spec.benchmark import FairnessSpec, Guardrail

FAIR = SPEC.model_copy(update={"fairness": FairnessSpec(columns=("carrier",))})


def told_of(figures: BenchmarkFigures | ModelFigures, model: str) -> dict[str, object]:
    """Everything of one model, without its name."""
    parts = {"metrics": figures.metrics, "calibration": figures.calibration, "fairness": figures.fairness}
    own = {name: [one for one in found if one.model == model] for name, found in parts.items()}
    assert all(own.values())
    return {
        "residuals": figures.residuals,
        **{name: [one.model_copy(update={"model": ""}) for one in found] for name, found in own.items()},
    }


@pytest.mark.parametrize("weighed", [False, True])
def test_champion_with_the_candidate_s_answers_has_its_figures(weighed):
    frame = predictions()
    if weighed:
        frame["weight"] = np.where(frame["row"] % 3 == 0, 0.0, 2.0)
    features = frame[["slice:carrier"]].rename(columns={"slice:carrier": "carrier"})
    frame["champion"] = frame["candidate"]
    judged = evaluate(
        frame.drop(columns="champion"), FAIR, BINARY, benchmark_rows=2000, window=WINDOW, features=features
    )
    met = model_figures(frame, "champion", FAIR, BINARY, parts=(), features=features, ordered=False)
    assert told_of(met, "champion") == told_of(judged, "candidate")
    assert met.not_defined == ()


def test_worse_champion_is_told_as_worse_on_the_same_rows():
    frame = predictions()
    frame["champion"] = frame["linear"]
    met = model_figures(frame, "champion", SPEC, BINARY, parts=(), features=None, ordered=False)
    (theirs,) = [one for one in met.metrics if (one.metric, one.slice) == ("log_loss", None)]
    judged = evaluate(frame, SPEC, BINARY, benchmark_rows=2000, window=WINDOW)
    (mine,) = [one for one in judged.metrics if (one.model, one.metric, one.slice) == ("candidate", "log_loss", None)]
    assert theirs.estimate.value > mine.estimate.value
    assert theirs.rows == mine.rows


def test_metric_that_the_champion_has_no_value_of_is_named_with_its_reason():
    frame = predictions()
    frame["champion"] = 0.01
    spec = SPEC.model_copy(update={"decision": None, "guardrails": (), "primary": SPEC.primary})
    met = model_figures(frame.assign(label=0), "champion", spec, BINARY, parts=(), features=None, ordered=False)
    assert any(one.startswith("auc: ") for one in met.not_defined)
    assert not any(one.metric == "auc" for one in met.metrics)


def test_precision_without_a_row_that_is_decided_1_says_so():
    frame = predictions()
    spec = SPEC.model_copy(update={"decision": None, "guardrails": (Guardrail(metric="precision", at_least=0.1),)})
    for answers, lacking in ((0.01, ["precision: no row is decided 1"]), (frame["candidate"], [])):
        frame["champion"] = answers
        met = model_figures(frame, "champion", spec, BINARY, parts=(), features=None, ordered=False)
        assert [one for one in met.not_defined if one.startswith("precision")] == lacking
