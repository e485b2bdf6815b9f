from datetime import date

import pytest

from trainworthy.lifecycle.cost.duration import forecast_of
from trainworthy.lifecycle.cost.meter import joules
from trainworthy.lifecycle.cost.prices import Prices, Sku
from trainworthy.lifecycle.cost.skus import KERNEL_SECONDS, Work, advice, costs, fastest_update
from trainworthy.lifecycle.errors import PriceError
from trainworthy.lifecycle.protocol.forecasts import RunTime, StepTime

TODAY = date(2026, 11, 1)
STEP = StepTime(
    seconds=0.01, rows_seconds=0.001, augment_seconds=0.0, checkpoint_seconds=0.1, cores_busy=1.9,
    others_busy=0.0, cores=2, flops=1e9, operations=200, joules=None, device="cpu",
)  # fmt: skip
WHOLE = RunTime(
    start_seconds=9, prepare_seconds=1, train_seconds=10, checkpoint_seconds=1, finish_seconds=2, updates=1000
)
WORK = Work(STEP, WHOLE, checkpoint_every_steps=100)
HERE = {"usd_per_hour": 0.1}
GPU = {"usd_per_hour": 36.0, "gpus": 1, "tflops_fp32": 5.0, "tflops_bf16": 10.0, "gpu_memory_gb": 24}


def prices(**skus) -> Prices:
    return Prices.model_validate({"dated": "2026-10-01", "skus": {"here": HERE, **skus}})


def test_this_machine_comes_first_with_the_forecasts_interval():
    here, *_ = costs(WORK, prices(gpu=GPU), "here", TODAY)
    forecast = forecast_of(WHOLE)
    assert (here.sku, here.measured) == ("here", True)
    assert (here.seconds_low, here.seconds_high) == (forecast.low, forecast.high)
    assert here.usd_high == pytest.approx(forecast.high / 3600 * 0.1)


def test_another_machine_has_the_least_of_its_updates_and_says_so():
    _, gpu = costs(WORK, prices(gpu=GPU), "here", TODAY)
    assert gpu.seconds_high is None
    assert gpu.usd_high is None
    # 200 kernels an update, which take longer than 1e9 / 10e12 s of computing; what lies beside was measured here.
    assert gpu.seconds_low == pytest.approx(1000 * 200 * KERNEL_SECONDS)
    assert "at least about this, for its updates alone: nothing was measured there" in gpu.told


def test_large_network_is_bound_by_the_data_sheet_and_a_missing_figure_bounds_nothing():
    large = Work(STEP.model_copy(update={"flops": 1e14}), WHOLE, 100)
    # Also in float32 it is the larger figure: TF32 may be allowed.
    assert fastest_update(large, Sku.model_validate(GPU)) == pytest.approx(10.0)
    assert fastest_update(large, Sku.model_validate(GPU | {"tflops_bf16": None})) == pytest.approx(20.0)
    assert fastest_update(large, Sku(usd_per_hour=1.0)) == 0.0


def test_cpu_is_enough_where_no_other_machine_is_likely_to_cost_less():
    told = advice(costs(WORK, prices(gpu=GPU), "here", TODAY), STEP)
    assert told == "here is enough: no other machine of prices.yaml is likely to cost less"


def test_cheaper_machine_is_named_as_a_possibility_only():
    told = advice(costs(WORK, prices(gpu=GPU | {"usd_per_hour": 0.01}), "here", TODAY), STEP)
    assert told.startswith("may cost less, which only a run there tells: gpu (at least about ")


def test_idle_cores_are_told():
    idle = STEP.model_copy(update={"cores_busy": 0.9})
    assert "not yet used up: 0.9 of 2 cores" in advice(costs(WORK, prices(), "here", TODAY), idle)
    crowded = idle.model_copy(update={"others_busy": 1.0})
    assert "used up" not in advice(costs(WORK, prices(), "here", TODAY), crowded)


def test_old_price_is_told_and_a_new_one_is_not():
    old = GPU | {"dated": "2026-01-21"}
    here, gpu = costs(WORK, prices(gpu=old), "here", TODAY)
    assert not any("days old" in told for told in here.told)
    assert "price of 2026-01-21, 284 days old" in gpu.told


def test_spot_price_counts_interruptions_and_a_missing_one_is_told():
    often = HERE | {"spot_usd_per_hour": 0.05, "interruptions_per_hour": 36.0}
    found = {name: costs(WORK, prices(x=sku), "x", TODAY)[0] for name, sku in (("often", often), ("none", HERE))}
    forecast = forecast_of(WHOLE)
    # Each hundredth second one: half of 1 s between checkpoints and 3 s to start again are lost.
    expected = forecast.high / 3600 * 0.05 * (1 + 0.01 * (0.5 + 3))
    assert found["often"].spot_usd_high == pytest.approx(expected)
    assert found["none"].spot_usd_high is None
    assert "no spot price" in found["none"].told


def test_several_machines_cost_so_many_times_as_much_and_stop_as_often():
    often = HERE | {"spot_usd_per_hour": 0.05, "interruptions_per_hour": 36.0}
    (one, gpu), (two, gpus) = (costs(Work(STEP, WHOLE, 100, nodes), prices(gpu=GPU), "here", TODAY) for nodes in (1, 2))
    # The seconds were forecast for all together: each machine is rented for as long.
    assert (two.seconds_high, two.usd_high) == (one.seconds_high, pytest.approx(2 * (one.usd_high or 0)))
    assert "2 machines" in two.told
    # Launches are each machine's own, so that the least is that of two.
    assert (gpus.seconds_low, gpus.usd_low) == (gpu.seconds_low, pytest.approx(2 * gpu.usd_low))
    large = STEP.model_copy(update={"flops": 1e14})
    assert fastest_update(Work(large, WHOLE, 100, 2), Sku.model_validate(GPU)) == pytest.approx(5.0)
    (spot, *_), forecast = costs(Work(STEP, WHOLE, 100, 2), prices(x=often), "x", TODAY), forecast_of(WHOLE)
    assert spot.spot_usd_high == pytest.approx(forecast.high / 3600 * 2 * 0.05 * (1 + 0.02 * (0.5 + 3)))
    assert Sku.model_validate(often).times(3).usd_per_hour == pytest.approx(0.3)
    assert Sku.model_validate(HERE).times(3).spot_usd_per_hour is None


def test_distance_of_checkpoints_that_is_not_declared_follows_the_machine():
    often, seldom = prices(x=HERE | {"interruptions_per_hour": 36.0}), prices(x=HERE)
    automatic = Work(STEP, WHOLE, None)
    # Young and Daly's optimum of 4.5 s would block 2 % of the time.
    assert automatic.checkpoint_seconds(often.sku("x")) == pytest.approx(10)
    assert automatic.checkpoint_seconds(seldom.sku("x")) == pytest.approx((2 * 0.1 * 7200) ** 0.5)


def test_spot_without_a_price_is_refused():
    assert prices().rented("here", spot=False).usd_per_hour == 0.1
    assert prices(x=HERE | {"spot_usd_per_hour": 0.03}).rented("x", spot=True).usd_per_hour == 0.03
    with pytest.raises(PriceError, match="no spot price") as caught:
        prices().rented("here", spot=True)
    assert "spot_usd_per_hour" in caught.value.fix


def test_energy_sums_the_packages_and_is_unknown_without_a_readable_meter(tmp_path):
    for name, value in (("intel-rapl:0", 2_000_000), ("intel-rapl:1", 500_000), ("intel-rapl:0:0", 9_000_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{value}\n")
    assert joules(tmp_path) == 2.5
    assert joules(tmp_path / "none") is None
