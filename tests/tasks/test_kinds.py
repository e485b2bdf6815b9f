from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.baselines import BASELINES, fit_baselines
from trainworthy.lifecycle.tasks.declared import kind_problems
from trainworthy.lifecycle.tasks.interval import spread_problem
from trainworthy.lifecycle.tasks.statistic_columns import as_columns, from_columns, statistic_columns

USE_CASES = Path(__file__).parents[2] / "use_cases"
LEVELS = (0.1, 0.5, 0.9)
KINDS = {
    "binary": kind_of(Target()),
    "multiclass": kind_of(Target(kind="multiclass", classes=("low", "middle", "high"))),
    "multilabel": kind_of(Target(kind="multilabel", classes=("high", "north", "never"))),
    "number": kind_of(Target(kind="regression")),
    "quantiles": kind_of(Target(kind="regression", quantiles=LEVELS)),
}


def table(rows: int = 800, seed: int = 0) -> pd.DataFrame:
    """A number, a text and a null or two; labels of each kind that both of them tell something of."""
    random = np.random.default_rng(seed)
    x, shop = random.normal(size=rows), random.choice(["north", "south"], rows)
    score = 2 * x + (shop == "north") + random.normal(size=rows)
    north = (shop == "north") ^ (random.random(rows) < 0.1)
    return pd.DataFrame(
        {
            "x": np.where(random.random(rows) < 0.02, np.nan, x), "shop": shop, "day": np.arange(rows) % 20,
            "binary": (score > 0).astype("int8"), "multiclass": np.digitize(score, [-1.0, 2.0]),
            "multilabel": [f"{int(a)}{int(b)}0" for a, b in zip(score > 0, north, strict=True)],
            "number": 100 + 10 * score, "quantiles": 100 + 10 * score,
        }
    )  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_baselines_answer_in_the_kinds_form_and_beat_the_constant(name):
    kind, rows, new = KINDS[name], table(), table(seed=1)
    labels = kind.checked_labels(new[name])
    losses = {}
    for baseline, predict in fit_baselines(rows, ["x", "shop"], name, BASELINES, 0, kind).items():
        answers = predict(new[["x", "shop"]])
        assert answers.shape == (len(new), *kind.answer_shape)
        losses[baseline] = kind.row_loss(*kind.checked(labels, answers)).mean()
        assert kind.row_loss(labels, kind.calibrated(answers, kind.fit_calibration(labels, answers))).mean() < (
            losses[baseline] + 1e-6
        )
    assert max(losses["linear"], losses["gradient_boosting"]) < 0.8 * losses["prior"]


@pytest.mark.parametrize("name", KINDS)
def test_prior_is_the_best_constant(name):
    kind, rows = KINDS[name], table()
    labels = kind.checked_labels(rows[name])
    prior = kind.prior(labels)
    assert prior.shape == kind.answer_shape
    best = kind.row_loss(labels, np.broadcast_to(prior, (len(labels), *prior.shape)).copy()).mean()
    random = np.random.default_rng(0)
    for _ in range(10):
        other = np.abs(prior + random.normal(size=prior.shape) * 0.1 * np.abs(prior))
        other = (
            other / other.sum()
            if name == "multiclass"
            else np.sort(other)
            if name == "quantiles"
            else other.clip(0, None)
        )
        other = np.clip(other, 0, 1) if name in ("binary", "multilabel") else other
        assert kind.row_loss(labels, np.broadcast_to(other, (len(labels), *prior.shape)).copy()).mean() >= best - 1e-9


@pytest.mark.parametrize("name", KINDS)
def test_answers_come_back_from_a_tables_columns(name):
    kind, rows = KINDS[name], table()
    labels = kind.checked_labels(rows[name])
    answers = np.broadcast_to(kind.prior(labels), (len(rows), *kind.answer_shape)).copy()
    stored = pd.DataFrame(as_columns(kind, "candidate", answers))
    assert list(stored) == statistic_columns(kind, "candidate")
    assert (from_columns(kind, "candidate", stored) == answers).all()


