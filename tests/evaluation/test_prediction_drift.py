"""prediction_drift: a shift of the probabilities that days dealt anew would not show; a warning, never a stop."""

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.evaluation.prediction_drift import prediction_drift_check
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.binary import BINARY


def predictions(days, seed, shift=0.0, first=0, rows=200):
    """Probabilities by day, neighbouring days alike."""
    generator = np.random.default_rng(seed)
    level = np.convolve(generator.normal(0, 0.4, days + 2), np.ones(3) / 3, mode="valid")
    logits = generator.normal(-1.5 + shift, 0.8, (days, rows)) + level[:, None]
    group = np.repeat(pd.date_range("2024-01-01", periods=days) + pd.Timedelta(days=first), rows)
    return pd.DataFrame({"group": group, "candidate": (1 / (1 + np.exp(-logits))).ravel()})


@pytest.mark.parametrize("seed", range(10))
def test_prediction_drift_of_days_that_vary_is_quiet(seed):
    check = prediction_drift_check(predictions(30, seed, first=30), predictions(28, seed + 100), BINARY)
    assert check.status == "pass"
    assert 0 <= check.observed <= check.threshold


@pytest.mark.parametrize("shift", [1.0, -1.0, 3.0])
def test_prediction_drift_of_shifted_probabilities_warns(shift):
    check = prediction_drift_check(predictions(30, 0, shift, first=30), predictions(28, 100), BINARY)
    assert (check.status, check.severity, check.stops) == ("fail", "warning", False)
    assert check.fix


def test_prediction_drift_of_a_constant_is_quiet():
    constant = predictions(30, 0).assign(candidate=0.2)
    assert prediction_drift_check(constant, constant, BINARY).status == "pass"


@pytest.mark.parametrize(("benchmark", "reference"), [(3, 3), (30, 1), (1, 30)])
def test_prediction_drift_of_too_few_days_is_insufficient_and_holds_nothing_back(benchmark, reference):
    check = prediction_drift_check(predictions(benchmark, 0), predictions(reference, 1), BINARY)
    assert (check.status, check.severity, check.stops) == ("insufficient", "warning", False)


def test_column_that_moved_beyond_what_it_may_is_told_before_one_with_a_larger_allowance(monkeypatch):
    from trainworthy.lifecycle.evaluation import prediction_drift
    from trainworthy.lifecycle.protocol.checks import CheckResult, Status

    found: dict[str, tuple[Status, float, float]] = {
        "a": ("pass", 0.233, 0.236),
        "b": ("fail", 0.187, 0.1),
        "c": ("pass", 0.1, 0.2),
    }

    def judged(benchmark, reference, column):
        status, observed, threshold = found[column.removeprefix("candidate:")]
        return CheckResult(name=column, status=status, observed=observed, threshold=threshold)

    monkeypatch.setattr(prediction_drift, "_judged", judged)
    kind = kind_of(Target(kind="multiclass", classes=("a", "b", "c")))
    assert prediction_drift_check(pd.DataFrame(), pd.DataFrame(), kind).name == "candidate:b"
