"""The check `references`: what network, trees and linear model show of a stage's rows, and what follows."""

import numpy as np
import pytest
from gated import FALLING, Answered, arm, estimate, falling, measured_of, moved, ranked_rows, references

from trainworthy.lifecycle.engine.training.judging.rise import Judge
from trainworthy.lifecycle.gates import references_check as references_module
from trainworthy.lifecycle.gates.references_check import references_check
from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.protocol.results import Arm, References
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.multilabel import Multilabel
from trainworthy.lifecycle.tasks.regression import Regression


@pytest.mark.parametrize("sureness", [0.02, 0.1, 1.0])
def test_rise_of_the_same_ranking_is_the_same_however_sure(sureness):
    labels, groups, logits = ranked_rows()
    measured = rise_of(labels, 1 / (1 + np.exp(-sureness * logits)), logits, groups)
    assert measured.network.value == pytest.approx(measured.arms[0].rise.value, rel=0.2)


def test_rise_of_a_ranking_turned_round_is_none():
    labels, groups, logits = ranked_rows()
    assert rise_of(labels, 1 / (1 + np.exp(logits)), logits, groups).network.value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", [Regression(), Regression((0.1, 0.5, 0.9))])
def test_references_of_numbers_are_told_in_their_words(kind):
    generator = np.random.default_rng(0)
    signal, groups = generator.normal(size=1120), np.repeat(np.arange(14), 80)
    labels = 40 * signal + generator.normal(size=1120)
    answers = np.stack([40 * signal] * len(kind.answer_names), axis=1)
    answers = answers if kind.quantiles else answers[:, 0]
    measured = measured_of(kind, labels, answers, answers, groups)
    check = references_check(measured, None, "cpu", (), "full")
    assert check.status == "pass"
    assert kind.words.a_row in check.evidence
    assert "ridge regression" in check.evidence
    unmoved = references_check(measured.model_copy(update={"network_loss": measured.prior_loss}), None, "cpu", ())
    assert kind.words.constant in unmoved.evidence
    for told in (check, unmoved):
        assert not {"nats", "logistic", "positives"} & set(told.evidence.split())


def of_counties(seed=0):
    """Counts of 600 places of all sizes, in groups of 20, and good answers; a few have nearly all of the squares."""
    generator = np.random.default_rng(seed)
    rates = np.exp(generator.normal(0, 3, 600))
    return generator.poisson(rates).astype(float), rates * np.exp(generator.normal(0, 0.3, 600)), np.arange(600) // 20


def test_numbers_with_a_heavy_tail_are_told_though_few_rows_have_most_of_the_squares(monkeypatch):
    labels, answers, groups = of_counties()
    kind = Regression()
    measured = measured_of(kind, labels, answers, answers, groups)
    check = references_check(measured, moved(0.2), "cpu", MANY)
    assert (check.status, measured.network.low > 0.2 * measured.label_entropy) == ("pass", True)
    nothing = measured_of(kind, labels, np.random.default_rng(1).permutation(answers), answers, groups)
    assert nothing.network.low <= 0
    monkeypatch.setattr(Regression, "tamed", lambda self, labels: lambda values: values)
    assert measured_of(kind, labels, answers, answers, groups).network.low <= 0


def test_taming_keeps_the_order_and_the_middle_as_it_is():
    labels = np.array([-3.0, -1.0, 0.0, 1.0, 3.0, 1e6])
    tamed = Regression().tamed(labels)(labels)
    assert (np.diff(tamed) > 0).all()
    assert np.isfinite(tamed).all()
    assert Regression().tamed(np.zeros(4))(np.array([0.0, 1.0])).tolist() == [0.0, pytest.approx(np.arcsinh(1.0))]
    assert Multiclass((1, 2)).tamed(labels)(labels) is labels