def test_state_that_calibrates_nothing_changes_nothing():
    for name, kind in KINDS.items():
        labels = kind.checked_labels(table()[name])
        answers = np.broadcast_to(kind.prior(labels), (9, *kind.answer_shape)).copy()
        assert kind.calibrated(answers, kind.uncalibrated) == pytest.approx(answers, abs=1e-12)


def test_classes_that_are_too_sure_are_calibrated_back():
    random, kind = np.random.default_rng(0), KINDS["multiclass"]
    truth = random.dirichlet([1.0, 1.0, 1.0], 4000)
    labels = (random.random(4000)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    sure = truth**3 / (truth**3).sum(axis=1, keepdims=True)
    state = kind.fit_calibration(labels, sure)
    assert state["slope"] == pytest.approx(1 / 3, abs=0.03)
    assert kind.row_loss(labels, kind.calibrated(sure, state)).mean() < kind.row_loss(labels, truth).mean() + 0.001
    # A class that no row has, and answers without a mistake, leave all finite.
    few = kind.fit_calibration(np.array([0, 1, 0, 1]), np.eye(3)[[0, 1, 0, 1]])
    assert np.isfinite([few["slope"], *few["intercepts"]]).all()


def test_quantiles_cover_what_they_say_after_calibration_and_never_cross():
    random, kind = np.random.default_rng(0), KINDS["quantiles"]
    labels = np.exp(random.normal(size=6000))
    answers = np.tile([0.9, 1.0, 1.1], (6000, 1))
    state = kind.fit_calibration(labels[:3000], answers[:3000])
    calibrated = kind.calibrated(answers[3000:], state)
    assert (np.diff(calibrated, axis=1) >= 0).all()
    for place, level in enumerate(LEVELS):
        assert (labels[3000:] <= calibrated[:, place]).mean() == pytest.approx(level, abs=0.035)


@pytest.mark.parametrize("name", KINDS)
def test_stretching_keeps_the_order_and_refuses_one_that_is_turned_round(name):
    kind, rows = KINDS[name], table()
    labels = kind.checked_labels(rows[name])
    good = fit_baselines(rows, ["x", "shop"], name, ("linear",), 0, kind)["linear"](rows)
    stretch = kind.stretched(labels, good)
    assert stretch is not None
    assert kind.row_loss(labels, stretch(good)).mean() <= kind.row_loss(labels, good).mean() + 1e-3
    turned = {"binary": lambda: 1 - good, "multiclass": lambda: good[:, ::-1], "number": lambda: 200 - good}
    turned["multilabel"] = lambda: 1 - good
    turned["quantiles"] = lambda: np.sort(200 - good, axis=1)
    assert kind.stretched(labels, turned[name]()) is None


@pytest.mark.parametrize(
    ("name", "labels", "answers", "told"),
    [
        ("multiclass", [0, 3], np.full((2, 3), 1 / 3), "no place among the 3 classes"),
        ("multiclass", [0, 1.5], np.full((2, 3), 1 / 3), "no place among the 3 classes"),
        ("multiclass", [0, 1], np.full((2, 2), 0.5), "3 probabilities, one of each class"),
        ("multiclass", [0, 1], np.full((2, 3), 0.5), "do not add up to 1"),
        ("multiclass", [0, 1], np.array([[2.0, -1.0, 0.0], [1.0, 0.0, 0.0]]), "outside \\[0, 1\\]"),
        ("multilabel", ["010", "01"], np.full((2, 3), 0.5), "1 of 2 labels are no text of 3 digits 0 and 1"),
        ("multilabel", ["010", "0101"], np.full((2, 3), 0.5), "no text of 3 digits"),
        ("multilabel", ["010", "01ö"], np.full((2, 3), 0.5), "no text of 3 digits"),
        ("multilabel", ["010", None], np.full((2, 3), 0.5), "no text of 3 digits"),
        ("multilabel", [0, 1], np.full((2, 3), 0.5), "no text of 3 digits"),
        ("multilabel", [[0, 1], [1, 0]], np.full((2, 3), 0.5), "3 values of 0 and 1, one of each label"),
        ("multilabel", [[0, 2, 0], [1, 0, 1]], np.full((2, 3), 0.5), "1 of 6 labels are neither 0 nor 1"),
        ("multilabel", [[0, np.nan, 0], [1, 0, 1]], np.full((2, 3), 0.5), "labels are not finite"),
        ("multilabel", ["010", "110"], np.full((2, 2), 0.5), "3 probabilities, one of each label"),
        ("multilabel", ["010", "110"], np.full(2, 0.5), "must have shape \\(N, K\\)"),
        ("multilabel", ["010", "110"], np.full((3, 3), 0.5), "differ in length"),
        ("multilabel", ["010", "110"], np.array([[2.0, -1.0, 0.0], [1.0, 0.0, 0.0]]), "1 of 2 rows have"),
        ("multilabel", ["010", "110"], np.array([[np.nan, 0.0, 0.0], [1.0, 0.0, 0.0]]), "not finite"),
        ("number", [1.0, np.nan], [0.0, 0.0], "labels are not finite"),
        ("number", [1.0, 2.0], [0.0, np.inf], "answers are not finite"),
        ("number", [1.0, 2.0], [0.0], "differ in length"),
        ("number", ["much", "little"], [0.0, 1.0], "not all numbers"),
        ("quantiles", [1.0, 2.0], np.zeros((2, 2)), "each row needs 3 quantiles"),
        ("quantiles", [1.0, 2.0], np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), "quantiles of 1 of 2 rows cross"),
    ],
)
def test_labels_and_answers_that_are_none_of_the_kind_are_refused_with_a_fix(name, labels, answers, told):
    with pytest.raises(EvaluationError, match=told) as caught:
        KINDS[name].checked(labels, answers)
    assert caught.value.fix


