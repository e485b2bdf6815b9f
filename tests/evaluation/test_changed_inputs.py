from functools import partial

import numpy as np
import pandas as pd
import planted
import pytest
from known import known
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.inspection import partial_dependence, permutation_importance

from trainworthy.lifecycle.evaluation import changed_inputs as module
from trainworthy.lifecycle.evaluation.behaviour import behaviour_results
from trainworthy.lifecycle.evaluation.changed_inputs import MOST_ANSWERS, changed_inputs, grid, planned
from trainworthy.lifecycle.evaluation.decision import acts
from trainworthy.lifecycle.evaluation.rescored import sampled
from trainworthy.lifecycle.protocol.figures import ChangedInputs, Perturbation
from trainworthy.lifecycle.protocol.jobs import InputColumn
from trainworthy.lifecycle.report.changed_inputs import unanswered_rows
from trainworthy.lifecycle.tasks.language_model import LanguageModel
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.multilabel import Multilabel
from trainworthy.lifecycle.tasks.regression import Regression

SEEN = planted.rows(seed=1)
TWO = planted.COLUMNS[:2]


def of_x1(frame: pd.DataFrame) -> np.ndarray:
    return planted.sigmoid(2 * frame["x1"].to_numpy())


def found(model=of_x1, job=None, **changed) -> ChangedInputs:
    return changed_inputs(planted.asked(model, **changed), SEEN, job or planted.job(), lambda _: None)


def of(result: ChangedInputs, column: str, change: str) -> Perturbation:
    return next(one for one in result.perturbations if (one.column, one.change) == (column, change))


class Known(ClassifierMixin, BaseEstimator):
    """The planted model as sklearn asks for it."""

    classes_ = np.array([0, 1])

    def fit(self, *_):
        self.fitted_ = True
        return self

    def predict_proba(self, frame):
        positive = of_x1(frame)
        return np.stack([1 - positive, positive], axis=1)


def test_importance_is_sklearns_and_that_of_an_unused_feature_is_none(monkeypatch):
    # As many exchanges as sklearn makes, of all rows.
    monkeypatch.setattr(module, "REPEATS", 30)
    monkeypatch.setattr(module, "MOST_ANSWERS", 10**6)
    result, frame = found(), planted.rows()
    assert result.importance[0].column == "x1"
    by_name = {one.column: one.loss for one in result.importance}
    oracle = permutation_importance(
        Known().fit(), frame[["x1", "x2"]], frame["label"], scoring="neg_log_loss", n_repeats=30, random_state=0
    )
    assert by_name["x1"].value == pytest.approx(oracle["importances_mean"][0], rel=0.03)
    assert by_name["x1"].low > 0.5
    assert (by_name["x2"].low, by_name["x2"].high) == (0.0, 0.0)
    assert oracle["importances_mean"][1] == 0
    assert (result.rows, result.groups, result.loss, result.measure) == (2_400, 30, "log_loss", "flip_rate")


def test_importance_of_a_feature_that_only_adds_noise_holds_zero_or_less():
    noisy = {
        one.column: one.loss
        for one in found(lambda some: planted.sigmoid(2 * some["x1"] + 0.01 * some["x2"])).importance
    }
    assert noisy["x2"].low < 0 < noisy["x2"].high


def test_partial_dependence_is_sklearns_on_the_same_values():
    curve = next(one for one in found().dependence if one.column == "x1")
    assert curve.claim == "label 1"
    grid = [known(point.at) for point in curve.points]
    assert grid == pytest.approx(np.quantile(SEEN["x1"], np.linspace(0.025, 0.975, 9)), abs=0.02)
    oracle = partial_dependence(
        Known().fit(), planted.rows()[["x1", "x2"]], ["x1"], kind="average", custom_values={"x1": np.array(grid)}
    )
    assert [point.answer.value for point in curve.points] == pytest.approx(oracle["average"][0].tolist(), abs=1e-12)
    shops = next(one for one in found().dependence if one.column == "shop")
    assert sorted(point.value for point in shops.points) == ["n", "s", "w"]
    assert [point.answer.value for point in shops.points] == pytest.approx([of_x1(planted.rows()).mean()] * 3)


