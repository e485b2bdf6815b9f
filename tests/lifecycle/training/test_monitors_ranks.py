"""How rare it is that the newest values lie above those before: exact, whatever the values' distribution."""

import math
from itertools import combinations

import numpy as np
import pytest
from made_signals import told

from trainworthy.lifecycle.engine.training.monitors import curve, spikes
from trainworthy.lifecycle.engine.training.monitors.ranks import FALSE_ALARMS, UPDATES, bar, probability
from trainworthy.lifecycle.engine.training.monitors.spikes import Spikes
from trainworthy.lifecycle.protocol.signals import WINDOW, Signals

DRAWN = {
    "t of 2, squared": lambda random, size: random.standard_t(2, size) ** 2,
    "lognormal": lambda random, size: np.exp(4 * random.normal(size=size)),
    "one row, six in a thousand positive": lambda random, size: np.where(random.random(size) < 0.006, 5.1, 0.006),
    "one row, 45 % far off": lambda random, size: np.where(random.random(size) < 0.45, 5 + random.random(size), 0.01),
}


@pytest.mark.parametrize(("newest", "above", "rank"), [(3, 3, 1), (3, 2, 1), (3, 2, 2), (2, 1, 4), (4, 4, 5)])
def test_probability_is_that_of_all_orders(newest, above, rank):
    """Every choice of places for the newest among all is as likely as any other."""
    before = 5
    holds = []
    for places in combinations(range(before + newest), newest):
        others = sorted(set(range(before + newest)) - set(places), reverse=True)
        holds.append(sum(place > others[rank - 1] for place in places) >= above)
    assert probability(before, newest, above, rank) == pytest.approx(np.mean(holds))


@pytest.mark.parametrize("falls", [1.0, 0.98], ids=["level", "falling"])
@pytest.mark.parametrize("drawn", DRAWN)
def test_bar_is_passed_as_rarely_as_was_asked_whatever_is_drawn(drawn, falls):
    chance, runs = 0.02, 4000
    random = np.random.default_rng(0)
    values = DRAWN[drawn](random, (runs, 46)) * falls ** np.arange(46)
    passed = [(row[40:] > bar(row[:40].tolist(), 6, 5, chance)).sum() >= 5 for row in values]
    # Four standard errors of so many runs.
    assert np.mean(passed) <= chance + 4 * math.sqrt(chance / runs)


def test_bar_of_too_few_values_is_never_passed_and_that_of_many_lies_below_some():
    assert bar([0.0] * 20, 6, 6, 1e-8) == math.inf
    assert bar(list(range(128)), 6, 6, 1e-8) < 127
    assert bar([*range(120), *[1e9] * 2], 16, 16, 1e-8) < 120


def test_chances_of_single_looks_add_up_to_the_rate():
    assert spikes.CHANCE * len(spikes.NEWEST) * UPDATES == pytest.approx(FALSE_ALARMS)
    windows = UPDATES // WINDOW
    assert curve.CHANCE * windows * (windows - 1) / 2 <= FALSE_ALARMS


def far_off(seed: int, count: int, onset: int | None = None) -> list[Signals]:
    """Batches of one row of a network that is sure of itself: 45 % lie far off; from `onset` on all, and farther."""
    random = np.random.default_rng(seed)
    losses = np.where(random.random(count) < 0.45, np.abs(5 + random.normal(size=count)), 0.01 * random.random(count))
    if onset is not None:
        losses[onset:] = 30 + random.random(count - onset)
    return [Signals(step, x, x * x, 1, 1e-3, 1.0, [1.0], 0.0, 0.0) for step, x in enumerate(losses.tolist())]


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_far_off_by_turns_are_no_loss_spike_and_are_one_once_all_are(seed):
    assert not [found for found in told(Spikes(), far_off(seed, 3000)) if found.severity == "critical"]
    found = [one for one in told(Spikes(), far_off(seed, 500, onset=400)) if one.severity == "critical"]
    assert [one.monitor for one in found] == ["loss_spike"]
    assert 400 <= found[0].step <= 415
