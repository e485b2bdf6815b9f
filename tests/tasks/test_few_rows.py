"""Intervals of shares where few rows tell of them, against scipy and by how often they hold the truth."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, chi2
from sklearn.metrics import accuracy_score, precision_score, recall_score

from trainworthy.lifecycle.protocol.figures import BY_GROUP, Estimate
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.few_rows import difference_of_few, tango
from trainworthy.lifecycle.tasks.interval import mean_estimate
from trainworthy.lifecycle.tasks.metric import TaskMetric, estimate, gain, group_sums, ratio
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.multilabel import Multilabel

ACCURACY = BINARY.metrics["accuracy"]


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = (random.random(count) < 0.4).astype(float)
    return labels, np.clip(0.4 * labels + 0.6 * random.random(count), 0, 1)


@pytest.mark.parametrize("name", ["accuracy", "recall", "precision"])
def test_share_of_rows_that_are_groups_of_their_own_has_clopper_and_pearsons_interval(name):
    labels, answers = rows(60)
    found = estimate(BINARY.metrics[name], labels, answers, np.arange(60))
    decided = answers >= 0.5
    counted = {"accuracy": 60, "recall": int(labels.sum()), "precision": int(decided.sum())}[name]
    of_sklearn = {"accuracy": accuracy_score, "recall": recall_score, "precision": precision_score}[name]
    assert found.value == pytest.approx(of_sklearn(labels, decided))
    oracle = binomtest(round(found.value * counted), counted).proportion_ci(method="exact")
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=1e-9)
    assert found.method == "exact"
    assert found.made == f"Clopper–Pearson, {counted} effective of {counted} rows"


def test_share_of_groups_whose_rows_are_copies_has_the_interval_of_the_groups():
    labels, answers = rows(30)
    alone = estimate(ACCURACY, labels, answers, np.arange(30))
    copied = estimate(ACCURACY, labels.repeat(10), answers.repeat(10), np.arange(30).repeat(10))
    # 30 rows ten times over tell as much as 30, but for the quantile of t by which Korn and Graubard count rows.
    assert copied.low <= alone.low + 0.01
    assert copied.high >= alone.high - 0.01
    assert "of 300 rows" in copied.made


def test_share_of_many_rows_keeps_the_t_by_group_bit_for_bit():
    labels, answers = rows(20_000)
    groups = np.arange(20_000) % 40
    found = estimate(ACCURACY, labels, answers, groups)
    assert found.method == BY_GROUP
    right = ((answers >= 0.5) == labels).astype(float)
    assert (found.low, found.high) == pytest.approx(_ends(mean_estimate(right, groups)), rel=2e-3)
    mine, theirs = Multiclass(("a", "b")), np.stack([1 - answers, answers], axis=1)
    classes = estimate(mine.metrics["accuracy"], labels.astype(int), theirs, groups)
    assert classes == mean_estimate(right, groups)


def _ends(found: Estimate) -> tuple[float, float]:
    return found.low, found.high


def test_share_of_few_rows_lies_in_0_and_1_and_weights_count():
    labels, answers = rows(40)
    found = estimate(ACCURACY, labels, answers, np.arange(40) % 8)
    assert 0 <= found.low < found.value < found.high <= 1
    light = np.where(np.arange(40) < 20, 1.0, 1e-9)
    weighed = estimate(ACCURACY, labels, answers, np.arange(40), light)
    half = estimate(ACCURACY, labels[:20], answers[:20], np.arange(20))
    assert weighed.value == pytest.approx(half.value, abs=1e-6)
    assert weighed.high - weighed.low >= half.high - half.low - 1e-6


def test_every_share_of_a_kind_names_the_rows_that_it_is_the_mean_of():
    random = np.random.default_rng(3)
    several = random.random((90, 3))
    cases = [
        (BINARY, (random.random(90) < 0.5).astype(float), random.random(90)),
        (Multiclass(("a", "b", "c")), random.integers(0, 3, 90), several / several.sum(axis=1, keepdims=True)),
        (Multilabel(("x", "y", "z")), (random.random((90, 3)) < 0.5).astype(float), several),
        (kind_of(Target(kind="regression", quantiles=(0.1, 0.5, 0.9))), random.random(90), np.sort(several, axis=1)),
    ]
    shares = 0
    for kind, labels, answers in cases:
        for metric in kind.metrics.values():
            if metric.events is None:
                continue
            events = metric.events(labels, answers)
            assert np.nanmean(events) == pytest.approx(estimate(metric, labels, answers, np.arange(90) % 30).value)
            assert set(events[~np.isnan(events)]) <= {0.0, 1.0}
            shares += 1
    assert shares == 3 + 1 + 6 + 1 + 6 + 4


def test_tango_holds_0_where_mcnemar_does_not_reject():
    for better in range(13):
        for worse in range(13):
            low, high = tango(better, worse, 40)
            statistic = (better - worse) ** 2 / (better + worse) if better + worse else 0.0
            assert (low <= 0 <= high) == (chi2.sf(statistic, 1) >= 0.05)
            assert -1 <= low <= (better - worse) / 40 <= high <= 1
            assert tango(worse, better, 40) == pytest.approx((-high, -low), abs=1e-9)


def test_tango_ends_where_the_most_likely_pairs_of_that_difference_are_rejected():
    better, worse, count = 7, 1, 21
    for end in tango(better, worse, count):
        least = max(0.0, -end)

        def unlikely(share: float, end: float = end) -> float:
            """Of pairs of which `share` are worse and `share + end` are better."""
            same = 1 - 2 * share - end
            return -(better * np.log(share + end) + worse * np.log(share) + (count - better - worse) * np.log(same))

        best = minimize_scalar(unlikely, bounds=(least + 1e-9, (1 - end) / 2 - 1e-9), method="bounded")
        variance = (2 * best.x + end - end**2) / count
        assert abs((better - worse) / count - end) / np.sqrt(variance) == pytest.approx(1.96, abs=1e-3)


def test_tango_of_pairs_that_all_differ_one_way_ends_at_1():
    assert tango(5, 0, 5)[1] == 1.0
    assert tango(0, 5, 5)[0] == -1.0


def test_gain_in_decisions_of_which_none_differ_is_not_certain():
    labels, answers = rows(80)
    groups = np.arange(80) % 10
    classes = Multiclass(("a", "b"))
    mine = np.stack([1 - answers, answers], axis=1)
    sharper = mine**2 / (mine**2).sum(axis=1, keepdims=True)
    found = gain(classes.metrics["accuracy"], labels.astype(int), mine, sharper, groups)
    assert (found.value, found.standard_error) == (0.0, 0.0)
    assert (found.low, found.high) == pytest.approx(tango(0, 0, 10))
    assert found.method == "score"
    assert found.made == "Tango's score interval, 10 effective of 80 rows"


def test_gain_without_spread_of_a_bounded_loss_is_not_certain_and_of_an_unbounded_one_has_no_width():
    groups = np.arange(80) % 10
    cost = TaskMetric("cost", False, rows=lambda _, answers: (answers > 0.5) * 5.0, low=0.0, high=5.0)
    answers = np.where(np.arange(80) % 4 == 0, 0.9, 0.1)
    bounded = gain(cost, answers, answers, answers * 0.99, groups)
    assert bounded.low < 0 < bounded.high
    unbounded = TaskMetric("cost", False, rows=cost.rows)
    assert not gain(unbounded, answers, answers, answers * 0.99, groups).has_width


def test_gain_that_is_the_same_in_all_groups_but_for_rounding_has_no_width():
    flat = TaskMetric("loss", False, rows=lambda _, answers: answers)
    groups = np.arange(90) % 9
    found = gain(flat, np.zeros(90), np.full(90, 0.1) + 0.2, np.full(90, 0.7), groups)
    assert not found.has_width
    assert not found.shows_gain


def test_equal_losses_that_were_rounded_otherwise_show_neither_a_gain_nor_a_loss():
    unbounded = TaskMetric("loss", False, rows=lambda _, answers: answers)
    summed = TaskMetric(
        "loss", False,
        sums=lambda _, answers, codes, weights: group_sums([answers, None], codes, weights),
        of_sums=lambda sums: ratio(sums[..., 0], sums[..., 1]),
    )  # fmt: skip
    groups, beside_0 = np.arange(3000) % 30, 0
    for seed in range(200):
        losses = np.random.default_rng(seed).exponential(size=3000)
        plain = mean_estimate(losses - losses * 3 / 3, groups)
        beside_0 += plain.shows_gain or plain.shows_loss
        for metric in (unbounded, summed):
            found = gain(metric, losses, losses * 3 / 3, losses, groups)
            assert (found.value, found.low, found.high, found.has_width) == (0.0, 0.0, 0.0, False)
    # Without reckoning with the scale.
    assert beside_0 > 0


def test_a_gain_that_is_small_beside_the_losses_keeps_its_interval():
    losses = np.random.default_rng(0).exponential(size=3000)
    flat = TaskMetric("loss", False, rows=lambda _, answers: answers)
    less = losses - 1e-6 * np.random.default_rng(1).random(3000)
    assert gain(flat, losses, less, losses, np.arange(3000) % 30).shows_gain


def test_gain_of_few_decisions_that_differ_is_wider_than_the_t_by_group():
    random = np.random.default_rng(5)
    held = {"t": 0, "Tango": 0}
    # Worse by 0.015, where 3 % of the rows differ: 15 groups of 10 rows.
    for _ in range(600):
        moved = random.choice([1.0, 0.0, -1.0], p=[0.0075, 0.97, 0.0225], size=150)
        groups = np.arange(150) % 15
        plain = mean_estimate(moved, groups)
        better, worse, sizes = (np.bincount(groups, weights=one) for one in (moved > 0, moved < 0, np.ones(150)))
        few = difference_of_few(plain, better, worse, sizes, 150)
        held["t"] += plain.low <= -0.015 <= plain.high
        held["Tango"] += few.low <= -0.015 <= few.high
    assert held["Tango"] / 600 >= 0.95
    assert held["t"] < held["Tango"]


def test_share_of_groups_that_resemble_each_other_is_held_where_the_t_misses_it():
    random, held = np.random.default_rng(7), {"t": 0, "exact": 0}
    share = TaskMetric("share", True, rows=lambda labels, _: labels, low=0.0, high=1.0, events=lambda labels, _: labels)
    groups = np.repeat(np.arange(8), 10)
    for _ in range(600):
        # Intraclass correlation 0.3 about a share of 0.1.
        drawn = (random.random(80) < random.beta(0.1 * 7 / 3, 0.9 * 7 / 3, 8)[groups]).astype(float)
        for name, found in (
            ("t", mean_estimate(drawn, groups)), ("exact", estimate(share, drawn, drawn, groups)),
        ):  # fmt: skip
            held[name] += found.low <= 0.1 <= found.high
    assert held["exact"] / 600 >= 0.92
    assert held["t"] / 600 <= 0.88


def test_detectable_difference_of_an_interval_without_a_standard_error_is_not_0():
    alike = estimate(ACCURACY, np.ones(90), np.ones(90), np.arange(90) % 30)
    assert alike.standard_error == 0
    assert alike.detectable > alike.value - alike.low
