import numpy as np
import pandas as pd
import pytest
from known import known

from trainworthy.lifecycle.evaluation.comparison import not_better_than_prior
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.predicate import parse
from trainworthy.lifecycle.evaluation.slice_levels import training_cuts
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, FairnessSpec, SliceSpec
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.statistic_columns import as_columns

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
    spec = SPEC.model_copy(update={"slices": (SliceSpec(column=name),)})
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


WEIGHTED = SPEC.model_copy(update={"weight": "value"})


def test_weights_count_in_all_figures_as_rows_do():
    frame = predictions()
    weights = np.random.default_rng(3).integers(1, 4, len(frame))
    heavy = frame.loc[frame.index.repeat(weights)].reset_index(drop=True).assign(row=range(weights.sum()))
    weighed = evaluate(frame.assign(weight=weights * 1.0), WEIGHTED, BINARY, benchmark_rows=2000, window=WINDOW)
    repeated = run(heavy, rows=len(heavy))
    assert len(weighed.metrics) > 8
    for one, other in zip(weighed.metrics, repeated.metrics, strict=True):
        if one.metric != "calibration_error":  # its bins hold rows, and a heavy row is one
            assert one.estimate.value == pytest.approx(other.estimate.value)
            assert one.estimate.standard_error == pytest.approx(other.estimate.standard_error)
    for one, other in zip(weighed.comparisons, repeated.comparisons, strict=True):
        assert one.gain.value == pytest.approx(other.gain.value)


@pytest.mark.parametrize("weights", [[-1.0] + [1.0] * 1999, [np.nan] * 2000, [0.0] * 2000])
def test_weights_that_are_none_stop_without_figures(weights):
    body = evaluate(predictions().assign(weight=weights), WEIGHTED, BINARY, benchmark_rows=2000, window=WINDOW)
    assert status(body)["predictions"] == "fail"
    assert body.metrics == ()


def test_weights_that_are_declared_and_missing_stop():
    body = evaluate(predictions(), WEIGHTED, BINARY, benchmark_rows=2000, window=WINDOW)
    assert "the column weight is missing" in body.checks[0].evidence


KINDS = {
    "multiclass": Target(kind="multiclass", classes=("low", "middle", "high")),
    "number": Target(kind="regression"),
    "quantiles": Target(kind="regression", quantiles=(0.1, 0.9)),
}
PRIMARY = {"multiclass": "macro_f1", "number": "r2", "quantiles": "pinball"}


def answers(kind: str, sure: float) -> pd.DataFrame:
    """Labels and answers of a model that is as sure of the truth as said, from 0 to 1."""
    random = np.random.default_rng(0)
    score = random.normal(size=2000)
    frame = pd.DataFrame({"row": np.arange(2000), "group": np.arange(2000) % 20})
    if kind == "multiclass":
        labels = np.digitize(score + 0.3 * random.normal(size=2000), [-0.5, 0.5])
        found = np.full((2000, 3), (1 - sure) / 3)
        found[np.arange(2000), np.digitize(score * (sure > 0), [-0.5, 0.5])] += sure
    else:
        labels, found = 50 + 10 * score + 3 * random.normal(size=2000), 50 + 10 * sure * score
        found = found if kind == "number" else found[:, None] + 13 * np.array([-1.0, 1.0]) * (1 - 0.6 * sure)
    model = "candidate" if sure > 0.5 else "prior" if sure == 0 else "linear"
    return frame.assign(label=labels, **as_columns(kind_of(KINDS[kind]), model, found))


