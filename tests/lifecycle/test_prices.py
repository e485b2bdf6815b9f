import pytest
import toy_jobs

from trainworthy.lifecycle.cost.meter import Meter
from trainworthy.lifecycle.cost.prices import Sku, load_prices
from trainworthy.lifecycle.errors import PriceError

GOOD = "dated: 2026-01-01\nskus:\n  local-2cpu: {usd_per_hour: 0.1}\n"


def test_prices_of_the_repository_are_readable_and_know_the_toys_sku():
    assert load_prices(toy_jobs.ROOT / "prices.yaml").sku(toy_jobs.SPEC.compute.sku).usd_per_hour > 0


def test_unknown_sku_is_refused_with_the_nearest_known_one(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(GOOD)
    with pytest.raises(PriceError, match="did you mean 'local-2cpu'") as caught:
        load_prices(path).sku("local-2cpus")
    assert caught.value.value == "local-2cpus"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "skus: [",
        "- a\n",
        GOOD.replace("dated: 2026-01-01\n", ""),
        GOOD.replace("2026-01-01", "lately"),
        GOOD.replace("0.1", "cheap"),
        GOOD.replace("0.1", "-0.1"),
        GOOD.replace("0.1", ".nan"),
        GOOD.replace("0.1", ".inf"),
        GOOD.replace("0.1}", "0.1, memory_gb: -4}"),
        GOOD.replace("usd_per_hour", "usd_per_day"),
    ],
)
def test_malformed_prices_are_refused(tmp_path, text):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(PriceError, match=r"cannot be read|is not valid YAML"):
        load_prices(path)


def test_missing_prices_are_refused(tmp_path):
    with pytest.raises(PriceError, match="is missing"):
        load_prices(tmp_path / "prices.yaml")


def test_meter_counts_wall_time_at_the_skus_price():
    meter = Meter()
    sum(range(100_000))
    cost = meter.cost(Sku(usd_per_hour=3600.0), gpus=2, gpu_seconds=3.0)
    assert cost.usd == pytest.approx(cost.wall_seconds)
    assert cost.wall_seconds > 0
    assert cost.cpu_seconds >= 0
    assert cost.gpu_seconds == 6.0
