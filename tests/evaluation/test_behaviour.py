"""Invariances and directions: what a planted model breaks is rejected, what it keeps is promoted."""

import numpy as np
import planted
import pytest
from known import known
from pydantic import ValidationError

from trainworthy.lifecycle.evaluation.behaviour import behaviour_results
from trainworthy.lifecycle.promotion.limit_rules import behaviour_findings
from trainworthy.lifecycle.protocol.figures import BehaviourResult
from trainworthy.lifecycle.protocol.jobs import InputColumn
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec
from trainworthy.lifecycle.tasks.multilabel import Multilabel
from trainworthy.lifecycle.tasks.regression import Regression

# Of so many groups without an event the interval of a share ends at 1.8 %.
FRAME, SEEN = planted.rows(8_000, groups=200), planted.rows(seed=1)
SWAPPED = {"column": "shop", "invariant_to": "swapped", "at_most": 0.05}
JITTER = {"column": "x2", "invariant_to": "jitter", "at_most": 0.05}
RISES = {"column": "x1", "direction": "rises", "at_most": 0.05}
FALLS = {"column": "x1", "direction": "falls", "at_most": 0.05}


def by_shop(some):
    return planted.sigmoid(some["x1"] + 3.0 * (some["shop"] == "n"))


def healthy(some):
    return planted.sigmoid(2 * some["x1"])


def reads_and_never_flips(some):
    return planted.sigmoid(some["x1"] * (2 + (some["shop"] == "n")))


def bent(some):
    """Rises up to 1 and falls behind it."""
    return planted.sigmoid(2 * np.minimum(some["x1"], 1.0) - 3 * np.maximum(some["x1"] - 1.0, 0))


def slightly_bent(some):
    """Rises up to 1, and goes back by 0.05 at most behind it, in several steps."""
    return 0.9 * planted.sigmoid(2 * np.minimum(some["x1"], 1.0)) - 0.05 * np.clip(some["x1"] - 1.0, 0, 1)


def result(model, test, **changed) -> BehaviourResult:
    (found,) = behaviour_results(planted.asked(model, FRAME, **changed), SEEN, planted.job(test))
    return found


def allowed(model, test, **changed) -> str:
    (finding,) = behaviour_findings([result(model, test, **changed)], [BehaviourSpec.model_validate(test)])
    return finding.allows


@pytest.mark.parametrize(
    ("model", "test", "allows"),
    [
        (by_shop, SWAPPED, "reject"),
        (healthy, SWAPPED, "promote"),
        (healthy, JITTER, "promote"),
        (lambda some: planted.sigmoid(50 * some["x2"]), JITTER | {"at_most": 0.01}, "reject"),
        (healthy, RISES, "promote"),
        (healthy, FALLS, "reject"),
        (lambda some: 1 - healthy(some), FALLS, "promote"),
        (bent, RISES, "reject"),
        # A model that does not read the number neither rises nor falls.
        (lambda some: planted.sigmoid(some["x2"]), RISES, "promote"),
        # How far it goes back in all counts, and not the step.
        (slightly_bent, RISES, "reject"),
        (slightly_bent, RISES | {"tolerance": 0.02}, "reject"),
        (slightly_bent, RISES | {"tolerance": 0.06}, "promote"),
        (healthy, FALLS | {"tolerance": 0.1}, "reject"),
        # 0.02 is more than 200 groups without an event show, 0.01 less.
        (reads_and_never_flips, SWAPPED | {"at_most": 0.02}, "promote"),
        (reads_and_never_flips, SWAPPED | {"at_most": 0.01}, "shadow"),
        # What is not read needs no groups.
        (healthy, SWAPPED | {"at_most": 0.0001}, "promote"),
        (lambda some: planted.sigmoid(some["x2"]), RISES | {"at_most": 0.0001}, "promote"),
        (healthy, RISES | {"at_most": 0.0001}, "shadow"),
    ],
)
def test_planted_model_is_judged_by_what_it_does(model, test, allows):
    assert allowed(model, test) == allows


