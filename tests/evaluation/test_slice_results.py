"""What is measured of the slices that decide."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.evaluation.slice_parts import slice_parts
from trainworthy.lifecycle.evaluation.slice_results import measured_slices, with_gains
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import mean_estimate, without_spread
from trainworthy.lifecycle.tasks.metric import TaskMetric, estimate, gain


def benchmark(*slices) -> BenchmarkSpec:
    return BenchmarkSpec.model_validate(
        {
            "primary": {"metric": "log_loss", "margin": 0.01},
            "baselines": ["prior", "linear"],
            "latency_ms": 1,
            "size_mb": 1,
            "slices": slices,
        }
    )


def answers(seed: int = 0, rows: int = 4000, collapsed: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Answers that know the truth, but on the night's rows where they collapsed; and the rows."""
    random = np.random.default_rng(seed)
    truth = random.beta(1, 3, rows)
    night = np.arange(rows) % 20 == 0
    frame = pd.DataFrame({"row": np.arange(rows), "group": np.arange(rows) // (rows // 40)})
    frame["label"] = (random.random(rows) < truth).astype(int)
    frame["candidate"] = np.where(night & collapsed, 1 - truth, truth)
    return frame, pd.DataFrame({"night": night, "hour": np.arange(rows) % 24})


def test_a_bound_is_held_against_the_metric_on_the_slices_rows_alone():
    frame, rows = answers(collapsed=True)
    spec = benchmark({"where": "night == True", "metric": "brier", "at_most": 0.25})
    parts = slice_parts(spec, frame, rows, Path(), ())
    (result,) = measured_slices(frame, parts, spec, BINARY)
    some = frame[rows["night"]]
    assert (result.rows, result.groups, result.metric, result.told) == (200, 40, "brier", "")
    assert result.estimate == mean_estimate((some["label"] - some["candidate"]) ** 2, some["group"])
    assert result.gain is None


def test_a_margin_is_held_against_the_paired_gain_over_the_champion():
    bad, rows = answers(collapsed=True)
    good, _ = answers()
    spec = benchmark({"where": "night == True", "champion_margin": 0.02}, {"where": "hour == 3", "at_most": 1})
    parts = slice_parts(spec, bad, rows, Path(), ())
    plain = measured_slices(bad, parts, spec, BINARY)
    assert [result.estimate is None for result in plain] == [True, False]
    night, hour = with_gains(plain, parts, bad, good, spec, BINARY)
    assert night.gain is not None
    assert night.gain.high < -0.02
    # Told as well where nothing is declared of it.
    assert hour.gain is not None
    assert hour.declared.champion_margin is None
    same = with_gains(plain, parts, bad, bad, spec, BINARY)[0].gain
    assert same is not None
    assert same.value == 0


def test_rows_of_one_label_have_a_mean_loss_and_no_auc():
    frame, rows = answers()
    frame.loc[rows["night"], "label"] = 0
    spec = benchmark(
        {"where": "night == True", "at_most": 0.9, "champion_margin": 0.02},
        {"where": "night == True and hour < 99", "metric": "auc", "at_least": 0.5},
    )
    parts = slice_parts(spec, frame, rows, Path(), ())
    worse = frame.assign(candidate=np.where(rows["night"], 0.9, frame["candidate"]))
    loss, auc = with_gains(measured_slices(worse, parts, spec, BINARY), parts, worse, frame, spec, BINARY)
    assert loss.told == ""
    assert loss.estimate is not None
    assert loss.estimate.value == pytest.approx(-np.log(0.1))
    assert loss.gain is not None
    assert loss.gain.high < -0.02
    assert (auc.estimate, auc.told) == (None, "label 1 occurs in 0 groups, fewer than 2")


@pytest.mark.parametrize(
    ("where", "told"), [("hour == 99", "no row"), ("hour < 0", "no row"), ("night == True and hour == 4", "groups")]
)
def test_what_cannot_be_measured_has_no_figure_and_says_why(where, told):
    frame, rows = answers(rows=400)
    spec = benchmark({"where": where, "at_most": 0.5, "champion_margin": 0.1})
    frame = frame.assign(group=frame["group"] // 8)
    parts = slice_parts(spec, frame, rows, Path(), ())
    (result,) = with_gains(measured_slices(frame, parts, spec, BINARY), parts, frame, frame, spec, BINARY)
    assert (result.estimate, result.gain) == (None, None)
    assert told in result.told or "rows" in result.told


def test_detectable_is_what_four_of_five_benchmarks_show():
    found = Estimate(value=0.0, low=-0.1, high=0.1, standard_error=0.05, groups=31)
    random = np.random.default_rng(0)
    shown = 0
    for _ in range(2000):
        # 31 groups around the detectable difference, with the spread that gives this standard error.
        values = found.detectable + random.standard_normal(31) * 0.05 * np.sqrt(31)
        shown += mean_estimate(values, np.arange(31)).low > 0
    assert 0.78 <= shown / 2000 <= 0.82


def test_groups_that_are_all_alike_leave_what_the_next_one_could_be():
    right = TaskMetric("accuracy", True, rows=lambda labels, found: (labels == found).astype(float), low=0.0, high=1.0)
    labels, groups = np.ones(300), np.repeat(np.arange(30), 10)
    found = estimate(right, labels, labels, groups)
    assert (found.value, found.high) == (1.0, 1.0)
    # Clopper and Pearson's bound for 0 events in 30 groups.
    assert found.low == pytest.approx(0.025 ** (1 / 30))
    # A group without an event has no recall of its own, and says nothing.
    recall = BINARY.metrics["recall"]
    rare = np.where(groups < 9, 1.0, 0.0)
    narrow = estimate(recall, rare, np.where(rare > 0, 0.9, 0.1), groups)
    assert narrow.low == pytest.approx(0.025 ** (1 / 9))


def test_without_spread_few_groups_and_a_metric_without_bounds_keep_a_width_of_0():
    plain = Estimate(value=0.3, low=0.3, high=0.3, standard_error=0.0, groups=30)
    assert without_spread(plain, float("inf"), 30) == plain
    assert without_spread(plain, 1.0, 7) == plain


def test_two_models_that_catch_the_same_few_events_are_not_shown_to_be_alike():
    labels, groups = np.tile([1.0, 0.0, 0.0, 0.0], 75), np.repeat(np.arange(30), 10)
    recall, mine = BINARY.metrics["recall"], np.where(labels > 0, 0.9, 0.1)
    # Of other answers, but equal decisions.
    found = gain(recall, labels, mine, mine * 0.95, groups)
    assert (found.value, found.standard_error) == (0.0, 0.0)
    assert found.low < 0 < found.high
    # Of decisions that are equal here nobody knows that they are everywhere; of losses the interval has no width.
    assert gain(recall, labels, mine, mine, groups) == found
    assert not gain(BINARY.metrics["log_loss"], labels, mine, mine, groups).has_width
