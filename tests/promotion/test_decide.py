import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.evaluation.seed_spread import with_seeds
from trainworthy.lifecycle.promotion.decide import Decision, check_first_model, decide
from trainworthy.lifecycle.promotion.evidence import CONTROLS, PromotionEvidence, guardrail_results
from trainworthy.lifecycle.promotion.finding import Window
from trainworthy.lifecycle.promotion.history import RolledBack
from trainworthy.lifecycle.protocol.figures import (
    BehaviourResult,
    Calibration,
    Comparison,
    Disparity,
    Estimate,
    Metric,
    PairDifference,
    RateOfValue,
    SliceResult,
)
from trainworthy.lifecycle.protocol.records import Control
from trainworthy.lifecycle.protocol.suite import ChangedLimit
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, Guardrail, SliceSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import without_spread
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.regression import Regression

MARGIN = 0.005
RANK = {"reject": 0, "shadow": 1, "promote": 2}
NAN, INF = math.nan, math.inf
OFF = RolledBack(model_version="4", to_version="3", at="2026-11-21T13:51:00+00:00", reason="answers were late")


def estimate(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, standard_error=(high - low) / 4, groups=30)


def gain(reference: str, low: float, high: float) -> Comparison:
    return Comparison(reference=reference, metric="log_loss", gain=estimate(low, high))


def guardrails(rules: list[tuple[str, float, float, float]]):
    """(at_most or at_least, bound, low, high) → results."""
    found = []
    for rule, bound, low, high in rules:
        guardrail = Guardrail.model_validate({"metric": "auc", rule: bound})
        metric = Metric(model="candidate", metric="auc", estimate=estimate(low, high), rows=900)
        found += guardrail_results([guardrail], [metric], "candidate")
    return tuple(found)


def evidence(*, prior=(0.01, 0.03), linear=(0.001, 0.02), champion=None, rules=(), **changed) -> PromotionEvidence:
    """A good first model; `champion` gives the interval of the gain over one."""
    values = {
        "metric": "log_loss",
        "margin": MARGIN,
        "purpose": "improve",
        "first_model": champion is None,
        "champion": "flights/3" if champion else None,
        "baselines": (gain("prior", *prior), gain("linear", *linear)),
        "champion_comparison": gain("champion", *champion) if champion else None,
        "guardrails": guardrails(list(rules)),
        "controls": tuple(Control(name=name, status="pass", reason="good.") for name in CONTROLS),
    }
    return PromotionEvidence(**{**values, **changed})


def with_control(name: str, status: str) -> tuple[Control, ...]:
    return tuple(
        Control(name=n, status="pass" if n != name else status, reason="what was seen.")  # pyright: ignore
        for n in CONTROLS
    )


@pytest.mark.parametrize(
    ("changed", "decision", "first_reason"),
    [
        ({}, "promote", "Declared as the first model of this use case"),
        ({"prior": (-0.03, -0.01)}, "reject", "Worse than the simplest baseline"),
        ({"prior": (-0.01, 0.01)}, "shadow", "Not shown to be better than the simplest baseline"),
        ({"prior": (0.0, 0.01)}, "shadow", "Not shown to be better than the simplest baseline"),
        ({"linear": (-0.02, -0.006)}, "reject", "Worse than logistic regression by more"),
        ({"linear": (-0.02, 0.01)}, "shadow", "May be worse than logistic regression by more"),
        ({"linear": (-0.004, 0.01)}, "promote", "Declared as the first model"),
        ({"linear": (-0.004, -0.001)}, "promote", "Declared as the first model"),
        ({"champion": (0.001, 0.01)}, "promote", "Good enough to replace the champion"),
        ({"champion": (-0.001, 0.01)}, "shadow", "Not proven good enough"),
        ({"champion": (0.0, 0.01)}, "shadow", "Not proven good enough"),
        ({"champion": (-0.01, -0.001)}, "reject", "Worse than the champion"),
        ({"champion": (-0.001, 0.01), "purpose": "refresh"}, "promote", "Good enough to replace"),
        ({"champion": (-0.004, -0.001), "purpose": "refresh"}, "promote", "Good enough to replace"),
        ({"champion": (-0.005, 0.01), "purpose": "refresh"}, "shadow", "Not proven good enough"),
        ({"champion": (-0.02, -0.006), "purpose": "refresh"}, "reject", "Worse than the champion"),
        (
            {"champion": (0.001, 0.01), "champion_comparison": None, "champion_error": "column fare is missing"},
            "shadow",
            "The champion flights/3 could not be scored on this benchmark: column fare is missing; nothing was",
        ),
        ({"champion": (0.001, 0.01), "champion_comparison": None, "prior": (-0.03, -0.01)}, "reject", "Worse than the"),
        ({"champion": (0.001, 0.01), "first_model": True}, "reject", "First_model is declared"),
        ({"rolled_back": OFF}, "reject", "Version 4 was rolled back on 2026-11-21: answers were late."),
        ({"rolled_back": OFF, "prior": (-0.03, -0.01)}, "reject", "Version 4 was rolled back"),
        ({"first_model": False}, "reject", "There is no champion to compare with: declare first_model: true"),
        ({"rules": [("at_least", 0.6, 0.65, 0.75)]}, "promote", "Declared as the first model"),
        ({"rules": [("at_least", 0.6, 0.55, 0.75)]}, "shadow", "Guardrail not safely kept: AUC 0.6500 [0.5500"),
        ({"rules": [("at_least", 0.6, 0.45, 0.55)]}, "reject", "Guardrail broken"),
        ({"rules": [("at_most", 0.6, 0.45, 0.55)]}, "promote", "Declared as the first model"),
        ({"rules": [("at_most", 0.6, 0.55, 0.65)]}, "shadow", "Guardrail not safely kept"),
        ({"rules": [("at_most", 0.6, 0.65, 0.75)]}, "reject", "Guardrail broken"),
        (
            {"insufficient_checks": ("memory", "drift")},
            "shadow",
            "Earlier checks were inconclusive, which allows shadow at most: drift, memory.",
        ),
        ({"open_questions": ("3 of 4 inputs were never reviewed",)}, "shadow", "3 of 4 inputs were never reviewed."),
        (
            {"accepted": "3 of 4 inputs were accepted without a review: a test"},
            "promote",
            "Declared as the first model",
        ),
        *[({"controls": with_control(n, "fail")}, "reject", f"Control {n} failed: what") for n in CONTROLS],
        *[({"controls": with_control(n, "insufficient")}, "shadow", f"Control {n} could not be") for n in CONTROLS],
        *[
            ({"controls": tuple(c for c in with_control("", "pass") if c.name != n)}, "reject", f"Control {n} was not")
            for n in CONTROLS
        ],
    ],
)
def test_decide_by_the_table(changed, decision, first_reason):
    found = decide(evidence(**changed))
    assert found.decision == decision
    assert found.reasons[0].startswith(first_reason)


