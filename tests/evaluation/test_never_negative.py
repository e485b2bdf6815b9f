"""Intervals of what is never below 0, such as a loss, do not reach below it; and hold the truth as often."""

import numpy as np
import pandas as pd
from known import known

from trainworthy.lifecycle.evaluation.residuals import residuals
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import mean_estimate, never_negative
from trainworthy.lifecycle.tasks.metric import estimate


def rare_losses(seed: int, groups: int = 12, rows: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Losses of which one row in twenty has nearly all, and their groups; the true mean is 0.17."""
    random = np.random.default_rng(seed)
    losses = 0.02 + (random.random(groups * rows) < 0.05) * random.exponential(3, groups * rows)
    return losses, np.repeat(np.arange(groups), rows)


def test_interval_of_rare_losses_stays_above_0_and_holds_the_truth_more_often_than_t():
    plain = [mean_estimate(*rare_losses(seed)) for seed in range(400)]
    bounded = [never_negative(one) for one in plain]
    assert any(one.low < 0 for one in plain)
    assert all(0 < one.low <= one.value <= one.high for one in bounded)
    holds = [sum(one.low <= 0.17 <= one.high for one in found) for found in (plain, bounded)]
    assert holds[0] < holds[1]


def test_interval_that_lies_above_0_stays_what_it_is():
    values, groups = np.random.default_rng(0).exponential(size=400), np.repeat(np.arange(40), 10)
    plain = mean_estimate(values, groups)
    assert plain.low > 0
    assert never_negative(plain) is plain
    nothing = mean_estimate(np.zeros(400), groups)
    assert never_negative(nothing) is nothing


def one_bad_day(days: int = 10, rows: int = 40) -> pd.DataFrame:
    """Answers that are nearly sure and right, but for one day on which they are wrong."""
    frame = pd.DataFrame(
        {"row": np.arange(days * rows), "group": np.repeat([f"2024-01-{d + 10}" for d in range(days)], rows)}
    )
    frame["label"] = frame["row"] % 2
    right = np.where(frame["label"] == 1, 0.999, 0.001)
    frame["candidate"] = np.where((frame["row"] // rows == 3) & (frame["row"] % 3 > 0), 1 - right, right)
    frame["prior"] = 0.5
    return frame


def test_where_the_loss_lies_no_interval_of_a_loss_reaches_below_0_and_a_gain_may():
    frame = one_bad_day()
    features = pd.DataFrame({"origin": np.where(frame["row"] % 4 < 2, "EWR", "JFK")})
    found = known(residuals(frame, features, BINARY, ["prior"], ordered=True))
    parts = [part for axis in found.axes for part in axis.parts if part.loss is not None]
    assert any(known(part.loss).method == "log_scale" for part in parts)
    assert all(known(part.loss).low > 0 for part in parts)
    assert any(known(part.gain).low < 0 for part in parts)


def test_metric_and_part_of_all_rows_have_one_interval():
    frame = one_bad_day()
    whole = estimate(
        BINARY.metrics["log_loss"], frame["label"].to_numpy(), frame["candidate"].to_numpy(), frame["group"]
    )
    assert whole.method == "log_scale"
    found = known(residuals(frame, pd.DataFrame({"all": ["x"] * 380 + ["y"] * 20}), BINARY, ["prior"], ordered=False))
    assert known(found.axes[0].parts[0].loss).low > 0