def test_a_free_text_has_no_dependence_since_each_of_its_values_is_one_row_s():
    shown, generator = found().dependence, np.random.default_rng(0)
    words = [" ".join(generator.choice(["it", "was", "a", "very", "good", "visit"], 12)) for _ in range(len(SEEN))]
    assert "shop" in {one.column for one in shown}
    told = changed_inputs(planted.asked(of_x1), SEEN.assign(shop=words), planted.job(), lambda _: None).dependence
    assert {one.column for one in told} == {one.column for one in shown} - {"shop"}


def test_flip_rates_are_the_share_of_rows_whose_decision_changes():
    """A model that decides by the shop alone: any other shop flips n against the two others."""
    decides_by_shop = lambda some: np.where(some["shop"] == "n", 0.9, 0.1)
    result = found(decides_by_shop)
    frame = planted.rows()
    # From n every other shop flips; from s and w the share of n among the shops that are left.
    left = SEEN["shop"].value_counts()
    to_n = [left["n"] / (left["n"] + left[other]) for other in ("w", "s")]
    expected = (frame["shop"] == "n").mean() + sum(
        (frame["shop"] == own).mean() * share for own, share in zip(("s", "w"), to_n, strict=True)
    )
    swapped, unknown = known(of(result, "shop", "swapped").moved), known(of(result, "shop", "unknown").moved)
    assert swapped.low < expected < swapped.high
    assert unknown.value == pytest.approx((frame["shop"] == "n").mean())
    unread = known(of(result, "x1", "jitter").moved)
    assert (unread.value, unread.low, unread.high) == (0.0, 0.0, 0.0)
    # What is read and flips no row has the interval that 30 groups without an event allow (Clopper and Pearson).
    still = known(of(found(lambda some: np.where(some["shop"] == "n", 0.9, 0.8)), "shop", "swapped").moved)
    assert (still.value, still.low) == (0.0, 0.0)
    assert still.high == pytest.approx(1 - 0.025 ** (1 / 30))


def test_wrong_unit_is_told_with_the_share_that_the_contract_refuses():
    bounded = TWO[0].model_copy(update={"limits": {"minimum": -10.0, "maximum": 10.0}, "nullable": False})
    result = found(job=planted.job(columns=(bounded, TWO[1])))
    wrong = of(result, "x1", "thousandfold")
    assert wrong.refused == pytest.approx((planted.rows()["x1"].abs() > 0.01).mean())
    assert known(wrong.loss).low > 0
    # Sign and decision stay, so nothing flips.
    assert known(wrong.moved).value == 0
    missing = of(result, "x1", "missing")
    assert (missing.refused, missing.moved, missing.reason) == (1.0, None, "the contract refuses it")


def test_what_the_model_has_no_answer_to_is_told_and_stops_nothing():
    def fragile(some: pd.DataFrame) -> np.ndarray:
        if (some["shop"] == "a value that no row has").any():
            raise KeyError("secret")
        return planted.sigmoid(some["x1"] * 1.0)

    result = found(fragile)
    assert of(result, "shop", "unknown").reason == "model.py raised KeyError"
    assert "not finite" in of(result, "x1", "missing").reason
    assert of(result, "shop", "swapped").moved is not None
    assert "secret" not in result.model_dump_json()


def test_values_of_a_sensitive_column_are_not_told():
    columns = (planted.COLUMNS[0], planted.COLUMNS[2].model_copy(update={"sensitive": True}))
    result = found(job=planted.job(columns=columns))
    assert {one.column for one in result.dependence} == {"x1"}
    assert {one.column for one in result.importance} == {"x1", "shop"}
    assert of(result, "shop", "swapped").moved is not None


def test_declared_threshold_decides_what_a_flip_is():
    decisions = (None, partial(acts, threshold=0.5), partial(acts, threshold=0.97))
    flips = [known(of(found(decide=decide), "x1", "jitter").moved).value for decide in decisions]
    assert flips[0] == flips[1] != flips[2]


