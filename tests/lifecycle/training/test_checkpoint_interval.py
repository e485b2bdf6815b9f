"""The interval by Young and Daly, its caps and its bounds."""

import math

import pytest

from trainworthy.lifecycle.cost.checkpoint_interval import (
    DURABLE_SECONDS,
    LONGEST_SECONDS,
    MOST_BLOCKED,
    SPOT_MTBF_SECONDS,
    expected_checkpoints,
    interruptions,
    interval_seconds,
)
from trainworthy.lifecycle.protocol.jobs import MTBF_SECONDS, Interruptions

STAYS, SPOT = Interruptions(), interruptions(True, None)


def test_interval_is_young_and_daly_s_between_the_caps():
    assert interval_seconds(0.034, 1.0, STAYS) == pytest.approx(math.sqrt(2 * 0.034 * MTBF_SECONDS))
    assert interval_seconds(0.034, 1.0, SPOT) == pytest.approx(math.sqrt(2 * 0.034 * SPOT_MTBF_SECONDS))


def test_interval_of_a_machine_that_often_stops_keeps_the_share_that_may_be_blocked():
    often = Interruptions(mtbf_seconds=60)
    assert interval_seconds(1.0, 0.0, often) == 1.0 / MOST_BLOCKED
    # A slow disk: the write may go on for a tenth of the time.
    assert interval_seconds(0.001, 40.0, STAYS) == pytest.approx(400)


@pytest.mark.parametrize("blocked", [0.0, 1e-6, 1.0, 60.0, 1e4])
def test_interval_is_never_longer_than_its_bound(blocked):
    assert interval_seconds(blocked, 0.0, STAYS) <= LONGEST_SECONDS
    for written in (0.0, 60.0, 400.0):
        assert interval_seconds(blocked, written, SPOT) + written <= DURABLE_SECONDS


def test_rate_of_the_price_table_counts_for_spot_only():
    assert interruptions(True, 4.0).mtbf_seconds == 900
    assert interruptions(True, 0.0).mtbf_seconds == SPOT_MTBF_SECONDS
    assert interruptions(False, 4.0).mtbf_seconds == MTBF_SECONDS
    # One of three machines stops three times as often.
    assert interruptions(False, None, machines=3).mtbf_seconds == MTBF_SECONDS / 3
    assert interruptions(True, 4.0, machines=3).mtbf_seconds == 300


def test_checkpoints_of_a_stage_are_counted_by_steps_or_by_time():
    assert expected_checkpoints(1000, 0.01, 200, 0.1, 1.0) == 6
    every = interval_seconds(0.1, 1.0, STAYS)
    assert expected_checkpoints(1000, 1.0, None, 0.1, 1.0) == 1 + int(1000 / every)
    assert expected_checkpoints(10, 0.01, None, 0.1, 1.0) == 1
