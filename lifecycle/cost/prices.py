"""What an hour of a machine costs: prices.yaml, dated, per SKU."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError, model_validator

from trainworthy.lifecycle.errors import PriceError, did_you_mean
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.unique_keys import yaml_mistake

# After half a year a price list is likely to have moved.
STALE_DAYS = 180
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Sku(Frozen):
    """One kind of machine: its price an hour, and its memory if jobs are to be held against it.

    `cpus` are the cores that a job asks a cluster for.

    What is not known stays None and is told, never guessed: the spot price and how often such a machine is taken away;
    of its GPUs the memory of each, and the data sheet's dense teraflops. `dated` is the day of this price, the
    table's if None.
    """

    usd_per_hour: float = Field(ge=0, allow_inf_nan=False)
    memory_gb: Amount | None = None
    cpus: int | None = Field(default=None, ge=1)
    gpus: int = Field(default=0, ge=0)
    gpu_memory_gb: Amount | None = None
    tflops_fp32: Amount | None = None
    tflops_bf16: Amount | None = None
    spot_usd_per_hour: Amount | None = None
    interruptions_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    dated: date | None = None
    description: str = ""

    def times(self, machines: int) -> Sku:
        """So many of them rented together: all is one machine's but the prices."""
        spot = self.spot_usd_per_hour
        prices = {
            "usd_per_hour": machines * self.usd_per_hour,
            "spot_usd_per_hour": None if spot is None else machines * spot,
        }
        return self.model_copy(update=prices)

    def stale(self, today: date) -> str:
        """That the price is old, in words; empty if it is not."""
        if self.dated is None or (today - self.dated).days <= STALE_DAYS:
            return ""
        return f"price of {self.dated}, {(today - self.dated).days} days old"


class Prices(Frozen):
    """The price table; `dated` says how old it is."""

    dated: date
    skus: dict[str, Sku]

    @model_validator(mode="after")
    def _dated(self) -> Prices:
        """Each price with its day."""
        dated = {name: sku.model_copy(update={"dated": sku.dated or self.dated}) for name, sku in self.skus.items()}
        object.__setattr__(self, "skus", dated)
        return self

    def sku(self, name: str) -> Sku:
        """The SKU of that name, dated. Raises PriceError: a price is never guessed."""
        if name not in self.skus:
            fix = f"add it to prices.yaml or correct compute.sku; {did_you_mean(name, self.skus)}"
            raise PriceError("no price for the SKU", value=name, fix=fix)
        return self.skus[name]

    def rented(self, name: str, *, spot: bool) -> Sku:
        """The SKU as it is paid for: on spot, its price an hour is the spot price. Raises PriceError."""
        sku = self.sku(name)
        if not spot:
            return sku
        if sku.spot_usd_per_hour is None:
            fix = f"enter spot_usd_per_hour of {name} in prices.yaml, or remove compute.spot"
            raise PriceError("no spot price for the SKU", value=name, fix=fix)
        return sku.model_copy(update={"usd_per_hour": sku.spot_usd_per_hour})


def load_prices(path: Path) -> Prices:
    """Read prices.yaml. Raises PriceError if it is missing or malformed."""
    if not path.is_file():
        raise PriceError(
            "prices.yaml is missing", value=str(path), fix="git checkout prices.yaml; cost is never guessed"
        )
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        return Prices.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mistake = yaml_mistake(error, text)
        fix = f"{mistake.fix}, or restore its form from the repository"
        raise PriceError(mistake.told("prices.yaml"), fix=fix) from None
    except ValidationError as error:
        raise PriceError(f"prices.yaml cannot be read: {error}", fix="restore its form from the repository") from None
