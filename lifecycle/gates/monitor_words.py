"""monitors.toml: every monitor of a training, every cause that alarms name, and all that is said of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

PAGE = "docs/how-to/monitors.md"
_ENTRIES = tomllib.loads(Path(__file__).with_name("monitors.toml").read_text(encoding="utf-8"))


Severity = Literal["critical", "warning"]


@dataclass(frozen=True)
class MonitorWords:
    """A monitor as people are told of it: an entry of monitors.toml, which says what each field means."""

    id: str
    severity: Severity
    question: str
    symptom: str
    also: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CauseWords:
    """A cause that alarms name, in one of its cases."""

    id: str
    cause: str
    fix: str
    explains: tuple[str, ...]
    case: str = ""


MONITORS: tuple[MonitorWords, ...] = tuple(MonitorWords(**entry) for entry in _ENTRIES["monitor"])
CAUSES: tuple[CauseWords, ...] = tuple(
    CauseWords(**{**entry, "explains": tuple(entry["explains"])}) for entry in _ENTRIES["cause"]
)
_BY_ID = {monitor.id: monitor for monitor in MONITORS}
_BY_CASE = {(cause.id, cause.case): cause for cause in CAUSES}


def severity_of(monitor: str) -> Severity:
    """The most that an alarm of that monitor weighs. Raises KeyError."""
    return _BY_ID[monitor].severity


def symptom_of(monitor: str, case: str = "") -> str:
    """What an alarm of that monitor says was seen. Raises KeyError."""
    words = _BY_ID[monitor]
    return words.also[case] if case else words.symptom


def cause_of(name: str, case: str = "") -> CauseWords:
    """The words of a cause. Raises KeyError."""
    return _BY_CASE[name, case]


def causes_of(monitor: str) -> tuple[CauseWords, ...]:
    """The causes that explain a monitor's alarms, in the order in which they are tried."""
    return tuple(cause for cause in CAUSES if monitor in cause.explains)