@pytest.mark.parametrize("bad", [(NAN, NAN), (NAN, 0.02), (0.01, INF), (-INF, INF), (0.02, 0.01)])
@pytest.mark.parametrize("where", ["prior", "linear", "champion"])
def test_decide_on_a_gain_that_is_not_finite_rejects(where, bad):
    found = decide(evidence(**{where: bad}))
    assert found.decision == "reject"
    assert "not measured" in found.reasons[0]


@pytest.mark.parametrize(
    "baselines",
    [
        (),
        (gain("prior", 0.01, 0.02),),
        (gain("linear", 0.01, 0.02),),
        (gain("prior", 0.01, 0.02), gain("linear", 0.01, 0.02), gain("linear", -1, -0.9)),
        (
            gain("prior", 0.01, 0.02),
            Comparison(reference="linear", metric="brier", gain=estimate(0.01, 0.02)),
        ),
    ],
)
def test_decide_without_exactly_one_gain_on_the_primary_metric_rejects(baselines):
    assert decide(evidence(baselines=baselines)).decision == "reject"


def test_decide_on_a_guardrail_without_or_with_a_bad_estimate_rejects():
    rule = Guardrail(metric="auc", at_least=0.5)
    nan = Metric(model="candidate", metric="auc", estimate=estimate(NAN, 0.9), rows=900)
    others = [
        Metric(model="prior", metric="auc", estimate=estimate(0.6, 0.7), rows=900),
        Metric(model="candidate", metric="auc", estimate=estimate(0.6, 0.7), rows=900, slice="carrier=A"),
    ]
    for metrics in ([], [nan], others):
        found = decide(evidence(guardrails=guardrail_results([rule], metrics, "candidate")))
        assert (found.decision, found.reasons[0][:25]) == ("reject", "The guardrail on AUC was ")


@pytest.mark.parametrize("margin", [0.0, -0.1, NAN, INF])
def test_evidence_with_a_useless_margin_is_refused(margin):
    with pytest.raises(ValidationError):
        evidence(margin=margin)


@pytest.mark.parametrize(
    ("linear", "words", "headline"),
    [
        (
            (-0.004, 0.01),
            "Not measurably better than logistic regression: log loss gain +0.0030 [-0.0040, +0.0100], 30 groups",
            "not measurably better than logistic regression",
        ),
        ((0.0, 0.01), "Not measurably better than", "not measurably better than logistic regression"),
        ((-0.004, 0.0), "Not measurably better than", "not measurably better than logistic regression"),
        ((-0.004, -0.001), "Worse than logistic regression: log loss", "worse than logistic regression"),
        ((0.001, 0.02), "Better than logistic regression", ""),
    ],
)
def test_decide_near_logistic_regression_promotes_and_says_how_they_stand(linear, words, headline):
    found = decide(evidence(linear=linear))
    (reason,) = [reason for reason in found.reasons if "logistic regression" in reason]
    assert found.decision == "promote"
    assert reason.startswith(words)
    assert ("consider the simpler model" in reason) == bool(headline)
    assert found.headline == headline