@pytest.mark.parametrize("kind", KINDS)
def test_evaluate_each_kind_by_a_metric_of_sums_or_rows(kind):
    frame = answers(kind, 0.9)
    for sure in (0.0, 0.3):
        others = answers(kind, sure)
        frame = frame.assign(**{str(name): others[name] for name in others if name not in frame.columns})
    primary = SPEC.primary.model_copy(update={"metric": PRIMARY[kind]})
    spec = SPEC.model_copy(update={"primary": primary, "slices": ()})
    body = evaluate(frame, spec, kind_of(KINDS[kind]), benchmark_rows=2000, window=WINDOW)
    assert stopping(body.checks) == ()
    assert {m.metric for m in body.metrics} >= {*kind_of(KINDS[kind]).reported, PRIMARY[kind]}
    gains = {comparison.reference: comparison.gain for comparison in body.comparisons}
    assert gains["prior"].low > 0
    assert {comparison.metric for comparison in body.comparisons} == {PRIMARY[kind]}
    assert sum(row.rows for row in body.reliability) == 2000


def test_answers_of_a_missing_class_are_told_with_the_column():
    frame = answers("multiclass", 0.9).drop(columns="candidate:high")
    spec = SPEC.model_copy(update={"baselines": (), "slices": ()})
    body = evaluate(frame, spec, kind_of(KINDS["multiclass"]), benchmark_rows=2000, window=WINDOW)
    assert "the column candidate:high is missing" in body.checks[0].evidence


def test_metric_that_is_not_defined_of_a_baseline_is_left_out_and_named():
    guardrail = {"metric": "precision", "at_least": 0.3}
    spec = BenchmarkSpec.model_validate(SPEC.model_dump() | {"guardrails": [guardrail]})
    body = evaluate(predictions(), spec, BINARY, benchmark_rows=2000, window=WINDOW)
    assert stopping(body.checks) == ()
    measured = {one.model for one in body.metrics if one.metric == "precision"}
    assert measured == {"candidate", "linear"}
    (groups,) = [check for check in body.checks if check.name == "groups"]
    assert "not defined: precision of prior" in groups.evidence
    assert {"model": "prior", "metric": "precision"}.items() <= groups.details[-1].items()


def test_primary_metric_that_is_not_defined_of_a_baseline_stops_with_its_name():
    spec = SPEC.model_copy(update={"primary": SPEC.primary.model_copy(update={"metric": "precision"})})
    body = evaluate(predictions(), spec, BINARY, benchmark_rows=2000, window=WINDOW)
    (groups,) = [check for check in body.checks if check.name == "groups"]
    assert (groups.status, groups.stops) == ("insufficient", True)
    assert "precision of candidate or prior" in groups.evidence
    assert body.metrics == ()


def test_rows_of_weight_zero_count_in_no_figure_and_no_slice():
    frame = predictions()
    weights = np.where(frame["slice:carrier"] == "B", 0.0, 1.0)
    body = evaluate(frame.assign(weight=weights), WEIGHTED, BINARY, benchmark_rows=2000, window=WINDOW)
    kept = frame[weights > 0].reset_index(drop=True).assign(row=lambda rows: range(len(rows)))
    plain = run(kept, rows=len(kept))
    assert [one.estimate for one in body.metrics] == [one.estimate for one in plain.metrics]
    assert {one.slice for one in body.metrics if one.slice} == {"carrier=A"}
    few = np.where(frame["group"] < 3, 1.0, 0.0)
    stopped = evaluate(frame.assign(weight=few), WEIGHTED, BINARY, benchmark_rows=2000, window=WINDOW)
    assert "3 groups, fewer than 8" in stopped.checks[1].evidence


def test_weights_count_in_the_reliability_picture():
    frame = predictions()
    body = evaluate(frame.assign(weight=1.0 + 9 * frame["label"]), WEIGHTED, BINARY, benchmark_rows=2000, window=WINDOW)
    assert all(
        heavy.observed > plain.observed for heavy, plain in zip(body.reliability, run(frame).reliability, strict=True)
    )


