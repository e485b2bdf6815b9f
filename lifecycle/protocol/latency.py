"""How long a model takes to answer one row, as it is kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainworthy.lifecycle.spec.frozen import Frozen

# A wait of this share of the wall time says that there was other work.
BUSY_SHARE = 0.1


class Latency(Frozen):
    """Milliseconds to answer one row, medians over the calls of the best of `rounds` rounds.

    `wall_ms` is by the clock, `cpu_ms` the processor time of all threads. With nothing else to do on the machine an
    answer takes at least `least_ms` and at most `most_ms`. They lie apart where several threads compute, or the system
    does not tell of waits. `load` is the machine's, over a minute, on `cores`.
    """

    wall_ms: float = Field(ge=0, allow_inf_nan=False)
    cpu_ms: float = Field(ge=0, allow_inf_nan=False)
    least_ms: float = Field(ge=0, allow_inf_nan=False)
    most_ms: float = Field(ge=0, allow_inf_nan=False)
    rounds: int
    load: float
    cores: int

    def within(self, limit_ms: float) -> Literal["pass", "fail", "insufficient"]:
        """Insufficient where other work on the machine may be why it is not a pass."""
        if self.most_ms <= limit_ms:
            return "pass"
        return "fail" if self.least_ms > limit_ms else "insufficient"

    @property
    def told(self) -> str:
        """The figure, and where other work took part of the time what the clock said."""
        if self.wall_ms <= self.most_ms * (1 + BUSY_SHARE) and self.least_ms >= self.most_ms / (1 + BUSY_SHARE):
            return f"{self.most_ms:.3g} ms"
        return (
            f"{self.most_ms:.3g} ms, without the waits for cores that other work had "
            f"({self.wall_ms:.3g} ms with them, at load {self.load:.1f} on {self.cores} cores)"
        )
