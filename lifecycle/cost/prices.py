"""What an hour of a machine costs: prices.yaml, dated, per SKU."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from lifecycle.errors import PriceError, did_you_mean
from lifecycle.records import Frozen


class Sku(Frozen):
    """One kind of machine: its price an hour, and its memory if jobs are to be held against it."""

    usd_per_hour: float = Field(ge=0, allow_inf_nan=False)
    memory_gb: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    gpu_memory_gb: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    description: str = ""


class Prices(Frozen):
    """The price table; `dated` says how old it is."""

    dated: date
    skus: dict[str, Sku]

    def sku(self, name: str) -> Sku:
        """The SKU of that name. Raises PriceError: a price is never guessed."""
        if name not in self.skus:
            fix = f"add it to prices.yaml or correct compute.sku; {did_you_mean(name, self.skus)}"
            raise PriceError("no price for the SKU", value=name, fix=fix)
        return self.skus[name]


def load_prices(path: Path) -> Prices:
    """Read prices.yaml. Raises PriceError if it is missing or malformed."""
    if not path.is_file():
        raise PriceError(
            "prices.yaml is missing", value=str(path), fix="git checkout prices.yaml; cost is never guessed"
        )
    try:
        return Prices.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise PriceError(f"prices.yaml cannot be read: {error}", fix="restore its form from the repository") from None