@pytest.mark.parametrize("name", KINDS)
def test_strata_are_few_and_events_have_both_sides(name):
    kind, rows = KINDS[name], table()
    labels = kind.checked_labels(rows[name])
    assert 2 <= len(np.unique(kind.strata(labels))) <= 10
    answers = fit_baselines(rows, ["x", "shop"], name, ("linear",), 0, kind)["linear"](rows)
    for event in kind.events(labels):
        assert 0 < event.of_labels(labels).mean() < 1
        assert event.of_answers(answers).shape == (len(rows),)


def test_events_of_a_label_that_is_mostly_its_greatest_value_have_both_sides():
    for labels in (np.array([0.0] + [5.0] * 99), np.array([0.0] * 99 + [5.0])):
        events = KINDS["number"].events(labels)
        assert events
        assert all(0 < event.of_labels(labels).mean() < 1 for event in events)


@pytest.mark.parametrize("name", KINDS)
def test_shortage_is_told_of_groups_rows_and_labels_that_are_alike(name):
    kind, rows = KINDS[name], table()
    labels = kind.checked_labels(rows[name])
    assert kind.shortage(labels, rows["day"]) == ""
    assert "fewer than 8" in kind.shortage(labels, rows["day"] % 4)
    assert "fewer than 900" in kind.shortage(labels, rows["day"], 900)
    assert kind.shortage(np.repeat(labels[:1], len(labels), axis=0), rows["day"])
    assert kind.one_valued(labels) == ""
    assert kind.one_valued(np.repeat(labels[:1], 9, axis=0))


