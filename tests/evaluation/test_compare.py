"""Two models on the same rows."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.evaluation.compare import compared
from trainworthy.lifecycle.evaluation.kept_answers import model_of, renamed_models
from trainworthy.lifecycle.report.compare import TwoModels, compare_text, render_compare, stands
from trainworthy.lifecycle.report.decision_costs import costs_text
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.binary import BINARY

SPEC = BenchmarkSpec.model_validate(
    {
        "primary": {"metric": "log_loss", "margin": 0.005},
        "baselines": ["prior", "linear"],
        "slices": ["carrier"],
        "latency_ms": 50,
        "size_mb": 10,
    }
)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The champion is blurred for one carrier, and else the same."""
    random = np.random.default_rng(0)
    truth = random.beta(1, 3, 3000)
    frame = pd.DataFrame({"row": np.arange(3000), "group": np.arange(3000) // 100})
    frame["label"] = (random.random(3000) < truth).astype(int)
    frame["slice:carrier"] = np.where(np.arange(3000) % 5 == 0, "A", "B")
    frame["candidate"] = truth
    frame["champion"] = np.where(frame["slice:carrier"] == "A", 0.5 * truth + 0.4, truth)
    return frame


@pytest.fixture(scope="module")
def models(table) -> TwoModels:
    found = compared(table, SPEC, BINARY, {"all of it": np.ones(3000, bool), "none": np.zeros(3000, bool)})
    return TwoModels(
        "toy", "2", "1", "benchmark 2024: 3,000 rows", (("verdict", "promote", "<b>shadow</b>"),),
        tuple(item for item in found if not item.part), tuple(item for item in found if item.part),
    )  # fmt: skip


def test_compared_tells_where_the_gain_comes_from(models):
    parts = {item.part: item for item in models.parts}
    assert set(parts) == {"carrier=A", "carrier=B", "all of it", "none"}
    assert stands(parts["carrier=A"]) == "better"
    assert parts["carrier=B"].gain.value == 0
    assert stands(parts["carrier=B"]) == "no difference shown"
    assert (parts["none"].gain, parts["none"].told) == (None, "no row of the benchmark")
    whole = {item.metric: item for item in models.metrics}
    assert parts["all of it"].gain == whole["log_loss"].gain
    assert {"log_loss", "auc", "brier"} <= set(whole)


def test_the_other_way_round_every_gain_has_the_other_sign(table, models):
    back = compared(renamed_models(table, {"candidate": "champion", "champion": "candidate"}), SPEC, BINARY, {})
    for one, other in zip(models.metrics, [item for item in back if not item.part], strict=True):
        assert one.gain is not None
        assert other.gain is not None
        assert one.gain.value == pytest.approx(-other.gain.value, abs=1e-12)


@pytest.mark.parametrize(
    ("column", "model"),
    [("candidate", "candidate"), ("candidate:0.9", "candidate"), ("metric:cost:candidate:0", "candidate"),
     ("metric:cost:prior:1", "prior"), ("slice:candidate", "slice"), ("key:candidate", "key"), ("label", "label")],
)  # fmt: skip
def test_columns_name_their_model(column, model):
    assert model_of(column) == model
    renamed = renamed_models(pd.DataFrame({column: [1]}), {"candidate": "champion"}).columns[0]
    assert renamed == (column.replace("candidate", "champion") if model == "candidate" else column)


def test_text_and_page_have_the_worst_gain_first_and_escape(models):
    text = compare_text(models)
    assert text.index("carrier=B") < text.index("carrier=A")
    page = render_compare(models, "2026-01-01T00:00:00+00:00")
    assert "<b>shadow</b>" not in page
    assert page.count("<img") == 1


def test_text_and_page_say_of_which_column_decisions_cost(models):
    told = "not acting on a row of label 1 costs what its column amount says."
    costs = costs_text({"decision": {"costs": {"false_positive": 5.0, "false_negative": "amount"}}})
    of_costs = dataclasses.replace(models, costs=costs)
    assert told in compare_text(of_costs)
    assert told in render_compare(of_costs, "2026-01-01T00:00:00+00:00")
    assert "costs" not in compare_text(models)


def test_slice_that_is_judged_by_another_metric_is_told_by_that_as_well(table):
    slices = [{"column": "carrier", "metric": "auc", "at_least": 0.5}, {"where": "row >= 0", "name": "all of it"}]
    spec = BenchmarkSpec.model_validate({**SPEC.model_dump(mode="json"), "slices": slices})
    found = [item for item in compared(table, spec, BINARY, {"all of it": np.ones(3000, bool)}) if item.part]
    assert [(item.part, item.metric) for item in found] == [
        ("carrier=B", "log_loss"), ("carrier=B", "auc"), ("carrier=A", "log_loss"), ("carrier=A", "auc"),
        ("all of it", "log_loss"),
    ]  # fmt: skip
    models = TwoModels("toy", "2", "1", "benchmark", (("decides", "1 from 0.2 on", "answers alone"),), (), tuple(found))
    text, page = compare_text(models), render_compare(models, "2026-11-26T00:00:00+00:00")
    assert "AUC" in text
    assert text.count("carrier=A") == 2
    assert text.count("all of it") == 1
    assert "AUC over parts of the rows" in page
    assert "1 from 0.2 on" in text
