"""A training's alarms: marks on its curve, and the rows of the table that tells of them under the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lifecycle.records import Alarm, StageReport
from lifecycle.wording import count, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More lines than this hide the curve; more names hide each other. The table has them all.
MAX_MARKS, MAX_NAMES = 20, 6
MAX_KEYS = 3
_STYLES = {"critical": ("#a40e26", "-"), "warning": ("#7a5200", "--")}


@dataclass(frozen=True)
class AlarmRow:
    """One alarm as text; `replay` is the command that does its step again, "" where no incident was kept."""

    number: int
    stage: str
    step: str
    monitor: str
    severity: str
    found: str
    cause: str
    action: str
    replay: str


def numbered(stages: Sequence[StageReport]) -> list[tuple[int, StageReport, Alarm]]:
    """Every alarm with its number, in the order of stages and steps."""
    found = [(stage, alarm) for stage in stages for alarm in sorted(stage.alarms, key=lambda alarm: alarm.step)]
    return [(number, stage, alarm) for number, (stage, alarm) in enumerate(found, start=1)]


def alarm_rows(stages: Sequence[StageReport]) -> list[AlarmRow]:
    """What the table of alarms says, a row an alarm."""
    return [
        AlarmRow(
            number=number,
            stage=stage.kind,
            step=_steps(alarm),
            monitor=words(alarm.monitor),
            severity=alarm.severity,
            found=f"{_sentence(alarm.symptom)} {_sentence(alarm.evidence)}{_keys(alarm)}",
            cause=f"{_sentence(alarm.cause)} {_sentence(alarm.fix)}",
            action=words(alarm.action),
            replay=f"trainworthy replay {alarm.incident}" if alarm.incident else "",
        )
        for number, stage, alarm in numbered(stages)
    ]


def told_marks(stages: Sequence[StageReport]) -> str:
    """The alternative text's part on alarms, "" without any."""
    found = numbered(stages)
    shown = [f"{words(alarm.monitor)} at step {count(alarm.step)} of {stage.kind}" for _, stage, alarm in found[:5]]
    more = f", and {len(found) - 5} more" if len(found) > 5 else ""
    return f". Alarms: {', '.join(shown)}{more}" if found else ""


def draw_marks(axes: Axes, stages: Sequence[StageReport]) -> None:
    """A vertical line where each alarm was raised, with its number and, where there is room, its monitor's name."""
    found = numbered(stages)[:MAX_MARKS]
    for number, _, alarm in found:
        colour, line = _STYLES[alarm.severity]
        # A curve's steps count updates that were made, and the axis has no zero.
        step = alarm.step + 1
        axes.axvline(step, color=colour, linestyle=line, linewidth=0.9, label=f"alarm, {alarm.severity}")
        name = f"{number} {words(alarm.monitor)}" if len(found) <= MAX_NAMES else f"{number}"
        axes.annotate(
            name, (step, 0.98), xycoords=axes.get_xaxis_transform(), xytext=(-2, 0), textcoords="offset points",
            rotation=90, ha="right", va="top", fontsize=6.5, color=colour,
        )  # fmt: skip


def _steps(alarm: Alarm) -> str:
    if alarm.count == 1:
        return count(alarm.step)
    return f"{count(alarm.step)} to {count(alarm.last_step)}, {count(alarm.count)} times"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _keys(alarm: Alarm) -> str:
    if not alarm.row_keys:
        return ""
    shown = "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in alarm.row_keys[:MAX_KEYS])
    return f" First of {len(alarm.row_keys)} rows: {shown}."
