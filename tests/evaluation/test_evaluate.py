import numpy as np
import pandas as pd
import pytest

from lifecycle.checks import CheckResult, stopping
from lifecycle.evaluation.comparison import not_better_than_prior
from lifecycle.evaluation.evaluate import evaluate
from lifecycle.identity import canonical_json
from lifecycle.tasks.binary import BINARY
from lifecycle.use_case import BenchmarkSpec

SPEC = BenchmarkSpec.model_validate(
    {
        "primary": {"metric": "log_loss", "margin": 0.005},
        "baselines": ["prior", "linear"],
        "slices": ["carrier"],
        "latency_ms": 50,
        "size_mb": 10,
    }
)
WINDOW = CheckResult(name="benchmark_window", status="pass", required=True)


def predictions(days: int = 20, rows: int = 2000) -> pd.DataFrame:
    """The candidate knows the truth, linear a blurred one."""
    random = np.random.default_rng(0)
    truth = random.beta(1, 3, rows)
    frame = pd.DataFrame({"row": np.arange(rows), "group": np.arange(rows) % days})
    frame["label"] = (random.random(rows) < truth).astype(int)
    frame["candidate"] = truth
    frame["linear"] = 0.5 * truth + 0.125
    frame["prior"] = 0.25
    frame["slice:carrier"] = random.choice(["A", "B", "rare"], rows, p=[0.5, 0.46, 0.04])
    return frame


def run(frame: pd.DataFrame, rows: int = 2000, **changed):
    return evaluate(frame, SPEC, BINARY, benchmark_rows=rows, **{"window": WINDOW, **changed})


def status(body) -> dict[str, str]:
    return {check.name: check.status for check in body.checks}


def test_evaluate_valid_predictions_measures_models_slices_and_gains():
    body = run(predictions())
    assert status(body) == {"predictions": "pass", "groups": "pass", "benchmark_window": "pass"}
    overall = {(m.model, m.metric) for m in body.metrics if m.slice is None}
    names = ("log_loss", "brier", "auc", "calibration_error")
    assert overall == {(model, name) for model in ("candidate", "prior", "linear") for name in names}
    assert {m.slice for m in body.metrics if m.slice} == {"carrier=A", "carrier=B"}
    assert [(c.reference, c.metric) for c in body.comparisons] == [("prior", "log_loss"), ("linear", "log_loss")]
    assert all(c.gain.low > 0 for c in body.comparisons)
    assert [(c.reference, c.metric) for c in body.baseline_gains] == [("linear", "log_loss")]
    assert not_better_than_prior(body.baseline_gains) == {}
    assert sum(r.rows for r in body.reliability) == body.rows == 2000
    assert body.groups == 20


def test_evaluate_names_a_baseline_that_is_not_better_than_the_prior():
    frame = predictions()
    noise = np.random.default_rng(1).uniform(-0.05, 0.05, len(frame))
    body = run(frame.assign(linear=0.25 + noise))
    assert set(not_better_than_prior(body.baseline_gains)) == {"linear"}


def test_evaluate_lists_thin_slices_in_the_groups_check():
    (check,) = [check for check in run(predictions()).checks if check.name == "groups"]
    assert [item["slice"] for item in check.details] == ["carrier=rare"]
    assert "1 slice is too small" in check.evidence


@pytest.mark.parametrize("name", ["row", "group", "label", "candidate", "prior", "linear"])
def test_evaluate_slices_by_a_column_named_like_one_of_the_predictions(name):
    spec = SPEC.model_copy(update={"slices": (name,)})
    frame = predictions().rename(columns={"slice:carrier": f"slice:{name}"})
    body, plain = evaluate(frame, spec, BINARY, benchmark_rows=2000, window=WINDOW), run(predictions())
    assert status(body) == status(plain)
    assert {m.slice for m in body.metrics if m.slice} == {f"{name}=A", f"{name}=B"}
    assert [m for m in body.metrics if not m.slice] == [m for m in plain.metrics if not m.slice]


def test_evaluate_with_a_champion_compares_with_it():
    frame = predictions().assign(champion=lambda f: f["candidate"])
    gains = {c.reference: c.gain for c in run(frame).comparisons}
    assert gains["champion"].value == 0.0


def test_evaluate_a_bad_model_passes_the_gate_with_its_loss():
    frame = predictions().assign(candidate=lambda f: 1 - f["candidate"])
    body = run(frame)
    assert not stopping(body.checks)
    assert all(c.gain.high < 0 for c in body.comparisons)


def test_evaluate_gives_json_without_nan():
    assert canonical_json(run(predictions()).model_dump())


@pytest.mark.parametrize(
    ("fault", "evidence"),
    [
        (lambda f: f.assign(candidate=f["candidate"].where(f["row"] != 7)), "candidate: 1 of 2000"),
        (lambda f: f.assign(linear=f["linear"] + 0.9), "linear: "),
        (lambda f: f.assign(candidate=np.inf), "candidate: 2000 of 2000"),
        (lambda f: f.assign(label=f["label"] * 2), "neither 0 nor 1"),
        (lambda f: f.assign(label=f["label"].where(f["row"] != 7)), "labels are not finite"),
        (lambda f: f.assign(row=0), "occur twice"),
        (lambda f: f.assign(group=f["group"].where(f["row"] != 7)), "1 rows have no group"),
        (lambda f: f.head(1999), "1999 rows were scored, the benchmark has 2000"),
        (lambda f: f.head(0), "0 rows were scored"),
        (lambda f: f.drop(columns="linear"), "the column linear is missing"),
        (lambda f: f.drop(columns="slice:carrier"), "the column slice:carrier is missing"),
        (lambda f: f.drop(columns="group"), "the column group is missing"),
        (lambda f: f.assign(champion=np.nan), "champion: "),
    ],
)
def test_evaluate_incomplete_predictions_stops_without_figures(fault, evidence):
    body = run(fault(predictions()))
    assert status(body) == {"predictions": "fail", "groups": "insufficient", "benchmark_window": "pass"}
    assert evidence in body.checks[0].evidence
    assert stopping(body.checks)
    assert not body.metrics + body.comparisons + body.reliability


def test_evaluate_an_empty_benchmark_stops():
    assert stopping(run(predictions().head(0), rows=0).checks)


@pytest.mark.parametrize(
    ("frame", "evidence"),
    [
        (predictions(days=7), "7 groups, fewer than 8"),
        (predictions().assign(label=0), "label 1 occurs in 0 groups"),
    ],
)
def test_evaluate_too_few_groups_or_one_class_stops_as_insufficient(frame, evidence):
    body = run(frame)
    assert status(body)["groups"] == "insufficient"
    assert evidence in body.checks[1].evidence
    assert stopping(body.checks)
    assert not body.metrics


@pytest.mark.parametrize("found", ["fail", "error"])
def test_evaluate_a_benchmark_that_is_not_apart_stops(found):
    body = run(predictions(), window=WINDOW.model_copy(update={"status": found}))
    assert status(body) == {"predictions": "pass", "groups": "pass", "benchmark_window": found}
    assert stopping(body.checks)
    assert not body.metrics
