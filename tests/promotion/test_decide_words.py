"""In which words decide() gives its reasons, which come first, and what each lacks."""

from datetime import date

import pytest
from decided import disparity, estimate, evidence, gain, guardrails, limited, measured, with_control

from trainworthy.lifecycle.promotion.decide import decide
from trainworthy.lifecycle.promotion.evidence import guardrail_results
from trainworthy.lifecycle.promotion.finding import Window
from trainworthy.lifecycle.promotion.history import RolledBack
from trainworthy.lifecycle.protocol.figures import (
    Comparison,
    Estimate,
    Metric,
)
from trainworthy.lifecycle.protocol.suite import ChangedLimit
from trainworthy.lifecycle.spec.benchmark import Guardrail
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import without_spread
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.regression import Regression

OFF = RolledBack(model_version="4", to_version="3", at="2026-11-21T13:51:00+00:00", reason="answers were late")
UNSCORED = {"champion": (0.001, 0.01), "champion_comparison": None, "champion_error": "column fare is missing"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (UNSCORED, "The champion flights/3 could not be scored on this benchmark: column fare is missing; nothing was"),
        ({"rolled_back": OFF}, "Version 4 was rolled back on 2026-11-21: answers were late."),
        (
            {"insufficient_checks": ("memory", "drift")},
            "Earlier checks were inconclusive, which allows shadow at most: d",
        ),
        ({"open_questions": ("3 of 4 inputs were never reviewed",)}, "3 of 4 inputs were never reviewed."),
        ({"rules": [("at_least", 0.6, 0.55, 0.75)]}, "Guardrail not safely kept: AUC 0.6500 [0.5500"),
    ],
)
def test_decide_says_with_its_figures_what_held_the_model_back(changed, said):
    assert decide(evidence(**changed)).reasons[0].startswith(said)


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


def test_decide_puts_what_held_the_model_back_first():
    found = decide(evidence(prior=(-0.01, 0.01), controls=with_control("cost", "fail")))
    assert found.decision == "reject"
    assert found.codes[:2] == ("control.cost.fail", "prior.not_shown")
    assert found.controls == with_control("cost", "fail")


@pytest.mark.parametrize(
    ("changed", "lacks"),
    [
        # (0.0053 / (-0.0003 + the margin 0.005))² × 21 = 26.7
        (
            {"linear": (-0.0003, 0.0053, 21)},
            "21 groups; if the value holds, about 27 groups would show that it suffices.",
        ),
        ({"linear": (-0.006, 0.0053, 21)}, "; as measured, a better model is needed, not more benchmark rows."),
        # (0.0042 / 0.0012)² × 61 = 747.25
        (
            {"prior": (0.0012, 0.0042, 61)},
            "61 groups; if the value holds, about 750 groups would show that it suffices.",
        ),
        ({"prior": (0.0001, 0.0042, 61)}, "; as measured, a better model is needed, not more benchmark rows."),
        (
            {"champion": (0.0012, 0.0042, 61)},
            "may be chance; if the value holds, about 750 groups would show that it suffices.",
        ),
        # (0.0082 / (0.0012 + the margin 0.005))² × 61 = 106.7
        (
            {"champion": (0.0012, 0.0082, 61), "purpose": "refresh"},
            "margin of 0.005 or more; if the value holds, about 110 groups would show that it suffices.",
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
        "about 750 groups would show that it suffices; at its pace a benchmark window of 736 days holds them, from "
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
    assert far.endswith("at most 0.05; as measured, a better model is needed, not more benchmark rows.")
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
    assert found.held_back_by[0].endswith("if the value holds, about 190 groups would show that it suffices.")


def test_decide_names_inputs_that_were_accepted_without_a_review_and_why():
    told = "3 of 4 inputs were accepted without a review: all come from the order form"
    assert decide(evidence(accepted=told)).reasons[1] == f"{told}."


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


def test_the_method_of_an_interval_is_told_where_it_is_not_the_usual_one():
    exact = estimate(0.001, 0.01).model_copy(
        update={"method": "score", "made": "Tango's score interval, 37 effective of 80 rows"}
    )
    comparison = Comparison(reference="champion", metric="log_loss", gain=exact)
    found = decide(evidence(champion=(0.001, 0.01), champion_comparison=comparison))
    assert any("(Tango's score interval, 37 effective of 80 rows)" in reason for reason in found.reasons)
    assert not any("t by group" in reason for reason in found.reasons)


def test_headline_about_logistic_regression_stands_beside_no_decision_that_has_another_reason():
    near = (gain("prior", 0.01, 0.03), gain("linear", -0.001, 0.002))
    assert decide(evidence(baselines=near)).headline == "not measurably better than logistic regression"
    broken = guardrails([("at_most", 0.05, 0.2, 0.3)])
    found = decide(evidence(baselines=near, guardrails=broken))
    assert (found.decision, found.headline) == ("reject", "")
    assert any("logistic regression" in reason for reason in found.reasons)
    far = (gain("prior", 0.01, 0.03), gain("linear", -0.03, -0.01))
    assert decide(evidence(baselines=far, guardrails=broken)).headline == "worse than logistic regression"


@pytest.mark.parametrize(
    ("boosted", "headline"),
    [
        ((-0.04, -0.03), "worse than gradient boosting"),
        # By less than the margin that counts, and not shown.
        ((-0.0015, -0.0005), ""),
        ((-0.04, 0.01), ""),
    ],
)
def test_headline_says_that_trees_are_better_by_more_than_the_margin(boosted, headline):
    sound = (gain("prior", 0.05, 0.07), gain("linear", 0.01, 0.02))
    found = decide(evidence(baselines=(*sound, gain("gradient_boosting", *boosted))))
    assert (found.decision, found.headline) == ("promote", headline)
    near = (gain("prior", 0.05, 0.07), gain("linear", -0.001, 0.002), gain("gradient_boosting", -0.04, -0.03))
    both = "not measurably better than logistic regression and worse than gradient boosting"
    assert decide(evidence(baselines=near)).headline == both


def test_held_back_reasons_of_a_rejection_tell_which_of_them_alone_would_allow_shadow():
    few = disparity(widest=(0.05, 0.15))
    broken = guardrails([("at_most", 0.05, 0.2, 0.3)])
    rejecting, shadowing = decide(limited(few).model_copy(update={"guardrails": broken})).held_back_by
    assert rejecting.startswith("Guardrail broken")
    assert "this alone" not in rejecting
    assert shadowing.endswith("; this alone would allow shadow.")
    (alone,) = decide(limited(few)).held_back_by
    assert "this alone" not in alone


def test_a_changed_limit_is_told_with_who_changed_it_and_decides_nothing():
    change = ChangedLimit(key="guardrails[auc].at_least", before="0.65", now="0.5", by="commit abc1234 by A. Person")
    found = decide(evidence(changed_limits=(change,)))
    assert found.decision == "promote"
    (told,) = [reason for reason in found.reasons if "guardrails[auc]" in reason]
    assert all(word in told for word in ("0.65", "0.5", "abc1234", "A. Person"))


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
