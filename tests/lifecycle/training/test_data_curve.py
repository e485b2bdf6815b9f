"""The data-learning curve: what two points and a spread can tell, and what they cannot."""

import math

import numpy as np
import pytest

from trainworthy.lifecycle.gates.data_curve import Point, curve_after_full, curve_at_pilot, data_curve_check, point_of
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.tasks.regression import Regression

USD = Forecast(name="remaining_cost", unit="usd", value=0.2, low=0.1, high=0.4)
PRIOR = 0.69


def point(rows, *losses, prior_loss=PRIOR):
    return Point(rows=rows, losses=losses, prior_loss=prior_loss)


def drawn(rows, asymptote, power, generator, seeds=1):
    """Losses of a power law, each with noise that falls with the square root of the rows."""
    loss = asymptote + 2 * rows**-power
    return point(rows, *(loss + generator.normal(size=seeds) * 0.3 / math.sqrt(rows)))


@pytest.mark.parametrize("power", [0.15, 0.3, 0.5])
@pytest.mark.parametrize("asymptote", [0.1, 0.3])
def test_curve_of_a_power_law_holds_what_full_reaches(power, asymptote):
    """Over 200 draws: an interval of 95 % that is wide on purpose may not miss more often than it says."""
    generator, missed = np.random.default_rng(0), 0
    for _ in range(200):
        smoke, pilot = (drawn(rows, asymptote, power, generator, seeds) for rows, seeds in ((2000, 1), (20_000, 3)))
        smoke = smoke.model_copy(update={"prior_loss": 10.0})
        curve = curve_at_pilot(smoke, pilot, 200_000, USD, "restart", Words())
        full = drawn(200_000, asymptote, power, generator).loss
        assert curve.full_loss is not None
        missed += not curve.full_loss.low <= full <= curve.full_loss.high
    assert missed <= 0.05 * 200


@pytest.mark.parametrize(
    ("smoke", "pilot", "mode", "told"),
    [
        (point(1000, 0.5), point(10_000, 0.4), "restart", "fewer than 3 seeds"),
        (point(1000, 0.5), point(10_000, 0.4, 0.41), "restart", "fewer than 3 seeds"),
        (point(1000, 0.69), point(10_000, 0.4, 0.41, 0.42), "restart", "no more than the label prior"),
        (point(1000, 0.5), point(10_000, 0.4, 0.41, 0.42), "continue", "pauses of one schedule"),
        (point(9000, 0.5), point(10_000, 0.4, 0.41, 0.42), "restart", "too near"),
        (None, point(10_000, 0.4, 0.41, 0.42), "restart", "not validated"),
        (point(1000, 0.5), None, "restart", "not validated"),
    ],
)
def test_curve_that_cannot_be_told_says_why_and_neither_stops_nor_warns(smoke, pilot, mode, told):
    curve = curve_at_pilot(smoke, pilot, 100_000, USD, mode, Words())
    assert curve.gain is None
    assert curve.full_loss is None
    assert told in curve.told
    assert data_curve_check(curve, pilot, 0.005).status == "not_applicable"


def test_curve_that_still_falls_passes_and_names_gain_and_cost():
    pilot = point(10_000, 0.400, 0.401, 0.402)
    curve = curve_at_pilot(point(1000, 0.5), pilot, 100_000, USD, "restart", Words())
    assert "doubling the rows lowers the validation loss by 0.0000 to 0.0" in curve.told
    assert "10.0 times the rows" in curve.told
    assert curve.told.endswith("0.1000 to 0.4000 USD")
    check = data_curve_check(curve, pilot, 0.005)
    assert check.status == "pass"
    assert check.observed == pytest.approx(0.1, abs=0.05)


def test_curve_that_is_flat_warns_for_the_simpler_model_and_never_stops():
    pilot = point(10_000, 0.4000, 0.4001, 0.4002)
    curve = curve_at_pilot(point(1000, 0.4003), pilot, 100_000, USD, "restart", Words())
    check = data_curve_check(curve, pilot, 0.005)
    assert check.status == "fail"
    assert not check.stops
    assert "simpler model" in check.fix
    # A margin in another unit than the loss cannot be held against it.
    assert data_curve_check(curve, pilot, None).status == "pass"


def test_curve_that_rises_bounds_the_gain_at_nothing_or_more():
    curve = curve_at_pilot(point(1000, 0.4), point(10_000, 0.45, 0.4501, 0.4502), 100_000, None, "restart", Words())
    assert curve.gain is not None
    assert curve.gain.low == curve.gain.high == 0.0
    assert "not forecast" in curve.told


def test_curve_after_full_uses_the_seeds_of_the_pilot_and_doubles_the_cost():
    pilot, full = point(10_000, 0.400, 0.401, 0.402), point(100_000, 0.37)
    curve = curve_after_full(pilot, full, 0.05, "restart", Words())
    assert curve.gain is not None
    assert curve.gain.high == pytest.approx((0.401 - 0.37) / math.log2(10), rel=0.3)
    assert curve.usd is not None
    assert curve.usd.value == pytest.approx(0.1)
    assert curve_after_full(point(10_000, 0.4), full, 0.05, "restart", Words()).gain is None


def test_point_of_a_stage_that_was_not_validated_is_none():
    assert point_of(100, {"peak_memory_bytes": 1.0}, ()) is None
    assert point_of(100, {"val_loss": float("nan"), "val_loss_of_prior": 0.5}, ()) is None


def test_curve_of_numbers_is_in_their_units_and_words():
    pilot = point(10_000, 1788.0, 1790.0, 1786.0, prior_loss=1919.0)
    words = Regression().words
    curve = curve_at_pilot(point(1000, 1850.0, prior_loss=1919.0), pilot, 100_000, USD, "restart", words)
    assert curve.gain is not None
    assert curve.full_loss is not None
    assert (curve.gain.unit, curve.full_loss.unit) == ("", "")
    assert "lowers the validation loss by 0 to " in curve.told
    knew = curve_at_pilot(point(1000, 1910.0, prior_loss=1919.0), pilot, 100_000, USD, "restart", words)
    assert knew.told.endswith("the network knew no more than the best constant answer (1,910 against 1,919)")
