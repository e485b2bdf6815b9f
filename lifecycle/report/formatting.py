"""Numbers as a reader wants them: a few digits, thousands separators, units in words.

A value that is not finite is shown as such, never rounded into something that looks measured.
"""

from __future__ import annotations

import json
import math
from typing import Any

from lifecycle.records import Estimate, Forecast

MINUS = "\N{MINUS SIGN}"
NOT_FINITE = "not a number"
HASH_PREFIX = 10


def usd(value: float) -> str:
    """Four decimals below one dollar, cents above; a sum too small to show is not shown as zero."""
    if not math.isfinite(value):
        return NOT_FINITE
    if 0 < abs(value) < 0.0001:
        return "under 0.0001 USD"
    decimals = 0 if value == 0 else 4 if abs(value) < 1 else 2
    return f"{_signed(value, decimals)} USD"


def seconds(value: float) -> str:
    """Seconds up to two minutes, then minutes, then hours."""
    if not math.isfinite(value):
        return NOT_FINITE
    if value < 120:
        return f"{_signed(value, 0 if value == 0 else 2 if value < 10 else 1)} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60} min"


def count(value: int) -> str:
    """A whole number with thousands separators."""
    return f"{value:,}"


def share(part: float, whole: float = 1.0) -> str:
    """A share in percent; `whole` 0 has no share."""
    return "no rows" if whole == 0 else f"{number(100 * part / whole, 1)} %"


def number(value: float, decimals: int = 4) -> str:
    """A float with a fixed number of decimals and a true minus sign."""
    return _signed(value, decimals) if math.isfinite(value) else NOT_FINITE


def plain(value: Any) -> str:
    """A check's value of any type: true and false in words, floats in at most six digits, the rest as JSON."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value).replace("-", MINUS)
    if isinstance(value, float):
        return _digits(value) if math.isfinite(value) else NOT_FINITE
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def estimate(value: Estimate, sign: bool = False) -> str:
    """The value with its 95 % interval, to two digits of the standard error."""
    decimals = _decimals(value.standard_error)
    point, low, high = (_plus(item, decimals) if sign else number(item, decimals) for item in _triple(value))
    return f"{point} [{low}, {high}]"


def quantity(value: float, unit: str) -> str:
    """A forecast's value in its unit: bytes, seconds and USD are written out, others follow the number."""
    if unit in ("bytes", "B"):
        return bytes_(value)
    if unit in ("seconds", "s"):
        return seconds(value)
    return usd(value) if unit.lower() == "usd" else f"{plain(float(value))} {unit}"


def interval(forecast: Forecast) -> str:
    """A forecast with the interval it is expected to lie in."""
    value, low, high = (quantity(item, forecast.unit) for item in (forecast.value, forecast.low, forecast.high))
    return f"{value} [{low} to {high}]"


def bytes_(value: float) -> str:
    """Bytes in the largest binary unit that leaves a number of at least one."""
    if not math.isfinite(value):
        return NOT_FINITE
    power = min(int(math.log2(max(value, 1)) // 10), 4)
    return f"{value / 1024**power:,.{0 if power == 0 else 1}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def words(name: str) -> str:
    """A name of code as words: `log_loss` is `log loss`."""
    return name.replace("_", " ")


def _triple(value: Estimate) -> tuple[float, float, float]:
    return value.value, value.low, value.high


def _decimals(standard_error: float) -> int:
    if not (math.isfinite(standard_error) and standard_error > 0):
        return 4
    return min(max(1 - math.floor(math.log10(standard_error)), 4), 9)


def _digits(value: float) -> str:
    """Six significant digits, without an exponent from one millionth to a million millions."""
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e12:
        return f"{value:.3g}".replace("-", MINUS)
    decimals = max(0, min(5 - math.floor(math.log10(abs(value))), 10))
    text = _signed(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plus(value: float, decimals: int) -> str:
    return number(value, decimals) if not value > 0 else "+" + number(value, decimals)


def _signed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    # A rounded negative zero is a zero.
    return text.removeprefix("-") if not text.strip("-0.,") else text.replace("-", MINUS)
