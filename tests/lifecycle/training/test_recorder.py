"""What the recorder notes of an update's waits, across attempts and going back."""

import math

from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.watching.clock import DATA, Clock


def test_waits_of_earlier_attempts_and_of_going_back_are_no_update_s(tmp_path):
    # An earlier attempt waited for 100 seconds.
    clock, recorder = Clock.open(tmp_path / "clock", {DATA: 100.0}), Recorder()

    def wait() -> float:
        return recorder.add(clock, 0, 0.5, math.nan, 8, 0.1, math.nan, []).wait_seconds

    assert wait() == 0
    clock._totals[DATA] += 2.0
    assert wait() == 2.0
    clock._totals[DATA] -= 50.0
    assert wait() == 0
    clock._totals[DATA] += 1.0
    assert wait() == 1.0
