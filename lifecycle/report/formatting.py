"""Numbers as a reader wants them: a few digits, thousands separators, units in words.

A value that is not finite is shown as such, never rounded into something that looks measured.
"""

from __future__ import annotations

import math
import re
from typing import Any

from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.wording import count, decimals_of, figures, words

MINUS = "\N{MINUS SIGN}"
NOT_FINITE = "not a number"
HASH_PREFIX = 8


def usd(value: float) -> str:
    """Cents from one dollar on, four decimals below, two digits of what is smaller still."""
    if not math.isfinite(value):
        return NOT_FINITE
    tiny = 1 - math.floor(math.log10(abs(value))) if 0 < abs(value) < 0.001 else 4
    decimals = 0 if value == 0 else 2 if abs(value) >= 1 else min(tiny, 9)
    return f"{_signed(value, decimals)} USD"


def paid_by_run(own: float, total: float) -> str:
    """How much of what a model cost the run paid, both in USD; sums of the same costs differ in their last digits."""
    return "all of it in this run" if math.isclose(own, total) else f"in this run {usd(own)}, the rest was reused"


def seconds(value: float) -> str:
    """Milliseconds below a tenth of a second, seconds up to two minutes, then minutes, then hours."""
    if not math.isfinite(value):
        return NOT_FINITE
    if 0 < abs(value) < 0.1:
        return f"{1000 * value:.3g} ms".replace("-", MINUS)
    if value < 120:
        return f"{_signed(value, 0 if value == 0 else 2 if value < 10 else 1)} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60} min"


def share(part: float, whole: float = 1.0) -> str:
    """A share in percent; `whole` 0 has no share."""
    return "no rows" if whole == 0 else f"{number(100 * part / whole, 1)} %"


def number(value: float, decimals: int = 4) -> str:
    """A float with a fixed number of decimals and a true minus sign."""
    return _signed(value, decimals) if math.isfinite(value) else NOT_FINITE


def figure(value: float) -> str:
    """A loss or another metric alone: four decimals, unless its size makes these too many or too few."""
    return figures(value)[0].replace("-", MINUS) if math.isfinite(value) else NOT_FINITE


def plain(value: Any) -> str:
    """A value of any type: true and false in words, floats in at most five digits, lists and mappings by comma."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value).replace("-", MINUS)
    if isinstance(value, float):
        return _digits(value) if math.isfinite(value) else NOT_FINITE
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{words(str(name))} {plain(item)}" for name, item in value.items()) or "–"
    return str(value)


def estimate(value: Estimate, sign: bool = False) -> str:
    """The value with its 95 % interval, to two digits of the standard error."""
    decimals = decimals_of(value.value, value.standard_error)
    point, low, high = (_plus(item, decimals) if sign else number(item, decimals) for item in _triple(value))
    return f"{point} [{low}, {high}]"


def with_method(value: Estimate, sign: bool = False) -> str:
    """As estimate, with the method where it is not the usual one."""
    return f"{estimate(value, sign)}{value.method_told}"


def limits(value: Estimate, sign: bool = False) -> str:
    """The 95 % interval alone."""
    return estimate(value, sign).partition(" ")[2]


def point(value: Estimate, sign: bool = False) -> str:
    """The value alone, with as many decimals as its interval has."""
    return estimate(value, sign).partition(" ")[0]


def moment(timestamp: str) -> str:
    """An ISO time to the minute, as people write it; any other text as it is."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::[\d.]+)?(\+00:00|Z)", timestamp)
    return f"{match[1]} {match[2]} UTC" if match else timestamp


def day(timestamp: str) -> str:
    """An ISO time at midnight as its day; any other text as it is."""
    return timestamp.removesuffix("T00:00:00")


def quantity(value: float, unit: str) -> str:
    """A forecast's value in its unit: bytes, seconds and USD are written out, others follow the number."""
    if unit in ("bytes", "B"):
        return size(value)
    if unit in ("seconds", "s"):
        return seconds(value)
    return usd(value) if unit.lower() == "usd" else f"{plain(float(value))} {unit}".rstrip()


def interval(forecast: Forecast) -> str:
    """A forecast with the interval it is expected to lie in."""
    value, low, high = (quantity(item, forecast.unit) for item in (forecast.value, forecast.low, forecast.high))
    return f"{value} [{low} to {high}]"


def size(value: float) -> str:
    """Bytes in the largest binary unit that leaves a number of at least one."""
    if not math.isfinite(value):
        return NOT_FINITE
    power = min(int(math.log2(max(value, 1)) // 10), 4)
    return f"{value / 1024**power:,.{0 if power == 0 else 1}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def sentence_case(name: str) -> str:
    """A name of code as the first words of a sentence."""
    return capital(words(name))


def capital(text: str) -> str:
    """Text as it begins a sentence; all but its first letter stay."""
    return text[:1].upper() + text[1:]


def _triple(value: Estimate) -> tuple[float, float, float]:
    return value.value, value.low, value.high


def _digits(value: float) -> str:
    """Five significant digits, without an exponent from one millionth to a million millions."""
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e12:
        return f"{value:.3g}".replace("-", MINUS)
    decimals = max(0, min(4 - math.floor(math.log10(abs(value))), 10))
    text = _signed(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plus(value: float, decimals: int) -> str:
    return number(value, decimals) if not value > 0 else "+" + number(value, decimals)


def _signed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    # A rounded negative zero is a zero.
    return text.removeprefix("-") if not text.strip("-0.,") else text.replace("-", MINUS)
