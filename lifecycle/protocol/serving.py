"""What a model takes to be served beside another one, as it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from trainworthy.lifecycle.spec.frozen import Frozen

Quantity = Literal["latency", "batch_latency", "cold_load", "memory", "size"]
# How each is called in a sentence, and what it is measured in.
TITLES: dict[Quantity, str] = {
    "latency": "latency of one row", "batch_latency": "latency of a batch", "cold_load": "cold load",
    "memory": "memory", "size": "size",
}  # fmt: skip
UNITS: dict[Quantity, str] = {
    "latency": "ms", "batch_latency": "ms", "cold_load": "s", "memory": "MB", "size": "MB",
}  # fmt: skip
# Those that hang on a clock.
TIMES: tuple[Quantity, ...] = ("latency", "batch_latency", "cold_load")


class ServingFigure(Frozen):
    """One quantity of candidate and champion, measured in turns in `rounds` pairs of fresh processes.

    `candidate` and `champion` are medians in the unit of UNITS: times without the waits for a core that other work had;
    memory is how far the peak of the process rises by loading and answering, size that of the artifact's files.
    `ratio` is the median of candidate / champion over the pairs, and with 95 % lies between `low` and `high`. Each
    is None where it was not measured, and `told` says why. A call answered `rows` rows. In `busy` of the rounds other
    work took part of the time, which makes the interval wider. `limit` is declared for the ratio, None if none is.
    """

    quantity: Quantity
    candidate: float | None = None
    champion: float | None = None
    ratio: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    low: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    high: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    rounds: int = 0
    rows: int = 0
    busy: int = 0
    limit: float | None = None
    told: str = ""

    @property
    def standing(self) -> Literal["not_asked", "pass", "fail", "insufficient"]:
        """How the ratio stands to its limit: by its whole interval, never by the point."""
        if self.limit is None:
            return "not_asked"
        if self.low is None or self.high is None:
            return "insufficient"
        if self.high <= self.limit:
            return "pass"
        return "fail" if self.low > self.limit else "insufficient"

    @property
    def title(self) -> str:
        """The quantity, with the rows of a batch."""
        rows = f" of {self.rows} rows" if self.quantity == "batch_latency" and self.rows else ""
        return TITLES[self.quantity] + rows

    @property
    def in_words(self) -> str:
        """The ratio with its interval and both figures, or why there is none."""
        if self.ratio is None or self.low is None or self.high is None:
            return f"{self.title} beside the champion: not measured{f' ({self.told})' if self.told else ''}"
        limit = "" if self.limit is None else f", allowed {self.limit:g}"
        between = "" if self.low == self.high else f" ({self.low:.3g} to {self.high:.3g})"
        own = f"{self.candidate:.3g} and {self.champion:.3g} {UNITS[self.quantity]}"
        return f"{self.title} {self.ratio:.3g} times the champion's{between}{limit}: {own}"


def to_measure_again(figures: Iterable[ServingFigure]) -> tuple[Quantity, ...]:
    """Quantities that do not keep their limit and may another time: they hang on a clock, or were not measured."""
    missed = [figure for figure in figures if figure.standing in ("fail", "insufficient")]
    return tuple(figure.quantity for figure in missed if figure.quantity in TIMES or figure.ratio is None)