def test_sample_has_every_row_with_equal_chance_and_each_group_its_share():
    groups = pd.Series(np.repeat(np.arange(40), np.arange(10, 410, 10)))
    chosen = sampled(groups, 1_000)
    assert len(set(chosen)) == 1_000
    counts = np.bincount(groups.iloc[chosen], minlength=40)
    assert np.abs(counts - 1_000 * np.arange(10, 410, 10) / len(groups)).max() < 2
    assert sampled(groups, 10**6).tolist() == list(range(len(groups)))


def test_interval_over_a_sample_is_that_of_groups_and_not_of_rows():
    """Only in half of the groups the model reads x1: the interval is as wide as groups differ, however many rows."""
    frame = planted.rows(40_000)
    model = lambda some: planted.sigmoid(2 * some["x1"] * (some["day"] % 2))
    result = found(model, frame=frame)
    assert result.rows == planned(3).rows < 4_000
    loss = result.importance[0].loss
    assert loss.groups == 30
    assert loss.standard_error > 0.1 * loss.value
    whole = changed_inputs(
        planted.asked(model, frame.sample(frac=1, random_state=3)), SEEN, planted.job(), lambda _: None
    )
    assert loss.low < whole.importance[0].loss.value < loss.high


@pytest.mark.parametrize("features", [1, 10, 45, 200, 500, 5_000])
def test_work_is_bounded_by_counted_answers(features):
    plan = planned(features)
    answers = plan.rows * (2 * plan.features + 5 * min(plan.features, 20) + 80)
    assert plan.features == min(features, 500)
    assert 1_000 <= plan.rows <= 4_000
    assert answers <= MOST_ANSWERS or plan.rows == 1_000


def test_features_beyond_the_bounds_are_told(monkeypatch):
    monkeypatch.setattr(module, "MOST_FEATURES", 12)
    monkeypatch.setattr(module, "MOST_PERTURBED", 5)
    many = tuple(InputColumn(name=f"f{place}", logical_type="number") for place in range(40))
    frame, seen = (planted.rows(seed=seed) for seed in (0, 1))
    values = {one.name: frame["x2"] for one in many}
    frame, seen = frame.assign(**values), seen.assign(**values)
    result = changed_inputs(planted.asked(of_x1, frame), seen, planted.job(columns=many), lambda _: None)
    assert [one.column for one in result.importance] == [f"f{place}" for place in range(12)]
    assert {one.column for one in result.perturbations} == {f"f{place}" for place in range(5)}
    assert result.left_out == (
        "28 features, the last of the contract: so many are asked at most",
        "perturbations of 7 features of less importance",
    )


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (planted.job(columns=(), left_out=("picture: its values are files",)), "no feature has values"),
        (planted.job(reason="the model reads files (picture)"), "the model reads files (picture)"),
    ],
)
def test_model_without_features_to_change_says_so(job, reason):
    result = found(job=job)
    assert result.reason.startswith(reason)
    assert result.left_out == job.left_out
    assert not result.importance


def test_too_few_groups_are_told_and_not_measured():
    result = found(frame=planted.rows(groups=5))
    assert "at least 8 groups" in result.reason
    assert not result.importance


def test_losses_that_are_none_of_rows_are_told():
    assert LanguageModel(128).metrics[LanguageModel(128).loss].rows is None
    assert "no loss of single rows" in found(kind=LanguageModel(128)).reason


def _softmax(some: pd.DataFrame) -> np.ndarray:
    return softmax(np.stack([some["x1"], some["x2"], 0 * some["x1"]], axis=1), axis=1)


