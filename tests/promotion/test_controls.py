import math
from typing import Any, cast

import numpy as np
import pytest

from trainworthy.lifecycle.golden import largest_difference
from trainworthy.lifecycle.promotion import controls
from trainworthy.lifecycle.promotion.controls import reproducibility_control
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.latency import Latency
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.protocol.serving import ServingFigure, to_measure_again


def latency(least: float, most: float) -> Latency:
    return Latency(wall_ms=most, cpu_ms=least, least_ms=least, most_ms=most, rounds=3, load=4.0, cores=2)


DATASET = {
    "published_content_hash": "a" * 64,
    "found_content_hash": "a" * 64,
    "contract_passed": True,
    "snapshot_dataset_identity": "d" * 64,
    "dataset_identity": "d" * 64,
}
PASSED = (CheckResult(name="predictions", status="pass", required=True),)
WINDOW = CheckResult(name="benchmark_window", status="pass", required=True)
SEEN = CheckResult(name="benchmark_window", status="fail", required=True, evidence="training ends 2013-08-31")
BENCHMARK = {
    "windows": (WINDOW, WINDOW),
    "label_sha256": "l" * 64,
    "benchmark_label_sha256": "l" * 64,
    "evaluation_checks": PASSED,
}
FORECAST = Forecast(name="cost", unit="usd", value=0.2, low=0.1, high=0.3)
COST = {"spent_usd": 0.4, "budget_usd": 1.0, "forecast": FORECAST, "actual_usd": 0.25}
REPRODUCIBILITY = {
    "git_commit": "c" * 40,
    "changed_files": (),
    "recorded_prefix_sha256": "p" * 64,
    "rerun_prefix_sha256": "p" * 64,
    "prefix_steps": 5,
}
DEPLOYMENT = {
    "loaded": True,
    "rows_compared": 256,
    "golden_difference": 0.0,
    "difference": 1e-7,
    "tolerance": 1e-5,
    "latency": latency(3.0, 3.0),
    "latency_limit_ms": 50.0,
    "size_mb": 1.2,
    "size_limit_mb": 10.0,
}
GOOD = {
    "dataset": (controls.dataset_control, DATASET),
    "benchmark": (controls.benchmark_control, BENCHMARK),
    "cost": (controls.cost_control, COST),
    "reproducibility": (controls.reproducibility_control, REPRODUCIBILITY),
    "deployment": (controls.deployment_control, DEPLOYMENT),
}