@pytest.mark.parametrize(
    ("linear", "headline"),
    [
        ((-0.02, -0.006), "worse than logistic regression"),
        ((-0.02, 0.01), "not measurably better than logistic regress"),
    ],
)
def test_decide_that_logistic_regression_held_back_says_beside_it_what_the_interval_shows(linear, headline):
    found = decide(evidence(linear=linear))
    assert found.decision != "promote"
    assert found.headline.startswith(headline)


@pytest.mark.parametrize("name", ["linear", "gradient_boosting"])
@pytest.mark.parametrize("candidate", [(0.001, 0.02), (-0.004, 0.01), (-0.004, -0.001)])
@pytest.mark.parametrize(("own", "stands"), [((-0.001, 0.001), "not measurably better"), ((-0.002, -0.001), "worse")])
def test_decide_on_a_baseline_not_better_than_the_prior_says_so_and_counts_it_for_nothing(name, candidate, own, stands):
    baselines = (gain("prior", 0.01, 0.03), gain("linear", 0.001, 0.02), gain("gradient_boosting", 0.001, 0.02))
    baselines = (*(item for item in baselines if item.reference != name), gain(name, *candidate))
    found = decide(evidence(baselines=baselines, baseline_gains=(gain(name, *own),)))
    (reason,) = [reason for reason in found.reasons if f"is itself {stands} than the label prior, so" in reason]
    assert reason.lower().startswith(name.replace("linear", "logistic regression").replace("_", " "))
    assert found.headline == ""
    assert "consider the simpler model" not in "".join(found.reasons)
    useful = decide(evidence(baselines=baselines, baseline_gains=(gain(name, 0.001, 0.002),)))
    assert "is itself" not in "".join(useful.reasons)
    assert useful.decision == found.decision == "promote"


@pytest.mark.parametrize(
    ("trees", "words"),
    [
        ((-0.9, -0.8), "Worse than gradient boosting: log loss gain"),
        ((-0.1, 0.1), "Not measurably better than gradient boosting"),
        ((0.1, 0.2), "Better than gradient boosting"),
        ((NAN, 0.2), "The gain over gradient boosting was not measured"),
    ],
)
def test_decide_tells_of_gradient_boosting_and_does_not_gate_on_it(trees, words):
    baselines = (*evidence().baselines, gain("gradient_boosting", *trees))
    found = decide(evidence(baselines=baselines))
    assert found.decision == "promote"
    assert any(reason.startswith(words) for reason in found.reasons)


def test_decide_puts_what_held_the_model_back_first():
    found = decide(evidence(prior=(-0.01, 0.01), controls=with_control("cost", "fail")))
    assert found.decision == "reject"
    assert found.reasons[0].startswith("Control cost failed")
    assert found.reasons[1].startswith("Not shown to be better than the simplest")
    assert found.controls == with_control("cost", "fail")


def measured(value: float, reach: float, groups: int) -> Estimate:
    return Estimate(value=value, low=value - reach, high=value + reach, standard_error=reach / 2, groups=groups)


@pytest.mark.parametrize(
    ("changed", "lacks"),
    [
        # (0.0053 / (-0.0003 + the margin 0.005))² × 21 = 26.7
        (
            {"linear": (-0.0003, 0.0053, 21)},
            "21 groups; if the value holds, about 27 groups would show that it suffices.",
        ),
        ({"linear": (-0.006, 0.0053, 21)}, "; as measured, a better model is needed, not more rows."),
        # (0.0042 / 0.0012)² × 61 = 747.25
        (
            {"prior": (0.0012, 0.0042, 61)},
            "61 groups; if the value holds, about 748 groups would show that it suffices.",
        ),
        ({"prior": (0.0001, 0.0042, 61)}, "; as measured, a better model is needed, not more rows."),
        (
            {"champion": (0.0012, 0.0042, 61)},
            "may be chance; if the value holds, about 748 groups would show that it suffices.",
        ),
        # (0.0082 / (0.0012 + the margin 0.005))² × 61 = 106.7
        (
            {"champion": (0.0012, 0.0082, 61), "purpose": "refresh"},
            "margin of 0.005 or more; if the value holds, about 107 groups would show that it suffices.",
        ),
    ],
)
def test_decide_measures_what_a_gain_lacks_against_its_own_threshold(changed, lacks):
    gains = {name: measured(*values) for name, values in changed.items() if name != "purpose"}
    (name,) = gains
    comparison = Comparison(reference=name, metric="log_loss", gain=gains[name])
    others = tuple(item for item in evidence().baselines if item.reference != name)
    champion = {"champion": (0.001, 0.01), "champion_comparison": comparison} if name == "champion" else {}
    baselines = others if name == "champion" else (*others, comparison)
    found = decide(evidence(**champion, baselines=baselines, purpose=changed.get("purpose", "improve")))
    (told,) = found.held_back_by
    assert found.decision == "shadow"
    assert told.endswith(lacks)
    assert told.startswith(found.reasons[0].removesuffix("."))


def test_decide_says_by_when_a_benchmark_of_days_would_show_it():
    # 61 groups in 60 days, so 748 in 735.7.
    comparison = Comparison(reference="prior", metric="log_loss", gain=measured(0.0012, 0.0042, 61))
    others = tuple(item for item in evidence().baselines if item.reference != "prior")
    window = Window(date(2013, 11, 1), date(2013, 12, 31))
    (told,) = decide(evidence(baselines=(*others, comparison), window=window)).held_back_by
    assert told.endswith(
        "about 748 groups would show that it suffices; at its pace a benchmark window of 736 days holds them, from "
        "2013-11-01 to 2015-11-06."
    )