def test_stored_texts_and_their_array_are_the_same_labels():
    kind = KINDS["multilabel"]
    wanted = [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    for labels in (["101", "000"], pd.Series(["101", "000"]), np.array(["101", "000"], dtype=object), wanted):
        found = kind.checked_labels(labels)
        assert (found.dtype, found.tolist()) == (np.dtype("float64"), wanted)
    assert kind.targets(found).dtype == np.float32


def test_labels_that_are_too_sure_are_calibrated_back_each_on_its_own():
    random, kind = np.random.default_rng(0), KINDS["multilabel"]
    truth = random.beta(2, 2, size=(4000, 3))
    labels = (random.random(truth.shape) < truth).astype(float)
    labels[:, 2] = 0
    sure = truth.copy()
    sure[:, 0] = truth[:, 0] ** 3 / (truth[:, 0] ** 3 + (1 - truth[:, 0]) ** 3)
    state = kind.fit_calibration(labels, sure)
    assert state["slopes"][:2] == pytest.approx([1 / 3, 1.0], abs=0.07)
    # No row has the third label: nothing is known of its probabilities.
    assert (state["slopes"][2], state["intercepts"][2]) == (1.0, 0.0)


def test_label_that_is_turned_round_alone_gets_its_share_and_the_others_keep_their_order():
    random, kind = np.random.default_rng(0), KINDS["multilabel"]
    truth = random.beta(1, 1, size=(4000, 3))
    labels = (random.random(truth.shape) < truth).astype(float)
    stretch = kind.stretched(labels, np.stack([truth[:, 0], 1 - truth[:, 1], truth[:, 2]], axis=1))
    assert stretch is not None
    found = stretch(truth)
    assert set(found[:, 1]) == {labels[:, 1].mean()}
    assert (np.argsort(found[:, 0]) == np.argsort(truth[:, 0])).all()


def test_rare_combinations_of_labels_are_one_stratum():
    random = np.random.default_rng(0)
    labels = (random.random((5000, 12)) < 0.3).astype(float)
    labels[:3000] = 0
    strata = kind_of(Target(kind="multilabel", classes=tuple("abcdefghijkl"))).strata(labels)
    assert set(strata) == set(range(10))
    assert (strata[:3000] == 0).all()
    assert np.bincount(strata)[1:9].max() < np.bincount(strata)[9]


def test_label_in_all_rows_or_none_keeps_its_share_in_baselines_and_is_no_event():
    kind, rows = KINDS["multilabel"], table()
    labels = kind.checked_labels(rows["multilabel"])
    assert [event.name for event in kind.events(labels)] == ["label high", "label north"]
    for predict in fit_baselines(rows, ["x", "shop"], "multilabel", BASELINES, 0, kind).values():
        assert set(predict(rows)[:, 2]) == {0.0}


def test_trees_are_fitted_for_the_most_frequent_labels_and_the_others_are_linear(monkeypatch):
    kind, rows = KINDS["multilabel"], table()
    monkeypatch.setattr("trainworthy.lifecycle.tasks.multilabel.MOST_BOOSTED", 1)
    found = fit_baselines(rows, ["x", "shop"], "multilabel", BASELINES, 0, kind)
    linear, boosted = (found[name](rows) for name in ("linear", "gradient_boosting"))
    labels = kind.checked_labels(rows["multilabel"])
    same = [bool((linear[:, place] == boosted[:, place]).all()) for place in (0, 1)]
    assert same[int(labels.mean(axis=0).argmax())] is False
    assert same[int(labels[:, :2].mean(axis=0).argmin())] is True


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_decisions_where_a_claim_is_decided(name):
    kind = KINDS[name]
    labels = kind.checked_labels(table()[name])
    prior = kind.prior(labels)
    claims = kind.claims(labels, np.broadcast_to(prior, (len(labels), *prior.shape)))
    assert kind.has_decisions == any(claim.decided is not None for claim in claims)


@pytest.mark.parametrize(
    ("use_case", "problems"), [("arrival_delay", 1), ("scenes", 1), ("docstrings", 1), ("digits", 0)]
)
def test_a_limit_of_a_rate_is_refused_where_the_kind_decides_nothing_of_a_row(use_case, problems):
    values = yaml.safe_load((USE_CASES / use_case / "use_case.yaml").read_text())
    values["benchmark"]["fairness"] = {"columns": ["a"], "at_most_difference": {"selection_rate": 0.1}}
    found = kind_problems(UseCaseSpec.model_validate(values))
    assert [one.where for one in found] == ["use_case.yaml: benchmark.fairness.at_most_difference"] * problems
    del values["benchmark"]["fairness"]["at_most_difference"]
    assert kind_problems(UseCaseSpec.model_validate(values)) == []


@pytest.mark.parametrize(("classes", "told"), [(0, "none of the classes lie in"), (1, "1 of the classes lies in")])
def test_too_few_classes_are_told_in_words_that_agree(classes, told):
    assert spread_problem(classes).startswith(told)
