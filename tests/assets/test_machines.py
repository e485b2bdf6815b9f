"""What a step's machines cost: those that train together are rented together, and for the steps that train alone."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.cost.meter import Meter, count_spared
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.gates.preflight import cost_forecast
from trainworthy.lifecycle.protocol.records import Forecast, Step
from trainworthy.lifecycle.spec.use_case import ComputeSpec

PRICE = Sku(usd_per_hour=3.0, memory_gb=16, gpus=2)


def run_of(step: Step, nodes: int) -> StepRun:
    """A step of a use case of which nothing but its machines is asked."""
    compute = ComputeSpec(launcher="torchrun", processes=4, nodes=nodes, sku="local-2cpu")
    dataset = SimpleNamespace(name="toy", version="v1")
    use_case = SimpleNamespace(name="toy", spec=SimpleNamespace(compute=compute, dataset=dataset))
    nothing: Any = None
    return StepRun(
        use_case=cast("Any", use_case), step=step, run_id="1", intent="candidate", identity="a", code_sha256="b",
        sku=PRICE, workspace=nothing, tracking=nothing, launcher=nothing, declared=nothing, upstream={},
        context=nothing,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("step", "nodes", "machines"),
    [("smoke", 2, 2), ("full", 4, 4), ("promotion", 2, 2), ("preflight", 2, 1), ("evaluation", 2, 1), ("pilot", 1, 1)],
)
def test_a_step_is_charged_with_the_price_of_all_machines_that_train_it(step, nodes, machines):
    run = run_of(step, nodes)
    assert (run.machines, run.rented.usd_per_hour) == (machines, machines * 3.0)
    assert run.charged_to.usd_per_hour == machines * 3.0
    # What is held against a machine is one's.
    assert (run.rented.memory_gb, run.rented.gpus) == (16, 2)
    cost = Meter().cost(run.rented)
    assert cost.usd == pytest.approx(cost.wall_seconds / 3600 * machines * 3.0)


def test_machines_that_an_attempt_had_to_do_without_cost_nothing():
    meter = Meter()
    # Of two machines it had one for 1000 s, which this test's own seconds are nothing beside.
    count_spared(500.0)
    cost = meter.cost(PRICE.times(2))
    assert meter.spared_seconds == 500.0
    assert cost.usd == pytest.approx((cost.wall_seconds - 500.0) / 3600 * 6.0)
    assert Meter().spared_seconds == 0.0


def test_forecast_of_cost_counts_the_seconds_of_each_machine():
    seconds = Forecast(name="seconds", unit="s", value=3600.0, low=1800.0, high=7200.0)
    cost = cost_forecast(seconds, PRICE.times(2))
    assert cost is not None
    assert (cost.low, cost.value, cost.high) == (3.0, 6.0, 12.0)
