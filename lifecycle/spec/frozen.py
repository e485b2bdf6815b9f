"""The base of every value that is declared, travels or is kept."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of every value: frozen, unknown keys refused."""

    # Validators are built at first use: Dagster's process loads many forms that it never reads.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
