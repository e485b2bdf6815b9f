from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import (
    MetricFrame,
    demographic_parity_difference,
    demographic_parity_ratio,
    equalized_odds_difference,
    false_positive_rate,
    selection_rate,
    true_positive_rate,
)
from known import known
from pydantic import ValidationError

from trainworthy.lifecycle.evaluation.fairness import equalized_odds, fairness, sure_of
from trainworthy.lifecycle.evaluation.slices import coded
from trainworthy.lifecycle.protocol.figures import Disparity, Estimate
from trainworthy.lifecycle.spec.benchmark import FairnessSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.regression import Regression
from trainworthy.lifecycle.tasks.statistic_columns import as_columns


def predictions(against: float = 0.0, rows: int = 6_000) -> pd.DataFrame:
    """Rows of 40 groups; the log-odds of value `b` are lowered by `against`, and some values are missing."""
    random = np.random.default_rng(0)
    logits = 1.5 * random.normal(size=rows)
    value = random.choice(["a", "b", "c"], rows, p=[0.5, 0.4, 0.1])
    label = (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(int)
    candidate = 1 / (1 + np.exp(-(logits - against * (value == "b"))))
    told = pd.Series(value, dtype="str").mask(np.arange(rows) % 12 == 0)
    return pd.DataFrame(
        {"group": np.arange(rows) % 40, "label": label, "candidate": candidate, "slice:region": told}
    )  # fmt: skip


def by_region(minimum_rows: int, **limits: float) -> FairnessSpec:
    return FairnessSpec.model_validate(
        {"columns": ("region",), "minimum_rows": minimum_rows, "at_most_difference": limits}
    )


def of_rate(found: tuple[Disparity, ...], rate: str, claim: str = "label 1") -> Disparity:
    return next(one for one in found if one.rate == rate and one.claim in (claim, ""))


def test_fairness_equals_fairlearn():
    frame = predictions(against=0.8)
    found = fairness(frame, by_region(20), "candidate", BINARY)
    decided = (frame["candidate"] >= 0.5).astype(int)
    told = frame["slice:region"].fillna("missing")
    metrics = {
        "selection_rate": selection_rate, "true_positive_rate": true_positive_rate,
        "false_positive_rate": false_positive_rate,
    }  # fmt: skip
    theirs = MetricFrame(metrics=metrics, y_true=frame["label"], y_pred=decided, sensitive_features=told)
    for name in metrics:
        mine = of_rate(found, name)
        assert {one.value.split("=")[-1].split(" ")[-1]: known(one.rate).value for one in mine.values} == pytest.approx(
            theirs.by_group[name].to_dict()
        )
        assert known(mine.difference).value == pytest.approx(theirs.difference()[name])
        assert known(mine.ratio).value == pytest.approx(theirs.ratio()[name])
    given = {"y_true": frame["label"], "y_pred": decided, "sensitive_features": told}
    parity = of_rate(found, "selection_rate")
    assert known(parity.difference).value == pytest.approx(demographic_parity_difference(**given))
    assert known(parity.ratio).value == pytest.approx(demographic_parity_ratio(**given))
    assert known(equalized_odds(found)[0].difference).value == pytest.approx(equalized_odds_difference(**given))


def test_fairness_of_a_planted_disparity_is_shown_and_of_its_healthy_twin_is_not():
    unfair = of_rate(fairness(predictions(against=0.8), by_region(100), "candidate", BINARY), "selection_rate")
    assert unfair.lowest == "region=b"
    assert known(unfair.difference).low > 0.05
    assert known(unfair.ratio).high < 0.95
    # Of two values, so that chance does not choose the pair among many.
    fair = predictions().query("`slice:region` in ['a', 'b']")
    healthy = of_rate(fairness(fair, by_region(100), "candidate", BINARY), "selection_rate")
    difference, ratio = known(healthy.difference), known(healthy.ratio)
    assert difference.low < 0 < difference.high
    assert ratio.low < 1 < ratio.high


def test_fairness_is_of_decisions_at_the_operating_point_where_one_is_declared():
    frame = predictions(against=0.8)
    declared = frame.assign(**{"decision:candidate": (frame["candidate"] >= 0.8).astype(float)})
    found = of_rate(fairness(declared, by_region(100), "candidate", BINARY), "selection_rate")
    rates = (frame["candidate"] >= 0.8).groupby(frame["slice:region"]).mean()
    assert known(next(one for one in found.values if one.value == "region=b").rate).value == pytest.approx(rates["b"])


def test_fairness_of_missing_values_is_a_value_of_its_own():
    found = of_rate(fairness(predictions(), by_region(100), "candidate", BINARY), "selection_rate")
    missing = next(one for one in found.values if one.value == "region missing")
    assert (missing.rows, missing.rate is not None) == (500, True)
    assert sum(one.rows for one in found.values) == 6_000


def test_fairness_of_a_column_with_one_value_says_so():
    frame = predictions().assign(**{"slice:region": "a"})
    for one in fairness(frame, by_region(100), "candidate", BINARY):
        assert one.difference is None
        assert one.ratio is None
        assert "one value" in one.reason


def test_fairness_of_values_with_few_rows_or_groups_leaves_them_out_and_says_so():
    frame = predictions(against=0.8)
    frame.loc[frame["slice:region"] == "c", "slice:region"] = "a"
    frame.loc[:49, "slice:region"] = "few rows"
    frame.loc[frame["group"] < 5, "slice:region"] = "few groups"
    found = of_rate(fairness(frame, by_region(100), "candidate", BINARY), "selection_rate")
    reasons = {one.value: one for one in found.values if one.rate is None}
    assert set(reasons) == {"region=few rows", "region=few groups"}
    assert all(one.reason for one in reasons.values())
    assert reasons["region=few groups"].groups == 5
    assert {found.highest, found.lowest} <= {"region=a", "region=b", "region missing"}


def test_fairness_of_a_rate_that_is_the_same_in_every_group_has_no_interval():
    frame = predictions().assign(candidate=lambda rows: np.where(rows["slice:region"] == "b", 0.1, 0.9))
    found = of_rate(fairness(frame, by_region(100), "candidate", BINARY), "selection_rate")
    assert found.difference is None
    assert "cannot tell" in found.reason
    never = next(known(one.rate) for one in found.values if one.value == "region=b")
    # Nobody of 40 groups was selected: the bound of so many, and no certainty.
    assert (never.value, never.low, never.high) == pytest.approx((0, 0, 1 - 0.025 ** (1 / 40)))


def test_fairness_of_few_rows_has_the_interval_of_few_rows():
    found = of_rate(fairness(predictions(rows=400), by_region(20), "candidate", BINARY), "selection_rate")
    few = next(known(one.rate) for one in found.values if one.value == "region=c")
    assert few.method == "exact"
    assert 0 < few.low < few.value < few.high < 1


def test_fairness_of_a_sensitive_column_names_no_value():
    frame = predictions()
    frame["slice:region"] = coded(frame["slice:region"].rename("region"))
    told = fairness(frame, by_region(100), "candidate", BINARY)
    values = {one.value for disparity in told for one in disparity.values}
    assert values == {"region missing", "region=value 2", "region=value 3", "region=value 4"}


def test_fairness_of_many_values_counts_those_that_it_does_not_name():
    frame = predictions().assign(**{"slice:region": [f"r{place % 30}" for place in range(6_000)]})
    found = of_rate(fairness(frame, by_region(20), "candidate", BINARY), "selection_rate")
    assert (len(found.values), found.other_values, found.other_rows) == (20, 10, 2_000)


def test_fairness_weighs_rows():
    frame = predictions(against=0.8)
    weights = np.where(frame["slice:region"] == "b", 2.0, 1.0) * (1 + frame["label"])
    found = of_rate(fairness(frame.assign(weight=weights), by_region(100), "candidate", BINARY), "selection_rate")
    rows = frame[frame["slice:region"] == "a"]
    expected = np.average(rows["candidate"] >= 0.5, weights=weights[rows.index])
    assert known(next(one for one in found.values if one.value == "region=a").rate).value == pytest.approx(expected)


def by_pairs(frame: pd.DataFrame, rate: str = "selection_rate") -> dict[frozenset[str], Estimate]:
    """Each pair of values, measured by itself."""
    found = {}
    for pair in combinations(frame["slice:region"].unique(), 2):
        of_two = frame[frame["slice:region"].isin(pair)]
        difference = known(of_rate(fairness(of_two, by_region(20), "candidate", BINARY), rate).difference)
        found[frozenset(f"region={one}" for one in pair)] = difference
    return found


@pytest.mark.parametrize("rate", ["selection_rate", "true_positive_rate"])
@pytest.mark.parametrize("weighed", [False, True])
def test_the_widest_and_the_surest_pair_are_those_of_pairs_measured_by_themselves(rate, weighed):
    random = np.random.default_rng(3)
    frame = predictions(against=0.3).dropna()
    # A value in few groups, which move together: its interval is wide and its rate lies between the others.
    few = (frame["slice:region"] == "c") & (frame["group"] % 4 != 0)
    frame.loc[few, "slice:region"] = "a"
    lifted = frame["group"].map(dict(enumerate(random.normal(0, 0.25, 40))))
    frame["candidate"] = (frame["candidate"] + lifted * (frame["slice:region"] == "c")).clip(0, 1)
    if weighed:
        frame["weight"] = random.random(len(frame)) + 0.5
    found = of_rate(fairness(frame, by_region(20), "candidate", BINARY), rate)
    pairs = by_pairs(frame, rate)
    widest, surest = known(found.widest), known(found.surest)
    assert len(pairs) == 3
    assert widest.difference.high == pytest.approx(max(one.high for one in pairs.values()))
    mine = pairs[frozenset((widest.highest, widest.lowest))]
    assert (widest.difference.value, widest.difference.groups) == (pytest.approx(mine.value), mine.groups)
    assert sure_of(surest.difference, 3) == pytest.approx(max(sure_of(one, 3) for one in pairs.values()))


def test_a_pair_that_reaches_beyond_the_extremes_is_the_widest():
    rows = 12_000
    frame = pd.DataFrame({"group": np.arange(rows) % 40, "label": np.arange(rows) % 2})
    value = np.array(["a", "b", "c"])[(np.arange(rows) // 40) % 3]
    share = np.select([value == "a", value == "b"], [0.30, 0.22], 0.25 + 0.25 * np.sin(frame["group"]))
    drawn = np.random.default_rng(0).random(rows) < share
    frame = frame.assign(**{"candidate": np.where(drawn, 0.9, 0.1), "slice:region": value})
    found = of_rate(fairness(frame, by_region(100), "candidate", BINARY), "selection_rate")
    assert (found.highest, found.lowest) == ("region=a", "region=b")
    widest = known(found.widest)
    assert "region=c" in (widest.highest, widest.lowest)
    assert widest.difference.high > known(found.difference).high


def test_pairs_of_rates_that_never_move_have_the_interval_of_so_many_groups():
    frame = predictions().dropna()
    frame["candidate"] = np.where(frame["slice:region"] == "c", frame["candidate"], 0.1)
    found = of_rate(fairness(frame, by_region(100), "candidate", BINARY), "selection_rate")
    assert known(found.surest).highest == "region=c"
    assert known(found.widest).highest == "region=c"
    # Two values that are never selected differ by what 40 groups without an event allow.
    frame.loc[frame["slice:region"] == "c", "slice:region"] = "a"
    frame["candidate"] = 0.1
    alike = of_rate(fairness(frame, by_region(100), "candidate", BINARY), "selection_rate")
    assert known(alike.widest).difference.high == pytest.approx(1 - 0.025 ** (1 / 40))
    assert (alike.difference, alike.surest) == (None, None)


def test_fairness_of_a_number_shows_for_whom_it_is_too_high():
    random = np.random.default_rng(0)
    value, label = random.choice(["a", "b"], 4_000), random.normal(size=4_000)
    frame = pd.DataFrame({"group": np.arange(4_000) % 30, "label": label, "slice:region": value})
    frame["candidate"] = label + random.normal(size=4_000) + (value == "b")
    found = of_rate(fairness(frame, by_region(100), "candidate", Regression()), "mean_error")
    assert found.highest == "region=b"
    assert known(found.difference).low < 1 < known(found.difference).high
    assert found.ratio is None


def test_fairness_of_classes_is_told_for_each():
    random = np.random.default_rng(0)
    kind, label = Multiclass(("x", "y", "z")), random.integers(0, 3, 3_000)
    answers = random.dirichlet([1, 1, 1], 3_000) + 0.5 * np.eye(3)[label]
    answers /= answers.sum(axis=1, keepdims=True)
    frame = pd.DataFrame(
        {"group": np.arange(3_000) % 20, "label": label, "slice:region": random.choice(["a", "b"], 3_000)}
    )
    frame[[f"candidate:{name}" for name in "xyz"]] = answers
    found = fairness(frame, by_region(100), "candidate", kind)
    assert {one.claim for one in found if one.rate == "selection_rate"} == {"class x", "class y", "class z"}


def many_classes(against: str, count: int = 20, rows: int = 8_000) -> tuple[pd.DataFrame, Multiclass]:
    """Rows of classes that are all predicted as often for each value, but that of the name `against`."""
    random = np.random.default_rng(0)
    kind = Multiclass(tuple(f"k{place}" for place in range(count)))
    shares = np.linspace(2, 1, count) / np.linspace(2, 1, count).sum()
    label, predicted = (random.choice(count, rows, p=shares) for _ in range(2))
    value = random.choice(["a", "b"], rows)
    if against:
        predicted[(value == "b") & (random.random(rows) < 0.3)] = int(against.removeprefix("k"))
    answers = np.full((rows, count), 0.5 / count)
    answers[np.arange(rows), predicted] += 0.5
    told = {"group": np.arange(rows) % 40, "label": label, "slice:region": value}
    return pd.DataFrame(told | as_columns(kind, "candidate", answers)), kind


def test_a_limit_is_asked_of_every_class_and_the_farthest_is_kept():
    frame, kind = many_classes("k19")
    plain = fairness(frame, by_region(20), "candidate", kind)
    assert "class k19" not in {one.claim for one in plain}
    found = fairness(frame, by_region(20, selection_rate=0.1), "candidate", kind)
    assert found[: len(plain)] == plain
    worst = of_rate(found, "selection_rate", "class k19")
    assert known(worst.surest).difference.low > 0.2
    assert 0 < len(found) - len(plain) <= 3
    assert {one.rate for one in found[len(plain) :]} == {"selection_rate"}


def test_a_class_that_has_no_rate_is_kept_where_it_has_a_limit():
    frame, kind = many_classes("")
    frame.loc[frame["label"] == 19, "slice:region"] = "a"
    found = fairness(frame, by_region(20, true_positive_rate=0.1), "candidate", kind)
    assert of_rate(found, "true_positive_rate", "class k19").difference is None


def test_a_protected_column_that_is_named_twice_is_refused():
    with pytest.raises(ValueError, match="columns are named twice: region"):
        FairnessSpec(columns=("region", "age", "region"))


def test_differences_of_shares_of_few_rows_stay_within_what_there_can_be():
    """Two groups hold nearly all rows of a value and answer otherwise: the jackknife alone reaches beyond -1 and 1."""
    group = np.repeat(np.arange(20), 12)
    region = np.where(group % 2 == 0, "a", "b")
    sure = np.where(group < 4, 0.9, 0.1)
    frame = pd.DataFrame({"group": group, "label": np.arange(240) % 2, "candidate": sure, "slice:region": region})
    frame.loc[frame["slice:region"].eq("b") & (group != 1), "candidate"] = 0.9
    frame = pd.concat([frame, *[frame[frame["group"].isin((0, 1, 4))]] * 20], ignore_index=True)
    found = fairness(frame, by_region(20), "candidate", BINARY)
    told = [one for one in found if one.rate == "selection_rate"]
    cut = 0
    for one in told:
        assert one.difference is not None
        assert one.ratio is not None
        assert -1 <= one.difference.low <= one.difference.value <= one.difference.high <= 1
        assert 0 <= one.ratio.low <= one.ratio.value <= one.ratio.high
        reach = 2.2 * one.difference.standard_error
        cut += one.difference.value + reach > 1 or one.difference.value - reach < -1 or one.ratio.low == 0
        assert one.widest is not None
        assert one.widest.difference.high <= 1
    assert cut


def test_what_too_few_rows_allow_is_declared_beside_a_limit_and_left_out_changes_no_suite():
    limited = {"columns": ["sex"], "at_most_difference": {"selection_rate": 0.1}}
    plain, warned = (FairnessSpec.model_validate({**limited, **more}) for more in ({}, {"on_underpowered": "warn"}))
    # As suites that were judged before there was such a key have it.
    assert "on_underpowered" not in plain.model_dump(mode="json")
    assert warned.model_dump(mode="json")["on_underpowered"] == "warn"
    with pytest.raises(ValidationError, match="nothing decides here without at_most_difference"):
        FairnessSpec.model_validate({"columns": ["sex"], "on_underpowered": "warn"})
