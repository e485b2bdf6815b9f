"""promote, shadow or reject: what decide() makes of each piece of evidence."""

from pathlib import Path

import pytest
from decided import INF, NAN, estimate, evidence, gain, with_control
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.evaluation.seed_spread import with_seeds
from trainworthy.lifecycle.promotion.decide import check_first_model, decide
from trainworthy.lifecycle.promotion.evidence import CONTROLS, PromotionEvidence, guardrail_results
from trainworthy.lifecycle.promotion.history import RolledBack
from trainworthy.lifecycle.protocol.figures import (
    Calibration,
    Comparison,
    Metric,
)
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.spec.benchmark import Guardrail

RANK = {"reject": 0, "shadow": 1, "promote": 2}
OFF = RolledBack(model_version="4", to_version="3", at="2026-11-21T13:51:00+00:00", reason="answers were late")


@pytest.mark.parametrize(
    ("changed", "decision", "first"),
    [
        ({}, "promote", "champion.first"),
        ({"prior": (-0.03, -0.01)}, "reject", "prior.worse"),
        ({"prior": (-0.01, 0.01)}, "shadow", "prior.not_shown"),
        ({"prior": (0.0, 0.01)}, "shadow", "prior.not_shown"),
        ({"linear": (-0.02, -0.006)}, "reject", "linear.worse"),
        ({"linear": (-0.02, 0.01)}, "shadow", "linear.not_shown"),
        ({"linear": (-0.004, 0.01)}, "promote", "champion.first"),
        ({"linear": (-0.004, -0.001)}, "promote", "champion.first"),
        ({"champion": (0.001, 0.01)}, "promote", "champion.good_enough"),
        ({"champion": (-0.001, 0.01)}, "shadow", "champion.not_shown"),
        ({"champion": (0.0, 0.01)}, "shadow", "champion.not_shown"),
        ({"champion": (-0.01, -0.001)}, "reject", "champion.worse"),
        ({"champion": (-0.001, 0.01), "purpose": "refresh"}, "promote", "champion.good_enough"),
        ({"champion": (-0.004, -0.001), "purpose": "refresh"}, "promote", "champion.good_enough"),
        ({"champion": (-0.005, 0.01), "purpose": "refresh"}, "shadow", "champion.not_shown"),
        ({"champion": (-0.02, -0.006), "purpose": "refresh"}, "reject", "champion.worse"),
        (
            {"champion": (0.001, 0.01), "champion_comparison": None, "champion_error": "column fare is missing"},
            "shadow",
            "champion.not_scored",
        ),
        ({"champion": (0.001, 0.01), "champion_comparison": None, "prior": (-0.03, -0.01)}, "reject", "prior.worse"),
        ({"champion": (0.001, 0.01), "first_model": True}, "reject", "champion.exists"),
        ({"rolled_back": OFF}, "reject", "model.rolled_back"),
        ({"rolled_back": OFF, "prior": (-0.03, -0.01)}, "reject", "model.rolled_back"),
        ({"first_model": False}, "reject", "champion.missing"),
        ({"rules": [("at_least", 0.6, 0.65, 0.75)]}, "promote", "champion.first"),
        ({"rules": [("at_least", 0.6, 0.55, 0.75)]}, "shadow", "guardrail.not_shown"),
        ({"rules": [("at_least", 0.6, 0.45, 0.55)]}, "reject", "guardrail.broken"),
        ({"rules": [("at_most", 0.6, 0.45, 0.55)]}, "promote", "champion.first"),
        ({"rules": [("at_most", 0.6, 0.55, 0.65)]}, "shadow", "guardrail.not_shown"),
        ({"rules": [("at_most", 0.6, 0.65, 0.75)]}, "reject", "guardrail.broken"),
        (
            {"insufficient_checks": ("memory", "drift")},
            "shadow",
            "checks.insufficient",
        ),
        ({"open_questions": ("3 of 4 inputs were never reviewed",)}, "shadow", "checks.open_question"),
        (
            {"accepted": "3 of 4 inputs were accepted without a review: a test"},
            "promote",
            "champion.first",
        ),
        *[({"controls": with_control(n, "fail")}, "reject", f"control.{n}.fail") for n in CONTROLS],
        *[({"controls": with_control(n, "insufficient")}, "shadow", f"control.{n}.insufficient") for n in CONTROLS],
        *[
            ({"controls": tuple(c for c in with_control("", "pass") if c.name != n)}, "reject", f"control.{n}.missing")
            for n in CONTROLS
        ],
    ],
)
def test_decide_by_the_table(changed, decision, first):
    found = decide(evidence(**changed))
    assert found.decision == decision
    assert found.codes[0] == first
    assert len(found.codes) == len(found.reasons)


@pytest.mark.parametrize("bad", [(NAN, NAN), (NAN, 0.02), (0.01, INF), (-INF, INF), (0.02, 0.01)])
@pytest.mark.parametrize("where", ["prior", "linear", "champion"])
def test_decide_on_a_gain_that_is_not_finite_rejects(where, bad):
    found = decide(evidence(**{where: bad}))
    assert found.decision == "reject"
    assert found.codes[0] == f"{where}.not_measured"


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
        assert (found.decision, found.codes[0]) == ("reject", "guardrail.not_measured")


@pytest.mark.parametrize("margin", [0.0, -0.1, NAN, INF])
def test_evidence_with_a_useless_margin_is_refused(margin):
    with pytest.raises(ValidationError):
        evidence(margin=margin)


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
    ("trees", "words", "stands"),
    [
        ((-0.9, -0.8), "Worse than gradient boosting: log loss gain", "worse"),
        ((-0.1, 0.1), "Not measurably better than gradient boosting", "compared"),
        ((0.1, 0.2), "Better than gradient boosting", "compared"),
        ((NAN, 0.2), "The gain over gradient boosting was not measured", "not_measured"),
    ],
)
def test_decide_tells_of_gradient_boosting_and_does_not_gate_on_it(trees, words, stands):
    baselines = (*evidence().baselines, gain("gradient_boosting", *trees))
    found = decide(evidence(baselines=baselines))
    assert found.decision == "promote"
    reason = found.reasons[found.codes.index(f"gradient_boosting.{stands}")]
    assert reason.startswith(words)


@pytest.mark.parametrize("declared", [True, False])
def test_check_first_model_agrees_or_raises(declared):
    check_first_model(Path("flights"), declared, None if declared else "flights/3")
    fix = "leave first_model out" if declared else r"train flights -c FILE, where FILE holds .*\"first_model\": true"
    with pytest.raises(ChampionError, match=fix):
        check_first_model(Path("flights"), declared, "flights/3" if declared else None)


def test_check_first_model_names_the_run_config_that_lies_in_the_use_case(tmp_path, monkeypatch):
    folder = tmp_path / "use_cases" / "flights"
    folder.mkdir(parents=True)
    (folder / "first_model.yaml").write_text("")
    with pytest.raises(ChampionError, match=rf"trainworthy train flights -c {folder}/first_model.yaml$"):
        check_first_model(folder, False, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChampionError, match=r"trainworthy train flights -c use_cases/flights/first_model.yaml$"):
        check_first_model(folder, False, None)


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
    assert found.codes[0] == f"{where}.without_spread"
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
    assert "not more benchmark rows" in found.held_back_by[0]


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
    assert found.codes[0] == "seeds.unknown_spread"
    assert "1 of 3 seeds have no log loss of calibrated answers" in found.reasons[0]


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