def test_few_rows_that_flip_have_the_exact_interval_and_days_that_flip_as_a_whole_a_wide_one():
    """By the t by group 20 rows of one day would have -0.002 to 0.007."""

    def flipping(rows):
        def model(some):
            own = some["shop"] == FRAME["shop"]
            answer = np.where(some["x1"] > 0, 0.8, 0.2) + 0.01 * own
            return np.where(~own & np.isin(np.arange(len(some)), rows), 1 - answer, answer)

        return known(result(model, SWAPPED).estimate)

    spread, one_day = flipping(np.arange(0, 8_000, 400)), flipping(np.flatnonzero(FRAME["day"] == 0)[:20])
    assert spread.value == pytest.approx(0.0025)
    assert 0.001 < spread.low < spread.high < 0.004
    assert (spread.method, one_day.method) == ("exact", "exact")
    assert 0 < one_day.low < spread.low
    assert one_day.high > 2 * spread.high


def test_share_that_fails_is_that_of_rows():
    """Only rows of shop n go the wrong way."""
    found = result(lambda some: planted.sigmoid(some["x1"] * np.where(some["shop"] == "n", -1, 1)), RISES)
    assert known(found.estimate).value == pytest.approx((FRAME["shop"] == "n").mean())
    assert (found.measure, found.rows) == ("violation_rate", 8_000)


def test_noise_of_rounding_is_no_direction():
    rng = np.random.default_rng(0)
    for test in (RISES, SWAPPED):
        found = known(result(lambda some: healthy(some) * 0 + 0.5 + 1e-9 * rng.normal(size=len(some)), test).estimate)
        assert (found.value, found.high, found.method) == (0, 0, "unmoved")


def test_numbers_are_held_to_their_mean_absolute_change():
    numbers = {"kind": Regression(), "labels": FRAME["x1"].to_numpy()}
    test = {"column": "shop", "invariant_to": "swapped", "at_most": 1.5}
    by_shop = lambda some: some["x1"] + 6.0 * (some["shop"] == "n")
    found = result(by_shop, test, **numbers)
    assert found.measure == "mean_absolute_change"
    assert allowed(by_shop, test, **numbers) == "reject"
    assert allowed(lambda some: some["x1"], test, **numbers) == "promote"


@pytest.mark.parametrize(("moves", "allows"), [(5.0, "reject"), (4.0, "promote"), (3.0, "promote"), (0.0, "promote")])
def test_number_that_moves_alike_in_all_rows_is_judged_with_its_width_of_0(moves, allows):
    numbers = {"kind": Regression(), "labels": FRAME["x1"].to_numpy()}
    test = {"column": "x2", "invariant_to": "missing", "at_most": 4}
    model = lambda some: np.where(some["x2"].isna(), moves, 0.0)
    assert known(result(model, test, **numbers).estimate).has_width is False
    assert allowed(model, test, **numbers) == allows


def test_direction_of_one_of_several_claims():
    several = {"kind": Multilabel(("sky", "sea")), "labels": np.stack([FRAME["x1"] > 0, FRAME["x2"] > 0], 1) * 1.0}
    model = lambda some: planted.sigmoid(some[["x1", "x2"]].to_numpy() * [1, 1])
    assert allowed(model, RISES | {"claim": "label sky"}, **several) == "promote"
    assert allowed(model, FALLS | {"claim": "label sky"}, **several) == "reject"
    unmeasured = result(model, RISES, **several)
    assert unmeasured.told == "the answers have no such claim"


def raising(some):
    if some["shop"].nunique() > 3 or some["shop"].ne(FRAME["shop"]).any():
        raise ValueError("unseen")
    return healthy(some)


@pytest.mark.parametrize(
    ("model", "test", "told"),
    [
        (raising, SWAPPED, "model.py raised ValueError"),
        (healthy, SWAPPED | {"column": "gone"}, "gone is no feature whose values can be changed"),
        (lambda some: np.where(some["x1"] == FRAME["x1"], 0.5, np.nan), RISES, "not finite"),
    ],
)
def test_test_that_was_not_measured_allows_shadow_at_most_and_says_why(model, test, told):
    found = result(model, test)
    assert found.estimate is None
    assert told in found.told
    (finding,) = behaviour_findings([found], [found.declared])
    assert finding.allows == "shadow"
    assert told in finding.reason


