import pytest
import report_records

from lifecycle.cost.forecast_error import error_figures, reckonings
from lifecycle.records import Attempt, Cost


def stages(**changed):
    """The three stages, each of 20 s and 0.0005 USD; `changed` are fields of the last one."""
    cost = Cost(wall_seconds=20.0, usd=0.0005)
    rows = ("smoke", 1000, 20, 0.5), ("pilot", 10_000, 40, 0.45), ("full", 100_000, 400, 0.4)
    made = [report_records.stage(*row).model_copy(update={"cost": cost}) for row in rows]
    return [*made[:-1], made[-1].model_copy(update=changed)]


def test_errors_are_shares_of_the_forecast():
    found = error_figures(report_records.preflight(), stages(metrics={"peak_memory_bytes": 515_000_000.0}))
    # 412 MB, 58 s and 0.00155 USD were forecast.
    expected = {"memory": 0.25, "seconds": 60 / 58 - 1, "cost": 0.0015 / 0.00155 - 1}
    assert found == pytest.approx({f"forecast_{name}_error": error for name, error in expected.items()})


def test_interval_tells_what_lies_inside():
    found = {one.name: one.inside for one in reckonings(report_records.preflight(), stages())}
    assert found == {"memory": None, "seconds": True, "cost": True}


KILLED = Attempt(cause="killed", told="killed", from_step=0, to_step=0, seconds=9.0)


@pytest.mark.parametrize(
    "given",
    [stages()[:2], stages(resumed_from_step=17), stages(attempts=(KILLED,))],
    ids=["unfinished", "interrupted", "begun again"],
)
def test_time_of_a_training_that_was_not_seen_whole_is_no_error(given):
    assert error_figures(report_records.preflight(), given) == {}


def test_continued_stages_are_a_whole_training():
    made = stages(resumed_from_step=40)
    assert "forecast_seconds_error" in error_figures(report_records.preflight(), made)