def test_evaluate_tells_calibration_fairness_and_residuals_of_the_candidate():
    frame = predictions()
    features = pd.DataFrame({"wind": np.random.default_rng(1).normal(size=2000)})
    spec = SPEC.model_copy(update={"fairness": FairnessSpec(columns=("carrier",))})
    body = evaluate(frame, spec, BINARY, benchmark_rows=2000, window=WINDOW, features=features, ordered=True)
    assert [one.claim for one in body.calibration] == ["label 1"]
    assert {one.rate for one in body.fairness} == {
        "selection_rate", "true_positive_rate", "false_positive_rate", "mean_loss",
    }  # fmt: skip
    assert {axis.by for axis in known(body.residuals).axes} == {"group", "answer", "wind"}
    assert run(frame).fairness == ()


def test_evaluate_leaves_rows_of_weight_zero_out_of_what_it_tells():
    frame, random = predictions(), np.random.default_rng(1)
    features = pd.DataFrame({"wind": random.normal(size=2000)})
    weighed = frame.assign(weight=np.where(np.arange(2000) % 4 == 0, 0.0, 1.0))
    spec = SPEC.model_copy(update={"weight": "weight"})
    body = evaluate(weighed, spec, BINARY, benchmark_rows=2000, window=WINDOW, features=features)
    assert body.calibration[0].rows == 1500
    wind = next(axis for axis in known(body.residuals).axes if axis.by == "wind")
    assert sum(part.rows for part in wind.parts) == 1500
    kept = features["wind"][np.arange(2000) % 4 != 0]
    assert wind.parts[0].name == f"wind <= {np.quantile(kept, 0.1, method='inverted_cdf'):.4g}"


def test_evaluate_asks_for_protected_columns():
    spec = SPEC.model_copy(update={"fairness": FairnessSpec(columns=("region",))})
    body = evaluate(predictions(), spec, BINARY, benchmark_rows=2000, window=WINDOW)
    assert status(body)["predictions"] == "fail"
    assert body.fairness == ()


def bad_where(rule: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Predictions of 40 days whose candidate is turned round where a rule holds, and their features."""
    frame, random = predictions(40, 6000), np.random.default_rng(2)
    features = pd.DataFrame({"wind": random.normal(20, 9, 6000), "origin": random.choice(["EWR", "JFK", "LGA"], 6000)})
    bad = parse(rule).mask(features)
    answers = as_columns(BINARY, "candidate", np.where(bad, 1 - frame["candidate"], frame["candidate"]))
    return frame.assign(**answers), features


def test_evaluate_warns_of_a_blind_spot_by_its_rule_and_decides_nothing():
    frame, features = bad_where('origin == "JFK" and wind > 30')
    cuts = training_cuts(features)
    weights = np.where(np.arange(6000) % 5 == 0, 0.0, 1.0)
    spec = SPEC.model_copy(update={"weight": "weight"})
    body = evaluate(
        frame.assign(weight=weights), spec, BINARY, benchmark_rows=6000, window=WINDOW, features=features, cuts=cuts
    )
    (check,) = [check for check in body.checks if check.name == "blind_spots"]
    assert (check.status, check.severity, check.observed) == ("fail", "warning", 1)
    assert not check.stops
    (spot,) = [spot for spot in body.blind_spots if spot.confirmed]
    inside = parse(spot.rule).mask(features)
    assert spot.rows == np.count_nonzero(inside & (weights > 0))
    planted = parse('origin == "JFK" and wind > 30').mask(features)
    assert np.count_nonzero(inside & planted) > 0.7 * np.count_nonzero(inside | planted)
    # Examples are numbers of the benchmark's rows, whatever rows do not count.
    assert all(inside[row] and weights[row] > 0 for row in spot.examples)


def test_evaluate_without_a_blind_spot_passes_and_too_few_groups_are_not_searched():
    frame, features = bad_where("wind is None")
    for days, status in ((40, "pass"), (12, "not_applicable")):
        some = frame.assign(group=np.arange(6000) % days)
        body = evaluate(
            some, SPEC, BINARY, benchmark_rows=6000, window=WINDOW, features=features, cuts=training_cuts(features)
        )
        assert [check.status for check in body.checks if check.name == "blind_spots"] == [status]
        assert not [spot for spot in body.blind_spots if spot.confirmed]