def test_declared_test_without_a_result_is_not_kept():
    (finding,) = behaviour_findings([], [BehaviourSpec.model_validate(RISES)])
    assert finding.allows == "shadow"
    # A result of another limit is none of this test.
    stale = result(healthy, RISES | {"at_most": 0.5})
    (finding,) = behaviour_findings([stale], [BehaviourSpec.model_validate(RISES)])
    assert finding.allows == "shadow"
    assert list(behaviour_findings([stale], [])) == []


def test_training_rows_of_one_value_measure_no_test():
    one = SEEN.assign(x1=1.0, shop="n")
    found = behaviour_results(planted.asked(healthy, FRAME), one, planted.job(RISES, SWAPPED))
    assert [item.estimate for item in found] == [None, None]
    assert [item.told for item in found] == ["training rows have no two values", "training rows have no other value"]


def test_rows_of_weight_0_are_no_groups_and_bad_weights_are_told():
    few, enough = (np.where(FRAME["day"] < days, 1.0, 0.0) for days in (7, 9))
    assert "at least 8 groups" in result(healthy, SWAPPED, weights=few).told
    found = result(healthy, SWAPPED, weights=enough)
    assert (known(found.estimate).groups, found.rows) == (9, (FRAME["day"] < 9).sum())
    for bad in (0 * few, -few, few * np.nan):
        told = result(healthy, SWAPPED, weights=bad)
        assert (told.estimate, told.told[:21]) == (None, "the rows' weights are")


@pytest.mark.parametrize("change", ["missing", "jitter", "swapped"])
def test_change_that_leaves_all_values_as_they_are_measures_no_test(change):
    """A column that is null in all rows of the benchmark is not moved, nor made null."""
    numbers = {"kind": Regression(), "labels": FRAME["x1"].to_numpy()}
    asked = planted.asked(lambda some: 1000 * some["x2"].fillna(0), FRAME.assign(x2=np.nan), **numbers)
    test = {"column": "x2", "invariant_to": change, "at_most": 0.01}
    (found,) = behaviour_results(asked, SEEN, planted.job(test))
    (finding,) = behaviour_findings([found], [found.declared])
    if change == "swapped":
        # Each null becomes another row's number.
        assert (finding.allows, found.told) == ("reject", "")
    else:
        assert (finding.allows, found.told) == ("shadow", "the change leaves all values as they are")


@pytest.mark.parametrize("dtype", ["int64", "uint8", "Int64"])
def test_jitter_moves_a_whole_number_of_little_spread(dtype):
    """A tenth of its spread rounds to 0, and a model of that number alone was called invariant."""
    few = lambda frame: frame.assign(n=np.random.default_rng(0).integers(0, 2, len(frame))).astype({"n": dtype})
    asked = planted.asked(lambda some: np.where(some["n"].astype("float64") > 0, 0.9, 0.1), few(FRAME))
    columns = (InputColumn(name="n", logical_type="integer"),)
    test = {"column": "n", "invariant_to": "jitter", "at_most": 0.05}
    (found,) = behaviour_results(asked, few(SEEN), planted.job(test, columns=columns))
    (finding,) = behaviour_findings([found], [found.declared])
    assert finding.allows == "reject"
    # By 1 up or down: every other row comes to the other side.
    assert known(found.estimate).value == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    "wrong",
    [
        {"column": "x1", "at_most": 0.1},
        RISES | {"invariant_to": "jitter"},
        SWAPPED | {"claim": "label 1"},
        SWAPPED | {"tolerance": 0.1},
        RISES | {"tolerance": -0.1},
        SWAPPED | {"at_most": 0},
        SWAPPED | {"at_most": float("nan")},
        SWAPPED | {"invariant_to": "shuffled"},
        {"column": "x1", "direction": "up", "at_most": 0.1},
        {"column": "x1", "direction": "rises"},
    ],
)
def test_test_that_says_nothing_or_two_things_is_refused(wrong):
    with pytest.raises(ValidationError):
        BehaviourSpec.model_validate(wrong)