def test_decide_names_every_reason_that_held_the_model_back_and_no_other():
    trees = gain("gradient_boosting", -0.01, 0.01)
    missed = guardrails([("at_most", 0.05, 0.045, 0.0884), ("at_most", 0.05, 0.01, 0.052), ("at_least", 0.6, 0.7, 0.8)])
    baselines = (gain("prior", 0.01, 0.03), gain("linear", -0.0056, 0.0051), trees)
    found = decide(evidence(baselines=baselines, guardrails=missed))
    linear, far, near = found.held_back_by
    assert linear.startswith("May be worse than logistic regression by more than the margin of 0.005")
    assert far.startswith("Guardrail not safely kept: AUC 0.0667")
    assert far.endswith("at most 0.05; as measured, a better model is needed, not more rows.")
    # (0.021 / (0.05 - 0.031))² × 30 = 36.6
    assert near.endswith("at most 0.05; if the value holds, about 37 groups would show that it suffices.")
    assert decide(evidence()).held_back_by == ()


def test_guardrail_on_a_share_without_an_exception_lacks_as_many_groups_as_its_bound_needs():
    plain = Estimate(value=1.0, low=1.0, high=1.0, standard_error=0.0, groups=30)
    sure = without_spread(plain, 1.0, 30).model_copy(update={"high": 1.0})
    metric = Metric(model="candidate", metric="accuracy", estimate=sure, rows=3000)
    bound = Guardrail(metric="accuracy", at_least=0.98)
    found = decide(evidence(guardrails=guardrail_results([bound], [metric], "candidate")))
    # ln 0.025 / ln 0.98 = 182.6
    assert found.held_back_by[0].endswith("if the value holds, about 183 groups would show that it suffices.")


@pytest.mark.parametrize("declared", [True, False])
def test_check_first_model_agrees_or_raises(declared):
    check_first_model(Path("flights"), declared, None if declared else "flights/3")
    fix = "leave first_model out" if declared else r"train_flights -c FILE, where FILE holds .*\"first_model\": true"
    with pytest.raises(ChampionError, match=fix):
        check_first_model(Path("flights"), declared, "flights/3" if declared else None)


def test_check_first_model_names_the_run_config_that_lies_in_the_use_case(tmp_path, monkeypatch):
    folder = tmp_path / "use_cases" / "flights"
    folder.mkdir(parents=True)
    (folder / "first_model.yaml").write_text("")
    with pytest.raises(ChampionError, match=rf"-j train_flights -c {folder}/first_model.yaml$"):
        check_first_model(folder, False, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChampionError, match=r"-j train_flights -c use_cases/flights/first_model.yaml$"):
        check_first_model(folder, False, None)


def test_decide_names_inputs_that_were_accepted_without_a_review_and_why():
    told = "3 of 4 inputs were accepted without a review: all come from the order form"
    assert decide(evidence(accepted=told)).reasons[1] == f"{told}."


INTERVALS = st.tuples(st.floats(-0.02, 0.02), st.floats(0, 0.03)).map(lambda pair: (pair[0], pair[0] + pair[1]))
STATUS = st.sampled_from(["pass", "insufficient", "fail"])


@st.composite
def any_evidence(draw) -> dict:
    return {
        "prior": draw(INTERVALS),
        "linear": draw(INTERVALS),
        "champion": draw(st.none() | INTERVALS),
        "purpose": draw(st.sampled_from(["improve", "refresh"])),
        "rules": draw(
            st.lists(st.tuples(st.sampled_from(["at_most", "at_least"]), st.just(0.0), *[INTERVALS]), max_size=2)
        ),
        "controls": with_control(draw(st.sampled_from(CONTROLS)), draw(STATUS)),
        "insufficient_checks": draw(st.sampled_from([(), ("memory",)])),
    }


def build(values: dict) -> PromotionEvidence:
    rules = [(rule, bound, *interval) for rule, bound, interval in values["rules"]]
    return evidence(**{**values, "rules": rules})


@settings(max_examples=300, deadline=None)
@given(any_evidence(), st.sampled_from(["prior", "linear", "champion", "rule", "control", "check"]), st.data())
def test_decide_on_worse_evidence_never_decides_better(values, where, data):
    worse = dict(values)
    drop = data.draw(st.floats(0, 0.05))
    if where in ("prior", "linear", "champion") and values[where]:
        worse[where] = tuple(end - drop for end in values[where])
    elif where == "rule":
        worse["rules"] = [
            (rule, bound, tuple(end + (drop if rule == "at_most" else -drop) for end in interval))
            for rule, bound, interval in values["rules"]
        ]
    elif where == "control":
        worst = {"pass": "insufficient", "insufficient": "fail", "fail": "fail"}
        worse["controls"] = tuple(c.model_copy(update={"status": worst[c.status]}) for c in values["controls"])
    else:
        worse["insufficient_checks"] = ("memory", "drift")
    assert RANK[decide(build(worse)).decision] <= RANK[decide(build(values)).decision]