@pytest.mark.parametrize(
    ("kind", "labels", "model", "measure", "claims"),
    [
        (Regression(), lambda f: f["x1"].to_numpy(), lambda f: f["x1"], "mean_absolute_change", ["answer"]),
        (
            Regression((0.1, 0.5, 0.9)),
            lambda f: f["x1"].to_numpy(),
            lambda f: f[["x1"]].to_numpy() + np.array([-1.0, 0.0, 1.0]),
            "mean_absolute_change",
            ["answer"],
        ),
        (
            Multiclass(("a", "b", "c")),
            lambda f: np.arange(len(f)) % 3,
            _softmax,
            "flip_rate",
            ["class a", "class b", "class c"],
        ),
        (
            Multilabel(("sky", "sea")),
            lambda f: np.stack([f["x1"] > 0, f["x2"] > 0], axis=1).astype(float),
            lambda f: planted.sigmoid(f[["x1", "x2"]].to_numpy() - 0.5),
            "flip_rate",
            ["label sky", "label sea"],
        ),
    ],
)
def test_every_kind_of_few_numbers_a_row_is_asked(kind, labels, model, measure, claims):
    result = found(model, kind=kind, labels=labels(planted.rows()), job=planted.job(columns=TWO))
    assert result.measure == measure
    assert {one.claim for one in result.dependence} == set(claims)
    assert known(of(result, "x1", "thousandfold").moved).value > 0
    # A number moves by what it is off: 999 times its size on average.
    if measure == "mean_absolute_change":
        expected = 999 * planted.rows()["x1"].abs().mean()
        assert known(of(result, "x1", "thousandfold").moved).value == pytest.approx(expected)


def _days(rng: np.random.Generator, rows: int, groups: int) -> pd.DataFrame:
    """Days on which the feature lies higher or lower, and the label comes more or less often."""
    day = rng.integers(0, groups, rows)
    x1 = rng.normal(size=rows) + rng.normal(0, 0.5, groups)[day]
    label = rng.random(rows) < planted.sigmoid(x1 + rng.normal(0, 0.5, groups)[day])
    return pd.DataFrame({"x1": x1, "day": day, "label": label.astype(float)})


def test_interval_of_importance_holds_the_truth_where_days_give_values_as_well_as_get_them():
    """By the rows that get other values alone it held it 87 times in 100."""

    def importance(frame: pd.DataFrame):
        job = planted.job(columns=TWO[:1])
        asked = planted.asked(lambda some: planted.sigmoid(some["x1"]), frame)
        return changed_inputs(asked, frame, job, lambda _: None).importance[0].loss

    rng = np.random.default_rng(5)
    # Exchanges in two million rows of 20,000 days gave 0.2408 and 0.2420.
    truth = 0.2414
    found = [importance(_days(rng, 1_500, 30)) for _ in range(60)]
    assert sum(one.low <= truth <= one.high for one in found) >= 54
    assert np.mean([one.value for one in found]) == pytest.approx(truth, abs=0.006)


def test_values_that_are_asked_are_those_of_training_rows_and_a_cap_hides_none():
    column = TWO[0]
    capped = pd.Series(np.minimum(np.random.default_rng(0).exponential(300.0, 10_000), 180.0))
    found = grid(column, capped)
    # 55 % of the rows are at the cap.
    assert found[-1] == 180
    assert len(found) >= 7
    assert found[0] == pytest.approx(np.quantile(capped, 0.02), abs=5)
    assert set(found) <= set(capped)
    assert grid(column, pd.Series([3, 1, 2, 1, None])) == [1, 2, 3]
    whole = grid(TWO[0].model_copy(update={"logical_type": "integer"}), pd.Series(range(1_000)))
    assert whole == sorted(whole)
    assert len(whole) == 9
    assert grid(planted.COLUMNS[2], pd.Series(["b", "a", "b", None])) == ["b", "a"]