def test_groups_of_one_label_are_exchanged_with_each_other():
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 25)
    labels = (groups // 2 % 2).astype(float)
    sure = np.clip(0.2 + 0.6 * labels + 0.1 * generator.normal(size=1000), 0.01, 0.99)
    measured = measured_of(BINARY, labels, sure, sure, groups)
    assert measured.network.low > 0.1
    check = references_check(measured, moved(0.2), "cpu", MANY)
    assert check.status == "pass"
    assert "exchanging predictions between rows costs" in check.evidence
    # One label of a group differs, and the rows of all are exchanged within it, where nothing is known.
    mixed = np.where(np.arange(1000) % 25 == 0, 1 - labels, labels)
    within = measured_of(BINARY, mixed, sure, sure, groups)
    assert within.within_groups
    assert within.network.value < 0.05
    assert measured_of(BINARY, labels, generator.permutation(sure), sure, groups).network.low <= 0


@pytest.mark.parametrize("in_time", [True, False])
def test_what_tells_places_apart_counts_where_groups_have_no_order_in_time(in_time):
    generator = np.random.default_rng(0)
    places = np.repeat(generator.normal(0, 3, 60), 15)
    labels, groups = places + generator.normal(size=900), np.arange(900) // 15
    judge = Judge(Regression(), labels, groups, 0, in_time)
    rise = judge.mean(judge.scored(places).rises)
    assert (rise.low > 0.5 * judge.entropy) == (not in_time)
    # A drift in time that both follow is no knowledge of rows, and is none by groups in time.
    assert (rise.value < 0.01) == in_time
    assert judge.within_groups == in_time


def rise_of(labels, network, logits, groups) -> References:
    return measured_of(BINARY, labels, network, 1 / (1 + np.exp(-logits)), groups)


def test_references_of_a_script_fails_where_the_curve_did_not_fall_and_passes_where_training_came_before():
    flat = falling(0.69, 0.69)
    assert references_check(references(0.05, 0.05, network_loss=0.5), None, "cpu", flat).stops
    assert references_check(references(0.05, 0.05, network_loss=0.4), None, "cpu", flat).status == "pass"


MANY = tuple(point.model_copy(update={"step": 30 * point.step}) for point in FALLING)


@pytest.mark.parametrize(
    ("measured", "few_updates", "many_updates"),
    [
        (references(0.05, 0.05), "pass", "pass"),
        (references(0.05, 0.05, network_loss=0.62), "pass", "pass"),
        # Its own loss fell, and unseen rows are worse than the prior: it fits few rows too closely, or is on its way.
        (references(0.05, 0.05, network_loss=0.63), "insufficient", "fail"),
        (references(0.05, 0.05, network_loss=float("nan")), "fail", "fail"),
        (references(float("nan"), 0.05), "fail", "fail"),
        # A regression of the same rows finds what the network does not.
        (references(0.0, 0.05, stage=0.05), "insufficient", "fail"),
        (references(-0.05, 0.05, stage=0.05), "insufficient", "fail"),
        (references(0.012, 0.05, error=0.0001, stage=0.05), "insufficient", "fail"),
        (references(0.02, 0.05, error=0.011, stage=0.05), "insufficient", "insufficient"),
        (references(0.05, 0.05, label_entropy=3.0), "insufficient", "fail"),
        # As many validation rows show something, and the stage's rows do not, whatever the network ranks by luck.
        (references(0.0, 0.05, stage=0.0), "fail", "fail"),
        (references(0.03, 0.05, stage=0.0), "fail", "fail"),
        (references(0.0, 0.05, error=0.02, stage=0.0), "insufficient", "insufficient"),
        # Nothing to find, or too few rows to say so.
        (references(0.05, 0.0), "pass", "pass"),
        (references(0.0, 0.0), "fail", "fail"),
        (references(0.0, 0.0, error=0.01), "insufficient", "insufficient"),
        (references(0.006, 0.0, error=0.003), "insufficient", "insufficient"),
    ],
)
def test_references_is_judged_by_size_significance_rows_and_updates(measured, few_updates, many_updates):
    for curve, status in ((FALLING, few_updates), (MANY, many_updates)):
        check = references_check(measured, moved(0.2), "cpu", curve)
        assert check.status == status
        assert check.stops == (status == "fail")
        assert bool(check.fix) == (status != "pass")


@pytest.mark.parametrize(
    ("progress", "status"),
    [
        (moved(0.2), "pass"), (moved(0.008), "pass"),
        # At this pace a whole training would lower it by enough: the next stage asks again.
        (moved(0.002), "insufficient"), (moved(0.002, share=1.0), "fail"),
        # A fall that the rows leave uncertain is no proof of none, at full as well.
        (moved(0.02, share=1.0).model_copy(update={"fall": estimate(0.02, 0.011)}), "insufficient"),
        (moved(1e-6), "fail"), (moved(-0.002), "fail"), (moved(-0.1), "fail"),
        # Weights that another seed brings as well were trained before, and need not move.
        (moved(1e-6, untrained=0.4), "pass"), (moved(-0.1, untrained=0.4), "fail"),
    ],
)  # fmt: skip
def test_references_asks_how_far_the_training_lowered_its_own_loss(progress, status):
    assert references_check(references(0.05, 0.05, stage=0.05), progress, "cpu", FALLING).status == status


def behind(share: float, inputs: str = "columns", loss: float = 0.2) -> Arm:
    """Trees of the stage's rows that the network lies behind by a share of what is to explain, 0.5."""
    return arm(
        0.2, reference="gradient_boosting", fitted_on="stage", inputs=inputs, loss=loss, behind=estimate(0.5 * share)
    )


@pytest.mark.parametrize(
    ("arms", "code"),
    [
        ((behind(0.02),), ""), ((behind(0.4),), "less"),
        # The same trees of the network's tensors know as much, or lack most of what the network lacks.
        ((behind(0.4), behind(0.4, "tensors", 0.21)), "less"),
        ((behind(0.4), behind(0.0, "tensors", 0.39)), "less_inputs"),
    ],
)  # fmt: skip
def test_network_that_is_measurably_worse_than_a_reference_is_warned_of_with_its_price(arms, code):
    measured = references(0.05, 0.05, stage=0.05, arms=arms)
    check = references_check(measured, moved(0.2), "cpu", MANY)
    assert (check.code, check.stops) == (code, False)
    assert (check.status, check.severity) == (("fail", "warning") if code else ("pass", "error"))
    assert check.fix == (fix_of("references", code) if code else "")
    assert check.observed == pytest.approx(0.4 if code else 0.05)
    # Too few updates tell nothing of it, and neither do smoke's few rows.
    assert references_check(measured, moved(0.2), "cpu", FALLING).status == "pass"
    assert references_check(measured, moved(0.2), "cpu", MANY, "smoke").status == "pass"


@pytest.mark.parametrize(("of_tensors", "code"), [(0.21, "network"), (0.39, "inputs")])
def test_network_that_finds_nothing_is_told_where_a_reference_finds_it(of_tensors, code):
    arms = (behind(0.4), behind(0.4, "tensors", of_tensors))
    check = references_check(references(0.0, 0.05, stage=0.05, arms=arms), moved(0.2), "cpu", MANY)
    assert (check.status, check.code, check.stops) == ("fail", code, True)


@pytest.mark.parametrize(("of_stage", "status", "code"), [(0.0, "fail", "rows"), (0.3, "insufficient", "more")])
def test_trees_tell_of_rows_where_the_linear_model_finds_nothing_and_of_a_network_they_do_not(of_stage, status, code):
    trees = {"reference": "gradient_boosting", "error": 0.01}
    arms = (arm(0.3, **trees), arm(of_stage, fitted_on="stage", draws=5, **trees))
    check = references_check(references(0.0, 0.0, stage=0.0, arms=arms), moved(0.2), "cpu", MANY)
    assert (check.status, check.code) == (status, code)


def test_rows_that_a_reference_learns_nothing_from_are_told_before_a_loss_that_rose():
    wild = references(0.0, 0.05, stage=0.0, network_loss=0.9)
    assert references_check(wild, moved(-0.1), "cpu", MANY).code == "rows"
    sound = references(0.0, 0.05, stage=0.05, network_loss=0.9)
    assert references_check(sound, moved(-0.1), "cpu", MANY).code == "diverged"


@pytest.mark.parametrize(
    ("measured", "progress", "status"),
    [
        (references(0.05, 0.05, stage=0.05), moved(0.2), "pass"),
        # Labels of other rows are told at smoke; what few rows or updates leave open is asked again.
        (references(0.0, 0.05, stage=0.0), moved(0.2), "fail"),
        (references(0.0, 0.05, stage=0.05), moved(0.2), "insufficient"),
        (references(0.0, 0.0), moved(0.2), "insufficient"), (references(0.05, 0.05), moved(-0.1), "insufficient"),
        (references(0.05, 0.05, stage=0.05), moved(1e-7), "insufficient"),
    ],
)  # fmt: skip
def test_smoke_fails_of_rows_alone_before_there_are_enough_updates(measured, progress, status):
    check = references_check(measured, progress, "cpu", FALLING, "smoke")
    assert (check.status, check.severity) == (status, "warning" if status == "insufficient" else "error")


@pytest.mark.parametrize(
    ("own", "curve", "code", "told", "first"),
    [
        # A part that is measurable and small, after few updates: a slow start looks so as well.
        (estimate(0.01, 0.003), FALLING, "few_updates", "too small to count", "so few updates tell little"),
        (estimate(0.01, 0.003), MANY, "rows", "too small to count", "look for labels"),
        (estimate(0.0, 0.003), FALLING, "rows", "no measurable part of its own rows", "look for labels"),
    ],
)
def test_rows_that_were_not_learned_are_told_with_what_is_known(own, curve, code, told, first):
    check = references_check(references(0.05, 0.05, own=own), moved(0.2), "cpu", curve)
    assert (check.status, check.code) == ("fail", code)
    assert told in check.evidence
    assert f"in {curve[-1].step} updates" in check.evidence
    assert check.fix.startswith(first)


@pytest.mark.parametrize(
    ("own_loss", "rise", "stage", "status", "code"),
    [
        # Its own rows cost next to nothing, and what it shows of others is there: few rows, learned by heart.
        (0.01, 0.05, "smoke", "pass", ""),
        (0.01, 0.05, "pilot", "fail", "by_heart"),
        (0.01, 0.05, "full", "fail", "by_heart"),
        # It shows nothing of others: what was learned by heart tells nothing.
        (0.01, 0.0, "smoke", "insufficient", "more"),
        (0.01, 0.0, "pilot", "fail", "diverged"),
        # Its own rows cost as much as others.
        (0.7, 0.05, "pilot", "fail", "diverged"),
        (None, 0.05, "pilot", "fail", "diverged"),
    ],
)
def test_rows_that_are_known_by_heart_are_no_training_that_diverged(own_loss, rise, stage, status, code):
    measured = references(rise, 0.05, stage=0.05, network_loss=1.0).model_copy(
        update={"own_loss": own_loss, "own_prior_loss": 0.6}
    )
    check = references_check(measured, moved(0.4), "cpu", MANY, stage)
    assert (check.status, check.code) == (status, code)
    assert check.stops == (code in ("network", "diverged"))
    if code == "by_heart":
        assert "0.0100 on rows that it learned from and 1.0000 on validation" in check.evidence
        assert (check.severity, check.observed) == ("warning", 1.0)
        assert check.fix.startswith("stop earlier")


def test_rows_of_another_kind_are_no_rows_known_by_heart():
    """As where an input has another unit in the validation rows: the linear model is as far off there."""
    measured = references(0.05, 0.05, stage=0.05, network_loss=1.0)
    measured = measured.model_copy(update={"own_loss": 0.01, "own_prior_loss": 0.6})
    far = [
        one.model_copy(update={"unstretched_loss": 9.0}) if one.fitted_on == "stage" else one for one in measured.arms
    ]
    check = references_check(measured.model_copy(update={"arms": tuple(far)}), moved(0.4), "cpu", MANY)
    assert (check.status, check.code, check.stops) == ("fail", "shift", True)
    assert "is far off as well" in check.evidence


def test_groups_that_would_tell_are_told():
    check = references_check(references(0.0, 0.0, error=0.05, stage=0.0), moved(0.2), "cpu", MANY)
    assert (check.status, check.code) == ("insufficient", "more")
    # 14 groups know a rise to 0.1; one that counts is 2 % of 0.5.
    assert "1,400" in check.evidence


def test_drawn_rows_are_asked_where_the_stages_seem_to_show_less():
    labels, groups, logits = ranked_rows()
    sure, none = 1 / (1 + np.exp(-logits)), np.random.default_rng(1).uniform(0.3, 0.7, len(labels))
    same, other = (measured_of(BINARY, labels, none, sure, groups, stage=stage) for stage in (sure, none))
    assert {arm.reference for arm in same.arms} == {"linear", "gradient_boosting"}
    assert references_check(same, moved(0.2), "cpu", MANY).code == "network"
    assert references_check(other, moved(0.2), "cpu", MANY).code == "rows"


def test_columns_that_tell_nothing_leave_the_question_to_the_tensors():
    labels, groups, logits = ranked_rows()
    sure, none = 1 / (1 + np.exp(-logits)), np.full(len(labels), 0.5)
    measured = measured_of(BINARY, labels, none, none, groups, tensors=Answered(sure, sure))
    assert {(arm.inputs, arm.rise.low > 0) for arm in measured.arms} == {("columns", False), ("tensors", True)}
    assert references_check(measured, moved(0.2), "cpu", MANY).code == "network"


def test_references_of_a_script_at_full_need_not_fall_once_more():
    flat = falling(0.5, 0.5)
    assert references_check(references(0.05, 0.05, network_loss=0.5), None, "cpu", flat, "full").status == "pass"


def test_references_that_was_not_measured_stops():
    assert references_check(None, None, "cpu", FALLING).stops


@pytest.mark.parametrize(
    ("kind", "case", "helps"),
    [
        (BINARY, "nearer_event", "log-odds of the base rate"),
        (Multiclass(("a", "b", "c")), "nearer_classes", "logarithms of the classes' shares"),
        (Multilabel(("a", "b")), "nearer_labels", "log-odds of each label's share"),
        (Regression(), "nearer", "preprocessing['target']"),
    ],
)
def test_answers_that_begin_far_off_are_told_where_their_kind_begins(kind, case, helps):
    measured = references(0.0, 0.05, network_loss=0.9).model_copy(update={"words": kind.words})
    code = references_module._nearer(measured)
    assert code == case
    assert helps in fix_of("references", code)
    assert ("preprocessing" in fix_of("references", code)) == (kind.name == "regression")
