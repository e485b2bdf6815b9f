"""How long a run will still take, from the forecast and from an earlier run."""

import pytest

from trainworthy.lifecycle.cost.time_left import forecast_seconds, in_words, seconds_left
from trainworthy.lifecycle.protocol.forecasts import RunTime

TIME = RunTime(
    start_seconds=6.0, prepare_seconds=1.0, train_seconds=30.0, checkpoint_seconds=0.0, finish_seconds=2.0, updates=100
)
FORECAST = forecast_seconds(TIME, {"smoke": 10, "pilot": 20, "full": 70})
EARLIER = {"preflight": 20.0, "smoke": 3.0, "pilot": 6.0, "full": 24.0, "evaluation": 10.0, "promotion": 8.0}


def test_forecast_seconds_of_the_stages_are_those_of_the_run():
    stages = [FORECAST[stage] for stage in ("smoke", "pilot", "full")]
    assert stages == pytest.approx([6.0, 9.0, 24.0])
    assert sum(stages) == pytest.approx(TIME.seconds)


def test_seconds_left_of_a_first_run_before_its_forecast_are_unknown():
    assert seconds_left(("preflight", "smoke"), {"snapshot": 3.0}, {}, {}) is None


def test_seconds_left_of_a_first_run_go_by_the_forecast():
    left = seconds_left(("full", "evaluation", "promotion"), {"preflight": 20.0, "pilot": 9.0}, {}, FORECAST)
    assert left == pytest.approx(24.0 + 5.0 * 6 + 3.5 * 6)


def test_seconds_left_before_the_forecast_go_by_the_earlier_run():
    assert seconds_left(("preflight", "smoke"), {"snapshot": 3.0}, EARLIER, {}) == pytest.approx(23.0)


def test_seconds_left_on_a_machine_half_as_fast_are_twice_the_earlier_ones():
    assert seconds_left(("evaluation", "promotion"), {"preflight": 40.0}, EARLIER, FORECAST) == pytest.approx(36.0)


def test_seconds_left_of_stages_go_by_the_forecast_and_not_by_the_earlier_run():
    assert seconds_left(("full", "promotion"), {"preflight": 20.0}, EARLIER, FORECAST) == pytest.approx(24.0 + 8.0)


def test_seconds_left_without_a_step_of_the_earlier_run_are_unknown():
    assert seconds_left(("dataset", "snapshot"), {}, {"snapshot": 3.0}, {}) is None


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.4, "about 5 seconds left"), (43, "about 40 seconds left"), (91, "about 2 minutes left"),
        (240, "about 4 minutes left"), (9000, "about 2.5 hours left"),
    ],
)  # fmt: skip
def test_seconds_left_are_rounded_to_what_can_be_known(seconds, told):
    assert in_words(seconds) == told