@settings(max_examples=100, deadline=None)
@given(any_evidence(), st.sampled_from(["baselines", "controls"]))
def test_decide_on_less_evidence_rejects(values, field):
    found = build(values)
    for position in range(len(getattr(found, field))):
        rest = getattr(found, field)[:position] + getattr(found, field)[position + 1 :]
        assert decide(found.model_copy(update={field: rest})).decision == "reject"


@settings(max_examples=100, deadline=None)
@given(any_evidence())
def test_decide_is_a_function_of_its_evidence(values):
    found = decide(build(values))
    again = decide(PromotionEvidence.model_validate_json(build(values).model_dump_json()))
    assert found == again
    assert all(reason.endswith(".") for reason in (*found.reasons, *found.held_back_by))
    assert bool(found.held_back_by) == (found.decision != "promote")


@settings(max_examples=100, deadline=None)
@given(any_evidence(), INTERVALS)
def test_decide_never_decides_by_what_the_baselines_themselves_are_worth(values, interval):
    told = build(values).model_copy(update={"baseline_gains": (gain("linear", *interval),)})
    assert decide(told).decision == decide(build(values)).decision


@pytest.mark.parametrize("kind", [Multiclass(("a", "b", "c")), Regression(), Regression((0.1, 0.9))])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"prior": (-0.03, -0.01)},
        {"prior": (-0.01, 0.01)},
        {"linear": (-0.02, -0.006)},
        {"linear": (-0.02, 0.01)},
        {"linear": (-0.004, -0.001)},
        {"baselines": ()},
        {"baseline_gains": (gain("linear", -0.01, 0.01),)},
    ],
)
def test_decide_decides_alike_for_every_kind_and_says_it_in_its_words(kind, changed):
    binary, found = decide(evidence(**changed)), decide(evidence(**changed, words=kind.words))
    assert found.decision == binary.decision
    binary_words = BINARY.words
    as_said = [
        reason.replace(binary_words.linear, kind.words.linear)
        .replace(binary_words.linear.capitalize(), kind.words.linear.capitalize())
        .replace(binary_words.prior, kind.words.prior)
        for reason in binary.reasons
    ]
    assert list(found.reasons) == as_said
    assert found.headline == binary.headline.replace(binary_words.linear, kind.words.linear)


def test_decide_of_numbers_names_ridge_regression_and_the_constant():
    told = " ".join(decide(evidence(words=Regression().words)).reasons)
    assert "ridge regression" in told
    assert "best constant answer" in told
    assert "logistic" not in told
    assert "label prior" not in told


@pytest.mark.parametrize(
    ("metric", "values", "told"),
    [
        ("rmse", (41.2, 43.4), "RMSE gain +42.30 [+41.20, +43.40], 30 groups"),
        ("squared_error", (1204.0, 1300.5), "squared error gain +1,252 [+1,204, +1,300], 30 groups"),
        ("r2", (0.011, 0.021), "R² gain +0.0160 [+0.0110, +0.0210], 30 groups"),
        ("mae", (2e-6, 4e-6), "MAE gain +0.00000300 [+0.00000200, +0.00000400], 30 groups"),
        ("recall[on_time]", (0.01, 0.03), "recall of on_time gain +0.0200 [+0.0100, +0.0300], 30 groups"),
        ("pinball[0.9]", (0.2, 0.8), "pinball loss of the 0.9 quantile gain +0.50 [+0.20, +0.80], 30 groups"),
    ],
)
def test_decide_tells_a_gain_in_the_metrics_own_name_and_size(metric, values, told):
    gains = tuple(Comparison(reference=name, metric=metric, gain=estimate(*values)) for name in ("prior", "linear"))
    found = decide(evidence(metric=metric, baselines=gains))
    assert found.decision == "promote"
    assert f"Better than the label prior: {told}." in found.reasons


def test_decide_tells_a_guardrail_on_a_quantile_in_words():
    bound = Guardrail(metric="coverage[0.9]", at_least=0.85)
    measured = [Metric(model="candidate", metric="coverage[0.9]", estimate=estimate(0.86, 0.94), rows=900)]
    found = decide(evidence(guardrails=guardrail_results([bound], measured, "candidate")))
    assert "Guardrail kept: coverage of the 0.9 quantile 0.9000 [0.8600, 0.9400], at least 0.85." in found.reasons


