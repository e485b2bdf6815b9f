"""How late the newest rows may be: the service level `latency` of contract.yaml, and its verdict against the clock.

In the standard's own form: `slaProperties: [{property: latency, value: 2, unit: d, element: flights.sched_dep}]`. The
answer changes with the clock, so it is no rule of the contract: a training on an old version never asks it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainworthy.lifecycle.contract.odcs import where
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.protocol.checks import CheckResult, at_most
from trainworthy.lifecycle.spec.frozen import Frozen

PLACE = "slaProperties"
# The standard's name and its abbreviation; the second line are words that people write for it.
LATENCY = ("latency", "ly")
_MEANT = (*LATENCY, "freshness", "timeliness")
_NOT_JUDGED = ("valueExt", "scheduler", "schedule")
# "d, day, days for days; y, yr, years for years, etc.": a lone m could be a minute or a month, so it is none.
_UNIT_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("wk", "week", "weeks"), 7 * 86400.0),
    **dict.fromkeys(("y", "yr", "year", "years"), 365.25 * 86400.0),
}
MOST_SECONDS = 100 * _UNIT_SECONDS["y"]
# A clock of any zone may be this far ahead of UTC; a value beyond it has not happened yet.
AHEAD = timedelta(hours=14)


class Freshness(Frozen):
    """The newest value of `column` may lie `seconds` before the clock; `value` and `unit` as they were written.

    With `whole_days` a value names a day, and is counted from that day's end.
    """

    column: str
    seconds: float
    value: float
    unit: str
    whole_days: bool = False


@dataclass(frozen=True)
class NewestValue:
    """The newest value of a column that is no later than a given instant, None if there is none; naive is UTC."""

    at: datetime | None
    rows_after: int


def freshness(
    values: Mapping[str, Any], table: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]
) -> tuple[Freshness | None, list[Problem]]:
    """The declared latency, None without one, and what is wrong with it; other service levels are left to people.

    Args:
        values: the whole contract.
        table: its one table.
        columns: the table's properties whose form is right.
    """
    items = values.get(PLACE)
    latencies: list[tuple[int, Mapping[str, Any]]] = []
    problems: list[Problem] = []
    for place, item in enumerate(items if isinstance(items, list) else []):
        name = item.get("property") if isinstance(item, dict) else None
        if name in LATENCY:
            latencies.append((place, item))
        elif isinstance(name, str) and difflib.get_close_matches(name.lower(), _MEANT, n=1, cutoff=0.8):
            fix = "write latency: the standard's name for how late rows may be"
            problems.append(Problem(where(PLACE, place, "property"), "would not be judged", fix, name))
    if len(latencies) > 1:
        fix = "keep the one of the column that says when a row happened"
        problems.append(Problem(where(PLACE), "only one latency can be judged", fix, len(latencies)))
    if problems or not latencies:
        return None, problems
    return _latency(*latencies[0], str(table.get("name")), columns)


def _latency(
    place: int, item: Mapping[str, Any], table: str, columns: Sequence[Mapping[str, Any]]
) -> tuple[Freshness | None, list[Problem]]:
    value, unit = item.get("value"), item.get("unit")
    seconds, problems = _seconds(place, value, unit)
    problems += [
        Problem(where(PLACE, place, key), "not judged here, so it would have no effect", "remove it")
        for key in _NOT_JUDGED
        if key in item
    ]
    column, wrong = _column(where(PLACE, place, "element"), item.get("element"), table, columns)
    problems += wrong
    if problems or column is None:
        return None, problems
    whole_days = column["logicalType"] == "date"
    declared = Freshness(column=column["name"], seconds=seconds, value=value, unit=unit, whole_days=whole_days)  # pyright: ignore[reportArgumentType]
    return declared, []


def _seconds(place: int, value: Any, unit: Any) -> tuple[float, list[Problem]]:
    problems: list[Problem] = []
    if unit not in _UNIT_SECONDS:
        fix = "write s, min, h, d, wk or y" if unit is None else did_you_mean(str(unit), _UNIT_SECONDS)
        missing = "the unit is missing" if unit is None else "unknown unit"
        problems.append(Problem(where(PLACE, place, "unit"), missing, fix, unit))
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    seconds = value * _UNIT_SECONDS.get(str(unit), 1.0) if number else math.nan
    if not 0 < seconds <= MOST_SECONDS:
        fix = "write a number above 0, of 100 years at most"
        problems.append(Problem(where(PLACE, place, "value"), "is no length of time that rows may be late", fix, value))
    return seconds, problems


def _column(
    here: str, element: Any, table: str, columns: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any] | None, list[Problem]]:
    """The column that says when a row happened."""
    known = {str(item["name"]): item for item in columns}
    timed = [name for name, item in known.items() if item.get("logicalType") in ("date", "timestamp")]
    if not isinstance(element, str) or not element.strip():
        fix = f"write {table}.COLUMN, where COLUMN says when a row happened: {', '.join(timed) or 'a timestamp'}"
        return None, [Problem(here, "the column is missing", fix, element)]
    prefix, dot, rest = element.strip().partition(".")
    name = rest if dot and prefix == table else element.strip()
    if name not in known:
        fix = did_you_mean(rest or prefix, timed)
        return None, [Problem(here, f"is not one column of the table {table}", fix, element)]
    if name not in timed:
        return None, [Problem(here, "the column holds no time", did_you_mean(name, timed), element)]
    properties = known[name].get("customProperties") or ()
    if any(item.get("property") == "sensitive" and item.get("value") is True for item in properties):
        fix = "name another column: the newest value is told to whoever is alerted"
        return None, [Problem(here, "a sensitive column can't be it", fix, element)]
    return known[name], []


def freshness_check(declared: Freshness | None, newest: NewestValue | None, version: str, now: datetime) -> CheckResult:
    """The check `freshness`: is the newest value no older than declared? Without a value it is an error.

    Args:
        newest: of the declared column, no later than `now` + AHEAD; None if none is declared.
        version: the newest published version, such as `flights@v12`.
        now: the clock, aware.
    """
    if declared is None or newest is None:
        evidence = "contract.yaml declares no latency, so no row can be late"
        return CheckResult(name="freshness", status="not_applicable", evidence=evidence)
    if newest.at is None:
        future = f": {newest.rows_after:,} rows lie in the future" if newest.rows_after else ""
        evidence = f"{declared.column} of {version}, the newest published version, has no value up to now{future}"
        fix = "correct the column in dataset.py, or name another one in contract.yaml: slaProperties"
        return CheckResult(name="freshness", status="error", evidence=evidence, fix=fix)
    happened = newest.at + timedelta(days=1) if declared.whole_days else newest.at
    late, of_unit = max(0.0, (now - happened).total_seconds()), declared.seconds / declared.value
    evidence = f"the newest {declared.column} of {version}, the newest published version, lies {late / of_unit:,.1f} "
    return at_most(
        "freshness",
        round(late / of_unit, 3),
        declared.value,
        evidence=f"{evidence}{declared.unit} before the clock; contract.yaml allows {declared.value:g} {declared.unit}",
        fix="publish the missing rows (trainworthy datasets publish), or change the latency in contract.yaml",
        details=({"column": declared.column, "newest": newest.at.isoformat(), "rows_after": newest.rows_after},),
    )