@pytest.mark.parametrize("name", GOOD)
def test_control_of_healthy_values_passes(name):
    control, values = GOOD[name]
    found = control(**values)
    assert (found.name, found.status) == (name, "pass")
    assert found.reason.endswith(".")


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        (
            "dataset",
            {"found_content_hash": "b" * 64},
            "content hash of the dataset: bbbbbbbbbbbb instead of aaaaaaaaaaaa",
        ),
        ("dataset", {"contract_passed": False}, "contract is broken"),
        ("dataset", {"dataset_identity": "e" * 64}, "dataset that the snapshot names"),
        ("benchmark", {"windows": (SEEN, WINDOW)}, "window: training ends 2013-08-31"),
        ("benchmark", {"windows": (WINDOW, SEEN)}, "window: training ends 2013-08-31"),
        ("benchmark", {"windows": ()}, "nothing to compare"),
        ("benchmark", {"windows": (WINDOW, SEEN.model_copy(update={"status": "error"}))}, "training ends"),
        ("benchmark", {"label_sha256": "m" * 64}, "label definition"),
        (
            "benchmark",
            {"evaluation_checks": (*PASSED, CheckResult(name="groups", status="error"))},
            "evaluation checks failed: groups",
        ),
        ("reproducibility", {"rerun_prefix_sha256": "q" * 64}, "such as hash() of a text, the order of a set"),
        (
            "reproducibility",
            {"rerun_prefix_sha256": "q" * 64, "changed_files": ("use_cases/toy/model.py",)},
            "parameters after 5 steps",
        ),
        ("deployment", {"loaded": False}, "does not load"),
        ("deployment", {"difference": 1e-4}, "difference of answers"),
        ("deployment", {"difference": math.nan}, "difference of answers"),
        ("deployment", {"difference": math.inf}, "difference of answers"),
        ("deployment", {"tolerance": math.nan}, "difference of answers"),
        ("deployment", {"golden_difference": 1e-4}, "difference of golden answers"),
        ("deployment", {"latency": latency(51.0, 51.0)}, "latency: 51 ms, allowed 50 ms"),
        (
            "deployment",
            {"latency": latency(57.5, 90.0)},
            "latency: 90 ms, without the waits for cores that other work had",
        ),
        ("deployment", {"size_mb": 10.5}, "size in MB"),
    ],
)
def test_control_of_a_planted_fault_fails(name, changed, reason):
    control, values = GOOD[name]
    found = control(**{**values, **changed})
    assert found.status == "fail"
    assert reason in found.reason


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        ("dataset", {"found_content_hash": None}, "content hash of the dataset: not measured"),
        ("dataset", {"published_content_hash": "", "found_content_hash": ""}, "not measured"),
        ("dataset", {"contract_passed": None}, "contract: not measured"),
        ("benchmark", {"label_sha256": None, "benchmark_label_sha256": None}, "label definition: not measured"),
        ("benchmark", {"evaluation_checks": ()}, "none ran"),
        ("benchmark", {"evaluation_checks": (CheckResult(name="groups", status="insufficient"),)}, "groups"),
        ("cost", {"forecast": None}, "0.4000 USD of the budget of 1.0000 USD; nothing was forecast: run preflight"),
        ("reproducibility", {"changed_files": ("use_cases/toy/model.py",)}, "commit it"),
        ("reproducibility", {"git_commit": None, "changed_files": None}, "no git commit"),
        ("reproducibility", {"rerun_prefix_sha256": None}, "not measured"),
        ("reproducibility", {"prefix_steps": 0}, "no step was run again"),
        ("deployment", {"loaded": None}, "not measured"),
        ("deployment", {"rows_compared": 0}, "no answers were compared"),
        ("deployment", {"difference": None}, "not measured"),
        ("deployment", {"golden_difference": None}, "difference of golden answers: not measured"),
        ("deployment", {"latency": None}, "latency: not measured"),
        ("deployment", {"latency": latency(11.0, 57.5)}, "which leaves 11 to 57.5 ms: run the same command again"),
        ("deployment", {"size_mb": None}, "not measured"),
    ],
)
def test_control_of_a_missing_value_is_insufficient(name, changed, reason):
    control, values = GOOD[name]
    found = control(**{**values, **changed})
    assert found.status == "insufficient"
    assert reason in found.reason


def test_cost_control_above_the_forecast_but_within_the_budget_passes_and_tells():
    found = controls.cost_control(**{**COST, "actual_usd": 0.35})
    assert found.status == "pass"
    assert found.reason.endswith(
        "which preflight forecast at 0.3000 USD at most, cost 0.3500 USD: the forecast was too low."
    )
    assert found.reason.startswith("until it was judged the model cost ")
    near = controls.cost_control(**{**COST, "actual_usd": 0.30004})
    assert near.reason.endswith("forecast at 0.300000 USD at most, cost 0.300040 USD: the forecast was too low.")


@pytest.mark.parametrize(("spent", "stops"), [(0.9, False), (1.0, False), (1.01, True), (math.nan, True)])
def test_budget_that_was_passed_ends_the_run_before_the_model_is_judged(spent, stops):
    found = controls.budget_check(spent, 1.0)
    assert (found.name, found.stops) == ("cost", stops)
    assert "raise budget.run_usd and run the same command again" in found.fix


def test_largest_difference_is_the_greatest_or_infinite():
    assert largest_difference([0.1, 0.5], [0.1, 0.25]) == 0.25
    for served in ([0.1], [0.1, math.nan], [[0.1, 0.5]], [0.1, math.inf]):
        assert largest_difference([0.1, 0.5], served) == math.inf
    assert largest_difference(np.array([]), np.array([])) == math.inf


@pytest.mark.parametrize(("inexact", "status"), [("its trainer saved no random state", "insufficient"), ("", "pass")])
def test_reproducibility_of_a_training_that_did_not_resume_exactly_is_insufficient(inexact, status):
    found = reproducibility_control(
        git_commit="a" * 40, changed_files=(), recorded_prefix_sha256="b", rerun_prefix_sha256="b", prefix_steps=5,
        inexact_resume=inexact,
    )  # fmt: skip
    assert (found.status, inexact in found.reason) == (status, True)