def sliced(
    at_most=None, margin=None, then: Any = "shadow", *, found=None, over=None, told=""
) -> tuple[SliceResult, ...]:
    """A slice with a bound on a loss or a margin to the champion, and what was measured of it."""
    declared = SliceSpec(where="night == True", at_most=at_most, champion_margin=margin, on_underpowered=then)
    return (
        SliceResult(
            slice="night", declared=declared, rows=300, groups=30, metric="log_loss", told=told,
            estimate=estimate(*found) if found else None, gain=estimate(*over) if over else None,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("then", ["block", "shadow", "warn"])
@pytest.mark.parametrize(
    ("measured", "shows"),
    [
        ({"at_most": 0.4, "found": (0.2, 0.3)}, "kept"),
        ({"at_most": 0.4, "found": (0.2, 0.4)}, "kept"),
        ({"at_most": 0.4, "found": (0.3, 0.5)}, "nothing"),
        ({"at_most": 0.4, "found": (0.41, 0.5)}, "broken"),
        ({"at_most": 0.4, "told": "3 groups, fewer than 8"}, "nothing"),
        ({"at_most": 0.4, "found": (NAN, NAN)}, "nothing"),
        # No spread: a few events look like that as well as a sure thing.
        ({"at_most": 0.4, "found": (0.2, 0.2)}, "nothing"),
        ({"margin": 0.02, "over": (-0.01, 0.01)}, "kept"),
        ({"margin": 0.02, "over": (-0.02, 0.01)}, "nothing"),
        ({"margin": 0.02, "over": (-0.05, 0.01)}, "nothing"),
        ({"margin": 0.02, "over": (-0.05, -0.03)}, "broken"),
        ({"margin": 0.02, "told": "3 groups, fewer than 8"}, "nothing"),
        # A gain that is the same in all groups, though it lies on the right side.
        ({"margin": 0.02, "over": (0.0, 0.0)}, "nothing"),
        ({"margin": 0.02, "over": (-0.03, -0.03)}, "nothing"),
    ],
)
def test_a_slice_decides_as_declared(measured, shows, then):
    under = {"block": "reject", "shadow": "shadow", "warn": "promote"}[then]
    wanted = {"kept": "promote", "broken": "reject", "nothing": under}[shows]
    found = decide(evidence(champion=(0.001, 0.01), slices=sliced(then=then, **measured)))
    assert found.decision == wanted
    assert any("slice" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ((-0.05, -0.01), "Worse than the champion on a slice, and not shown to be so within its margin: "),
        ((-0.05, 0.01), "Not shown to be as good as the champion on a slice: "),
    ],
)
def test_a_slice_that_is_worse_for_certain_is_told_as_worse(over, told):
    found = decide(evidence(champion=(0.001, 0.01), slices=sliced(margin=0.02, over=over)))
    assert found.decision == "shadow"
    assert found.reasons[0].startswith(told)


def test_a_margin_to_the_champion_asks_nothing_of_a_first_model():
    assert decide(evidence(slices=sliced(margin=0.02))).decision == "promote"


def test_a_slice_lifts_no_other_rule():
    kept = sliced(at_most=0.4, found=(0.2, 0.3))
    assert decide(evidence(prior=(-0.03, -0.01), slices=kept)).decision == "reject"


def test_a_guardrail_of_an_interval_without_width_is_not_judged():
    assert decide(evidence(rules=[("at_least", 0.6, 0.9, 0.9)])).decision == "shadow"
    assert decide(evidence(rules=[("at_least", 0.95, 0.9, 0.9)])).decision == "reject"


@pytest.mark.parametrize("value", [0.01, 0.0, -0.03])
@pytest.mark.parametrize("purpose", ["improve", "refresh"])
@pytest.mark.parametrize("where", ["prior", "linear", "champion"])
def test_a_gain_of_an_interval_without_width_shows_nothing(where, purpose, value):
    values = {"champion": (0.001, 0.01), where: (value, value), "purpose": purpose}
    found = decide(evidence(**values))
    assert found.decision == "shadow"
    assert "an interval of width 0" in found.reasons[0]
    assert found.headline in ("", "not measurably better than logistic regression")


def spread_of(sd: float | None, by_rows=(0.001, 0.01), reference: str = "champion") -> Comparison:
    """A gain of which the rows alone show that it is above 0, with the spread of three seeds."""
    losses = (0.4, 0.4 + sd, 0.4 - sd) if sd is not None else (0.4, None, 0.4)
    trained = [
        SeedResult(seed=place, val_loss=0.4, resumed_from_step=0, validated={} if loss is None else {"log_loss": loss})
        for place, loss in enumerate(losses)
    ]
    return with_seeds(gain(reference, *by_rows), trained)


def test_a_spread_of_seeds_that_is_larger_than_the_gain_is_shadow_and_a_small_one_is_not():
    def judged(comparison: Comparison):
        return decide(evidence(champion=(0.001, 0.01), champion_comparison=comparison))

    assert judged(gain("champion", 0.001, 0.01)).decision == "promote"
    assert judged(spread_of(0.0001)).decision == "promote"
    found = judged(spread_of(0.02))
    assert found.decision == "shadow"
    assert "with the spread between 3 seeds, sd 0.0200; without it" in found.reasons[0]
    # What the seeds leave open, no number of groups shows.
    assert "not more rows" in found.held_back_by[0]


@pytest.mark.parametrize("reference", ["prior", "linear", "champion"])
def test_a_spread_of_seeds_takes_away_no_rejection(reference):
    worse = spread_of(0.2, (-0.062, -0.038), reference)
    assert worse.gain.low < 0 < worse.gain.high
    baselines = [worse if name == reference else gain(name, 0.01, 0.03) for name in ("prior", "linear")]
    champion = worse if reference == "champion" else gain("champion", 0.001, 0.01)
    found = decide(evidence(baselines=tuple(baselines), champion=(0.001, 0.01), champion_comparison=champion))
    assert found.decision == "reject"
    assert "log loss gain -0.0500 [-0.0620, -0.0380], 30 groups" in found.reasons[0]


def test_a_spread_of_seeds_that_is_not_known_is_shadow_and_says_why():
    found = decide(evidence(champion=(0.001, 0.01), champion_comparison=spread_of(None)))
    assert found.decision == "shadow"
    assert "1 of 3 seeds have no log loss of calibrated answers" in found.reasons[0]


def test_the_method_of_an_interval_is_told_where_it_is_not_the_usual_one():
    exact = estimate(0.001, 0.01).model_copy(
        update={"method": "score", "made": "Tango's score interval, 37 effective of 80 rows"}
    )
    comparison = Comparison(reference="champion", metric="log_loss", gain=exact)
    found = decide(evidence(champion=(0.001, 0.01), champion_comparison=comparison))
    assert any("(Tango's score interval, 37 effective of 80 rows)" in reason for reason in found.reasons)
    assert not any("t by group" in reason for reason in found.reasons)


def test_guardrail_on_the_calibration_error_is_judged_without_what_chance_adds():
    bound = Guardrail(metric="calibration_error", at_most=0.02)
    plain = Metric(model="candidate", metric="calibration_error", estimate=estimate(0.021, 0.05), rows=900)
    near = Calibration(model="candidate", claim="label 1", rows=900, groups=30, error=estimate(0.0, 0.015))
    far = near.model_copy(update={"claim": "label 2", "error": estimate(0.03, 0.06)})
    unmeasured = near.model_copy(update={"error": None})

    def judged(*calibrations: Calibration) -> str:
        return decide(evidence(guardrails=guardrail_results([bound], [plain], "candidate", calibrations))).decision

    assert judged(near) == "promote"
    # Every claim has to keep it; without claims the plain one stands.
    assert judged(near, far) == judged() == "reject"
    assert judged(near, unmeasured) == judged(unmeasured) == "reject"
    others = guardrail_results([bound], [plain], "candidate", [near.model_copy(update={"model": "prior"})])
    assert others[0].estimate == plain.estimate


def disparity(values: int = 3, widest=(0.01, 0.08), surest=None) -> Disparity:
    """Of values 0, 1, …, all with a rate; the widest pair, and the surest one where it is another."""
    rates = tuple(RateOfValue(value=str(n), rows=900, groups=30, rate=estimate(0.2, 0.3)) for n in range(values))
    pairs = [PairDifference(highest="0", lowest="1", difference=estimate(*one)) for one in (widest, surest or widest)]
    return Disparity(
        model="candidate", column="region", claim="label 1", rate="selection_rate", values=rates, highest="0",
        lowest="1", difference=pairs[1].difference, widest=pairs[0], surest=pairs[1],
    )  # fmt: skip


def changed(found: Disparity, **values: Any) -> Disparity:
    return found.model_copy(update=values)


def limited(*found: Disparity, columns: tuple[str, ...] = ("region",)) -> PromotionEvidence:
    return evidence(disparities=found, difference_limits={"selection_rate": 0.1}, protected_columns=columns)


FEW = RateOfValue(value="x", rows=5, groups=2, reason="5 rows, fewer than 100")


@pytest.mark.parametrize(
    ("found", "decision"),
    [
        (disparity(), "promote"),
        (disparity(widest=(0.05, 0.15)), "shadow"),
        (disparity(widest=(0.2, 0.3)), "reject"),
        # The extremes keep it, and another pair reaches beyond.
        (disparity(widest=(-0.1, 0.2), surest=(0.07, 0.09)), "shadow"),
        # A pair is surely beyond, and another one reaches farther.
        (disparity(widest=(0.05, 0.9), surest=(0.2, 0.3)), "reject"),
        (changed(disparity(), difference=None, widest=None, surest=None, reason="one value"), "shadow"),
        (changed(disparity(), widest=None), "shadow"),
        # Rates that are the same in all groups have a widest pair, and no difference that would be told with a width.
        (changed(disparity(), difference=None, surest=None), "promote"),
        (changed(disparity(), values=(*disparity().values, FEW)), "shadow"),
        (changed(disparity(), other_values=2, other_rows=9), "shadow"),
        # Records that name no pairs have the extremes.
        (changed(disparity(values=2), widest=None, surest=None), "promote"),
        (changed(disparity(values=3), widest=None, surest=None), "shadow"),
        (changed(disparity(widest=(0.2, 0.3)), widest=None, surest=None), "reject"),
    ],
)
def test_limit_of_fairness_is_kept_by_all_pairs_of_all_values(found, decision):
    assert decide(limited(found)).decision == decision
    # Without a limit it is told and decides nothing.
    assert decide(evidence(disparities=(found,))).decision == "promote"


@pytest.mark.parametrize(("declared", "decision"), [("block", "reject"), ("shadow", "shadow"), ("warn", "promote")])
def test_limit_of_fairness_that_too_few_rows_tell_of_decides_as_declared(declared, decision):
    small = changed(disparity(), values=(*disparity().values, FEW))
    unmeasured = changed(disparity(), difference=None, widest=None, surest=None, reason="one value")
    for found in (small, unmeasured, disparity(widest=(0.05, 0.15))):
        judged = decide(limited(found).model_copy(update={"on_underpowered_difference": declared}))
        assert judged.decision == decision
        (told,) = [reason for reason in judged.reasons if "selection rate by region" in reason]
        assert ("on_underpowered" in told) == (declared != "shadow")
    # What is surely beyond is no question of rows, and what is kept is kept.
    for found, expected in ((disparity(widest=(0.2, 0.3)), "reject"), (disparity(), "promote")):
        update = {"on_underpowered_difference": declared}
        assert decide(limited(found).model_copy(update=update)).decision == expected


def test_headline_about_logistic_regression_stands_beside_no_decision_that_has_another_reason():
    near = (gain("prior", 0.01, 0.03), gain("linear", -0.001, 0.002))
    assert decide(evidence(baselines=near)).headline == "not measurably better than logistic regression"
    broken = guardrails([("at_most", 0.05, 0.2, 0.3)])
    found = decide(evidence(baselines=near, guardrails=broken))
    assert (found.decision, found.headline) == ("reject", "")
    assert any("logistic regression" in reason for reason in found.reasons)
    far = (gain("prior", 0.01, 0.03), gain("linear", -0.03, -0.01))
    assert decide(evidence(baselines=far, guardrails=broken)).headline == "worse than logistic regression"


def test_held_back_reasons_of_a_rejection_tell_which_of_them_alone_would_allow_shadow():
    few = disparity(widest=(0.05, 0.15))
    broken = guardrails([("at_most", 0.05, 0.2, 0.3)])
    rejecting, shadowing = decide(limited(few).model_copy(update={"guardrails": broken})).held_back_by
    assert rejecting.startswith("Guardrail broken")
    assert "this alone" not in rejecting
    assert shadowing.endswith("; this alone would allow shadow.")
    (alone,) = decide(limited(few)).held_back_by
    assert "this alone" not in alone


def test_limit_of_fairness_that_nothing_was_measured_for_is_not_kept():
    assert decide(limited()).decision == "shadow"
    assert decide(limited(disparity(), columns=("region", "age"))).decision == "shadow"
    assert decide(limited(changed(disparity(), rate="true_positive_rate"))).decision == "shadow"
    with pytest.raises(ValidationError):
        limited(disparity(), columns=())


def test_limit_of_fairness_is_broken_only_beyond_what_the_choice_of_two_among_many_values_makes():
    def judged(values: int) -> str:
        return decide(limited(disparity(values, widest=(0.102, 0.2)))).decision

    assert (judged(2), judged(15)) == ("reject", "shadow")


def test_a_changed_limit_is_told_with_who_changed_it_and_decides_nothing():
    change = ChangedLimit(key="guardrails[auc].at_least", before="0.65", now="0.5", by="commit abc1234 by A. Person")
    found = decide(evidence(changed_limits=(change,)))
    assert found.decision == "promote"
    (told,) = [reason for reason in found.reasons if "guardrails[auc]" in reason]
    assert all(word in told for word in ("0.65", "0.5", "abc1234", "A. Person"))


def test_declared_behaviour_decides_as_it_was_measured():
    test = BehaviourSpec(column="shop", invariant_to="swapped", at_most=0.05)

    def judged(*results: BehaviourResult) -> Decision:
        return decide(evidence(behaviour=results, behaviour_tests=(test,)))

    def measured(low: float, high: float) -> BehaviourResult:
        return BehaviourResult(declared=test, measure="flip_rate", rows=900, estimate=estimate(low, high))

    assert judged(measured(0.0, 0.04)).decision == "promote"
    assert judged(measured(0.04, 0.06)).decision == "shadow"
    rejected = judged(measured(0.06, 0.08))
    assert rejected.decision == "reject"
    assert rejected.reasons[0].startswith(
        "Test of behaviour failed: unchanged when shop is swapped; share of decisions"
    )
    assert judged().decision == "shadow"
    # Without a declared test nothing is asked.
    assert decide(evidence(behaviour=(measured(0.06, 0.08),))).decision == "promote"


@pytest.mark.parametrize(
    ("undefined", "told"),
    [
        (
            {"precision": "no row is decided 1"},
            "The guardrail on precision was not measured (no row is decided 1): decide from a lower threshold",
        ),
        ({}, "The guardrail on precision was not measured: evaluate again."),
    ],
)
def test_guardrail_whose_metric_has_no_value_says_why_and_what_helps(undefined, told):
    bound = Guardrail(metric="precision", at_least=0.5)
    found = decide(evidence(guardrails=guardrail_results([bound], [], "candidate", undefined=undefined)))
    assert found.decision == "reject"
    assert found.reasons[0].startswith(told)
    assert ("evaluate again" in found.reasons[0]) == (not undefined)
