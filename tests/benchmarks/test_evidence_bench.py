import re

import numpy as np
import pytest

from benchmarks.evidence import Scored, Sums, _share, held, iid_interval, in_a_row, interval, mean_of, of_days
from benchmarks.few_rows import _held, few_rows
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import mean_estimate
from trainworthy.lifecycle.tasks.metric import estimate, group_sums
from trainworthy.lifecycle.tasks.probabilities import log_loss


def scored(rows: int = 3_000, days: int = 30) -> Scored:
    random = np.random.default_rng(0)
    answers = random.random(rows)
    return Scored((random.random(rows) < answers).astype(float), answers, np.sort(random.integers(0, days, rows)))


def test_intervals_of_draws_equal_those_of_the_evaluation():
    rows = scored()
    days = np.random.default_rng(1).integers(0, 30, (3, 20))
    loss = log_loss(rows.labels, rows.answers)
    recall = (rows.labels == 1, (rows.labels == 1) & (rows.answers >= 0.5))
    means = mean_of(loss, rows.days)
    shares = Sums(group_sums([one.astype(float) for one in recall], rows.days, None), _share)
    for place, drawn in enumerate(of_days(rows, days)):
        of_loss = log_loss(drawn.labels, drawn.answers)
        expected = mean_estimate(of_loss, drawn.days)
        assert [end[place] for end in interval(means, days)] == pytest.approx([expected.low, expected.high])
        expected = estimate(BINARY.metrics["recall"], drawn.labels, drawn.answers, drawn.days)
        assert [end[place] for end in interval(shares, days)] == pytest.approx([expected.low, expected.high])


def test_interval_of_independent_rows_is_that_of_their_mean():
    rows = scored()
    low, high = iid_interval(mean_of(rows.answers, rows.days), np.arange(30)[None])
    reach = 1.96 * rows.answers.std() / np.sqrt(len(rows.answers))
    assert (low[0], high[0]) == pytest.approx((rows.answers.mean() - reach, rows.answers.mean() + reach))


def test_held_counts_no_interval_without_width_and_windows_hold_days_in_a_row():
    metric = mean_of(np.ones(60), np.repeat(np.arange(30), 2))
    assert held(metric, np.array([0.5, 1.0, 1.1]), np.array([1.5, 1.0, 1.2])) == pytest.approx(1 / 3)
    assert in_a_row(32).tolist() == [list(range(start, start + 30)) for start in range(3)]


def test_few_rows_are_counted_by_each_method(capsys):
    figures = few_rows(4)
    lines = re.findall(r"^.*\d\.\d{3}$", capsys.readouterr().out, re.MULTILINE)
    assert len(lines) == 18 + 12 + 9
    assert all(0 <= missed <= 1 for missed in figures.values())
    assert {"few_shares_alike_exact", "few_decisions_independent_tango", "few_losses_bootstrap"} <= figures.keys()
    assert _held([Estimate(value=0.5, low=0.5, high=0.5, standard_error=0.0, groups=9)], 0.5) == 0