@pytest.mark.parametrize(("changed", "status"), [((), "pass"), (("trainworthy/lifecycle/x.py",), "insufficient")])
def test_reproducibility_by_an_installed_trainworthy_names_it(changed, status):
    installed = "trainworthy 0.1.0 (files 0123456789ab)"
    found = reproducibility_control(**(REPRODUCIBILITY | {"changed_files": changed, "installed": installed}))
    assert found.status == status
    assert installed in found.reason
    assert all(name in found.reason for name in changed)


def beside(quantity: str = "latency", **values: Any) -> ServingFigure:
    """A figure of two models, measured in nine pairs of processes, of which other work met none."""
    told = {"candidate": 1.15, "champion": 1.0, "ratio": 1.15, "low": 1.1, "high": 1.18, "rounds": 9, "limit": 1.2}
    return ServingFigure(quantity=cast(Any, quantity), **(told | values))


@pytest.mark.parametrize(
    ("serving", "status", "reason"),
    [
        ((), "pass", "size"),
        (
            (beside(),),
            "pass",
            "Beside the champion: latency of one row 1.15 times the champion's (1.1 to 1.18), allowed 1.2: 1.15",
        ),
        (
            (beside(limit=None, low=5.0, ratio=6.0, high=7.0),),
            "pass",
            "latency of one row 6 times the champion's (5 to 7)",
        ),
        ((beside(high=1.3),), "insufficient", "latency of one row 1.15 times the champion's (1.1 to 1.3), allowed 1.2"),
        (
            (beside(high=1.3, busy=4),),
            "insufficient",
            "other work took part of the time in 4 of 9 rounds: run the same",
        ),
        ((beside(low=1.21, ratio=1.3, high=1.4),), "fail", "1.3 times the champion's (1.21 to 1.4), allowed 1.2"),
        (
            (beside(), beside("size", low=1.5, ratio=1.5, high=1.5, rounds=0)),
            "fail",
            "size 1.5 times the champion's, allowed 1.2: 1.15 and 1 MB",
        ),
        (
            (
                beside(
                    "memory", candidate=None, champion=None, ratio=None, low=None, high=None, told="it does not load"
                ),
            ),
            "insufficient",
            "memory beside the champion: not measured (it does not load)",
        ),
        ((beside("batch_latency", rows=256, high=9.0),), "insufficient", "latency of a batch of 256 rows 1.15 times"),
    ],
)
def test_deployment_beside_the_champion_goes_by_the_whole_interval(serving, status, reason):
    _, values = GOOD["deployment"]
    found = controls.deployment_control(**{**values, "serving": serving})
    assert found.status == status
    assert reason in found.reason
    # The sentence of a control without a champion is as it was.
    assert ("Beside the champion" in found.reason) == (status == "pass" and bool(serving))


def test_control_that_failed_names_what_is_open_as_well():
    _, values = GOOD["deployment"]
    larger = beside("size", low=1.5, ratio=1.5, high=1.5, rounds=0)
    found = controls.deployment_control(**{**values, "serving": (beside(high=1.3), larger)})
    assert found.status == "fail"
    assert found.reason.startswith("size 1.5 times the champion's")
    assert "; latency of one row 1.15 times the champion's (1.1 to 1.3)" in found.reason


def test_only_times_that_keep_no_limit_are_measured_again():
    figures = (
        beside(),
        beside("cold_load", high=1.3),
        beside("batch_latency", low=1.3, high=1.3),
        beside("memory", high=9.0),
    )
    assert to_measure_again(figures) == ("cold_load", "batch_latency")
    assert to_measure_again((beside(limit=None, high=9.0),)) == ()


def test_limits_beside_a_champion_ask_nothing_where_there_is_none():
    _, values = GOOD["deployment"]
    found = controls.deployment_control(**{**values, "ratio_limits": {"latency": 1.2}})
    assert found.status == "pass"
    assert "benchmark.at_most_champion asks nothing: there is no champion" in found.reason
