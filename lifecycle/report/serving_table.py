"""The table of what a model takes to be served beside the champion."""

from __future__ import annotations

from trainworthy.lifecycle.protocol.serving import UNITS, ServingFigure
from trainworthy.lifecycle.report.formatting import capital


def title(item: ServingFigure) -> str:
    """The quantity, as the head of a row."""
    return capital(item.title)


def amount(item: ServingFigure, value: float | None) -> str:
    """A model's own figure."""
    return "not measured" if value is None else f"{value:.3g} {UNITS[item.quantity]}"


def ratio(item: ServingFigure) -> str:
    """The ratio with its 95 % interval, or why there is none."""
    if item.ratio is None or item.low is None or item.high is None:
        return item.told or "not measured"
    return f"{item.ratio:.3g}" if item.low == item.high else f"{item.ratio:.3g} [{item.low:.3g} to {item.high:.3g}]"


def limit(item: ServingFigure) -> str:
    """What is declared, and how the ratio stands to it."""
    if item.limit is None:
        return "no limit"
    words = {"pass": "kept", "fail": "broken", "insufficient": "not shown"}
    return f"{item.limit:g}: {words[item.standing]}"