def test_weights_count_rows_and_bad_ones_are_told():
    frame = planted.rows()
    heavy = np.where(frame["shop"] == "n", 1.0, 0.0)
    only = of(found(lambda some: np.where(some["shop"] == "n", 0.9, 0.1), weights=heavy), "shop", "swapped")
    # All rows that count are of shop n, and all of them flip.
    assert known(only.moved).value == 1.0
    assert known(only.moved).low == pytest.approx(0.025 ** (1 / 30))
    # As if the rows of weight 0 were not there.
    rows_of_n = frame[heavy > 0]
    alone = found(lambda some: np.where(some["shop"] == "n", 0.9, 0.1), frame=rows_of_n)
    assert known(of(alone, "shop", "swapped").moved).value == 1.0
    assert found(weights=heavy).rows == alone.rows == len(rows_of_n)
    days = np.where(frame["day"] < 7, 1.0, 0.0)
    assert "at least 8 groups" in found(weights=days).reason
    by_rows = found(weights=np.ones(len(frame)))
    assert [one.model_dump() for one in by_rows.importance] == [one.model_dump() for one in found().importance]
    for bad in (np.full(len(frame), np.nan), -heavy, 0 * heavy):
        result = found(weights=bad)
        assert result.reason.startswith("the rows' weights are no finite numbers")
        assert not result.importance


def test_loss_that_overflows_is_told_and_stops_nothing():
    with np.errstate(over="ignore"):
        result = found(
            lambda some: some["x1"] ** 101,
            kind=Regression(),
            labels=planted.rows()["x1"].to_numpy(),
            job=planted.job(columns=TWO),
        )
    assert "finite" in of(result, "x1", "thousandfold").reason
    assert of(result, "x2", "thousandfold").reason == ""


def test_unsigned_column_is_asked_and_a_change_that_cannot_be_made_is_told(monkeypatch):
    column = InputColumn(name="n", logical_type="integer")
    count = np.random.default_rng(0).integers(0, 100, 2_400).astype("uint8")
    frame, seen = planted.rows().assign(n=count), SEEN.assign(n=count)
    asked = planted.asked(lambda some: planted.sigmoid(some["n"] - 50.0), frame)

    def jitter() -> Perturbation:
        return of(changed_inputs(asked, seen, planted.job(columns=(column,)), lambda _: None), "n", "jitter")

    assert known(jitter().moved).value > 0

    def lossy(*_):
        raise TypeError("Cannot losslessly cast 17")

    monkeypatch.setattr(module, "changed", lossy)
    told = jitter()
    assert (told.moved, told.reason) == (None, "the change cannot be made (TypeError)")
    test = {"column": "n", "invariant_to": "jitter", "at_most": 0.1}
    (result,) = behaviour_results(asked, seen, planted.job(test, columns=(column,)))
    assert (result.estimate, result.told) == (None, "the change cannot be made (TypeError)")


def test_change_that_was_never_asked_is_none_that_the_model_has_no_answer_to():
    """One shop in training rows, and one column that is null in every row asked."""

    def fragile(some: pd.DataFrame) -> np.ndarray:
        if (some["shop"] == "a value that no row has").any():
            raise KeyError
        return of_x1(some)

    asked = planted.asked(fragile, planted.rows().assign(x2=np.nan))
    bounded = planted.COLUMNS[0].model_copy(update={"nullable": False})
    job = planted.job(columns=(bounded, *planted.COLUMNS[1:]))
    result = changed_inputs(asked, SEEN.assign(shop="n"), job, lambda _: None)
    told = {
        (one.column, one.change): (one.asked, one.altered, one.reason) for one in result.perturbations if one.reason
    }
    unmoved = "the change leaves all values as they are"
    assert told == {
        ("x1", "missing"): (False, 1.0, "the contract refuses it"),
        ("x2", "jitter"): (False, None, unmoved),
        ("x2", "thousandfold"): (False, None, unmoved),
        ("x2", "thousandth"): (False, None, unmoved),
        ("x2", "missing"): (False, None, unmoved),
        ("shop", "swapped"): (False, None, "training rows have no other value"),
        ("shop", "unknown"): (True, 1.0, "model.py raised KeyError"),
    }
    assert of(result, "x1", "jitter").altered == 1.0
    assert [one[:2] for one in unanswered_rows(result)] == [("shop", "a value that no row has")]
    # Records of before it was told have none that says so.
    assert Perturbation(column="x1", change="jitter", refused=0.0).asked
