"""A change of unit by its mark: every quantile times the same number, or in the other scale of degrees."""

from __future__ import annotations

from trainworthy.lifecycle.drift.blocks import Judged
from trainworthy.lifecycle.drift.columns import Numbers

# Code of a column whose values are the earlier ones times a number.
RESCALED = "rescaled"
_AT = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
# Quantiles of two healthy months differ by some percent, and so do their ratios.
_ALIKE, _LEAST_FACTOR = 0.15, 1.25
_FACTORS = {
    1.609344: "miles as kilometres", 1.852: "sea miles as kilometres", 0.3048: "feet as metres",
    2.54: "inches as centimetres", 0.45359237: "pounds as kilograms", 24.0: "days as hours",
    60.0: "hours as minutes, or minutes as seconds", 3600.0: "hours as seconds", 86400.0: "days as seconds",
    100.0: "shares as percent", 1000.0: "a prefix such as kilo", 1e6: "a prefix such as mega",
}  # fmt: skip


def unit_change(values: Numbers, found: Judged, hidden: bool) -> str:
    """The likely change of unit of the found block against the rows before it, in words; empty if there is none."""
    import numpy as np

    history = values.axis.history
    now = values.of_units(found.start, found.start + found.length)
    before = values.of_units(max(0, history - values.axis.length), history)
    if min(len(now), len(before)) < 100:
        return ""
    now, before = (np.quantile(part[np.isfinite(part)], _AT) for part in (now, before))
    both = (np.abs(before) > 1e-12) & (np.abs(now) > 1e-12)
    if both.sum() < 4:
        return ""
    ratios = now[both] / before[both]
    factor = float(np.median(ratios))
    if factor <= 0 or np.abs(ratios / factor - 1).max() > _ALIKE or 1 / _LEAST_FACTOR < factor < _LEAST_FACTOR:
        return ""
    known = _known(factor)
    told = "" if hidden else f" (median {before[3]:g}, now {now[3]:g})"
    return f"all quantiles are about {factor:.3g} times the earlier ones{told}: " + (known or "another unit or scale")


def _known(factor: float) -> str:
    for number, name in _FACTORS.items():
        if abs(factor / number - 1) < 0.05:
            return f"perhaps {name}"
        if abs(factor * number - 1) < 0.05:
            first, _, second = name.partition(" as ")
            return f"perhaps {second} as {first}" if second and ", or" not in name else f"perhaps the reverse of {name}"
    return ""


def as_other_degrees(values: Numbers, unit: str) -> tuple[str, float]:
    """What fits better if the column's unit names a scale of degrees, and how many times better than the unit itself.

    Judged by the two weeks on both sides of the window's start. Gives 0 times if the other scale does not fit.
    """
    import numpy as np

    history, reach = values.axis.history, min(14, values.axis.length)
    parts = values.of_units(history, history + reach), values.of_units(max(0, history - reach), history)
    if min(map(len, parts)) < 100:
        return "", 0.0
    now, before = (np.quantile(part[np.isfinite(part)], _AT) for part in parts)
    if "fahrenheit" in unit.lower():
        cause, expected = "perhaps degrees Fahrenheit as Celsius", (before - 32) / 1.8
    elif "celsius" in unit.lower():
        cause, expected = "perhaps degrees Celsius as Fahrenheit", before * 1.8 + 32
    else:
        return "", 0.0
    error, as_declared = np.abs(now - expected).max(), np.abs(now - before).max()
    return (cause, float(as_declared / max(error, 1e-9))) if error < np.ptp(expected) else ("", 0.0)
