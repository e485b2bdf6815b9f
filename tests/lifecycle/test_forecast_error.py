import pytest
import report_records

from trainworthy.lifecycle.cost.forecast_error import error_figures, reckonings
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.forecasts import StepTime
from trainworthy.lifecycle.protocol.records import Cost
from trainworthy.lifecycle.protocol.training_figures import Attempt, MadeBy, StageSeconds


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


def test_time_and_cost_by_fewer_processes_are_no_error_of_a_forecast_of_all():
    details = tuple({"processes": number, "nodes": number} for number in (2, 1))
    check = CheckResult(name="memory_forecast", status="pass", details=details)
    preflight = report_records.preflight().model_copy(update={"checks": (check,)})
    of_all, fewer = ((MadeBy(first_step=1, processes=number),) for number in (2, 1))
    assert "forecast_seconds_error" in error_figures(preflight, stages(made_by=of_all))
    assert error_figures(preflight, stages(made_by=fewer)) == {}
    told = {one.name: one.why_not for one in reckonings(preflight, stages(made_by=fewer))}
    assert told["cost"] == "trained by 1 processes, and forecast of 2"


def test_continued_stages_are_a_whole_training():
    made = stages(resumed_from_step=40)
    assert "forecast_seconds_error" in error_figures(report_records.preflight(), made)


def test_stage_that_ended_early_is_told_and_is_no_error_of_the_forecast():
    made = stages(left_out_steps=332)
    assert error_figures(report_records.preflight(), made) == {}
    told = {one.name: one.why_not for one in reckonings(report_records.preflight(), made)}
    assert told["seconds"] == told["cost"] == "ended before the planned updates: full 332 updates"


STEP = StepTime(
    seconds=0.01, rows_seconds=0.001, augment_seconds=0.0, checkpoint_seconds=0.1, cores_busy=1.9, others_busy=0.0,
    cores=2, flops=1e9, operations=200, joules=None, device="cpu",
)  # fmt: skip


def preflight_with_step():
    made = report_records.preflight()
    details = (STEP.model_dump(mode="json"),)
    check = CheckResult(name="cost_forecast", status="pass", details=details)
    return made.model_copy(update={"checks": (check,)})


@pytest.mark.parametrize(
    ("steps", "first_steps", "left_out"),
    [((20, 40, 400), (0, 0, 0), 0), ((20, 40, 100), (0, 0, 0), 300), ((20, 60, 460), (0, 20, 60), 0)],
    ids=["whole", "ended early", "continued"],
)
def test_an_updates_seconds_are_compared_however_many_updates_there_were(steps, first_steps, left_out):
    made = []
    for stage, step, first in zip(stages(left_out_steps=left_out), steps, first_steps, strict=True):
        own = step - first
        seconds = StageSeconds(data=0.002 * own, compute=0.01 * own, start=5.0)
        made.append(stage.model_copy(update={"steps": step, "first_step": first, "seconds": seconds}))
    assert error_figures(preflight_with_step(), made)["forecast_update_seconds_error"] == pytest.approx(0.2)


def test_an_updates_seconds_are_left_out_of_records_that_do_not_say_where_a_stage_began():
    names = [one.name for one in reckonings(preflight_with_step(), stages())]
    assert "update_seconds" not in names
