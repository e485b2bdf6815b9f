"""The interval of a ratio over pairs of processes, beside simulated models whose true ratio is known."""

import numpy as np
import pytest
from scipy import stats

from trainworthy.lifecycle.protocol.serving import ServingFigure
from trainworthy.lifecycle.serving.ratio import Ratio, Span, paired_ratio

REPETITIONS, PAIRS = 400, 9


def exact(seconds: float) -> Span:
    return Span(seconds, seconds)


def simulated(generator: np.random.Generator, true: float) -> tuple[float, float]:
    """Pairs of processes with a load that both share, and noise of its own that is heavy-tailed upwards."""
    shared = generator.lognormal(sigma=0.5, size=PAIRS)
    first, second = 1 + 0.05 * np.abs(stats.t(2).rvs((2, PAIRS), random_state=generator))
    pairs = zip(shared * first * true, shared * second, strict=True)
    found = paired_ratio([(exact(mine), exact(theirs)) for mine, theirs in pairs])
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


@pytest.mark.parametrize("true", [1.0, 1.3])
def test_ratio_lies_in_its_interval_as_often_as_it_says_with_heavy_tails_and_a_shared_load(true):
    generator = np.random.default_rng(20261126)
    found = [simulated(generator, true) for _ in range(REPETITIONS)]
    held = sum(low <= true <= high for low, high in found)
    # 96.1 % by the binomial distribution, less three standard errors of so many repetitions.
    assert held / REPETITIONS > 0.961 - 3 * (0.961 * 0.039 / REPETITIONS) ** 0.5
    assert sum(low > true for low, _ in found) / REPETITIONS < 0.05
    # A model that is a third slower is found by nearly all of them.
    assert sum(low > 1.1 for low, _ in found) / REPETITIONS == pytest.approx(float(true > 1.2), abs=0.1)


def test_ratio_is_the_median_of_pairs_and_not_of_the_models():
    pairs = [(exact(load * 1.2), exact(load)) for load in (1.0, 50.0, 3.0, 0.2, 7.0, 11.0, 400.0)]
    found = paired_ratio(pairs)
    assert (found.value, found.low, found.high) == pytest.approx((1.2, 1.2, 1.2))


def test_ratio_of_fewer_than_six_pairs_has_no_interval():
    assert paired_ratio([(exact(2.0), exact(1.0))] * 5) == Ratio(2.0, None, None)
    assert paired_ratio([(exact(2.0), exact(1.0))] * 6) == Ratio(2.0, 2.0, 2.0)


def test_ratio_beside_other_work_is_as_wide_as_that_work_may_have_made_it():
    busy = Span(1.0, 1.5)
    assert busy.busy
    assert not exact(1.0).busy
    found = paired_ratio([(busy, busy)] * 9)
    assert (found.low, found.high) == pytest.approx((1 / 1.5, 1.5))
    # Two rounds of nine in which other work had a part widen nothing.
    quiet = paired_ratio([(busy, exact(1.0))] + [(exact(1.0), busy)] + [(exact(1.0), exact(1.0))] * 7)
    assert (quiet.low, quiet.high) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "limit", "standing"),
    [
        (1.0, 1.1, 1.2, "pass"),
        (1.0, 1.2, 1.2, "pass"),
        (1.1, 1.3, 1.2, "insufficient"),
        (1.2, 1.3, 1.2, "insufficient"),
        (1.21, 1.3, 1.2, "fail"),
        (None, None, 1.2, "insufficient"),
        (5.0, 6.0, None, "not_asked"),
    ],
)
def test_figure_stands_to_its_limit_by_its_whole_interval(low, high, limit, standing):
    assert ServingFigure(quantity="latency", ratio=1.15, low=low, high=high, limit=limit).standing == standing
