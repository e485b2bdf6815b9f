"""A training's alarms: marks on its curve, and the rows of the table that tells of them under the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.records import StageReport
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.wording import count, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_KEYS = 3
# Both stay apart inverted for the dark theme: there critical is pink, warning amber.
_STYLES = {"critical": ("#a40e26", "-"), "warning": ("#a05f00", "--")}
# In parts of the axis' width: marks that lie closer are one, and what a letter of a label takes.
_ONE_MARK, _LETTER = 0.035, 0.0155


@dataclass(frozen=True)
class AlarmRow:
    """One alarm as text; `replay` is the command that does its step again, "" where no incident was kept."""

    number: int
    stage: str
    step: str
    monitor: str
    severity: str
    evidence: str
    cause: str
    action: str
    replay: str


def numbered(stages: Sequence[StageReport]) -> list[tuple[int, StageReport, Alarm]]:
    """Every alarm with its number, in the order of stages and steps."""
    alarms = [(stage, alarm) for stage in stages for alarm in sorted(stage.alarms, key=lambda alarm: alarm.step)]
    return [(number, stage, alarm) for number, (stage, alarm) in enumerate(alarms, start=1)]


def alarm_rows(stages: Sequence[StageReport]) -> list[AlarmRow]:
    """What the table of alarms says, a row an alarm."""
    return [
        AlarmRow(
            number=number,
            stage=stage.kind,
            step=_steps(alarm),
            monitor=words(alarm.monitor),
            severity=alarm.severity,
            evidence=f"{_sentence(alarm.symptom)} {_sentence(alarm.evidence)}{_keys(alarm)}",
            cause=f"{_sentence(alarm.cause)} {_sentence(alarm.fix)}",
            action=words(alarm.action),
            replay=f"trainworthy replay {alarm.incident}" if alarm.incident else "",
        )
        for number, stage, alarm in numbered(stages)
    ]


def marks_text(stages: Sequence[StageReport]) -> str:
    """The alternative text's part on alarms, "" without any."""
    alarms = numbered(stages)
    shown = [f"{words(alarm.monitor)} at step {count(alarm.step)} of {stage.kind}" for _, stage, alarm in alarms[:5]]
    more = f", and {len(alarms) - 5} more" if len(alarms) > 5 else ""
    return f". Alarms: {', '.join(shown)}{more}" if alarms else ""


def draw_marks(axes: Axes, stages: Sequence[StageReport]) -> None:
    """A vertical line where each alarm was raised, its number and monitor above the axes.

    Alarms too close to be told apart share a line and a label, "1-4 loss spike", which counts as critical if one of
    them is. The axis must have its scale.
    """
    marks = _marks(axes, stages)
    ends: list[float] = []
    for place, together in marks:
        severity = "critical" if any(alarm.severity == "critical" for _, alarm in together) else "warning"
        colour, line = _STYLES[severity]
        axes.axvline(
            _axis_step(together[0][1]), color=colour, linestyle=line, linewidth=0.9, label=f"alarm, {severity}"
        )
        text = _label(together)
        right = place > 0.5
        start = place - _LETTER * len(text) if right else place
        # The lowest row in which the label hits no other one.
        row = next((row for row, end in enumerate(ends) if start > end), len(ends))
        ends[row : row + 1] = [start + _LETTER * (len(text) + 1)]
        axes.annotate(
            text, (_axis_step(together[0][1]), 1.0), xycoords=axes.get_xaxis_transform(), xytext=(0, 3 + 8 * row),
            textcoords="offset points", ha="right" if right else "left", va="bottom", fontsize=6.5, color=colour,
            annotation_clip=False,
        )  # fmt: skip


def _marks(axes: Axes, stages: Sequence[StageReport]) -> list[tuple[float, list[tuple[int, Alarm]]]]:
    """Alarms that one mark can show, from left to right, each with its place in parts of the axis' width."""
    pairs = sorted(((number, alarm) for number, _, alarm in numbered(stages)), key=lambda item: item[1].step)
    if pairs:
        # The axis must reach the outermost alarms before places on it can be told.
        axes.update_datalim([(_axis_step(alarm), 0.0) for _, alarm in pairs], updatey=False)
        axes.autoscale_view(scaley=False)
    marks: list[tuple[float, list[tuple[int, Alarm]]]] = []
    for number, alarm in pairs:
        at = (axes.transData + axes.transAxes.inverted()).transform((_axis_step(alarm), 1.0))
        place = float(at[0])
        if marks and place - marks[-1][0] < _ONE_MARK:
            marks[-1][1].append((number, alarm))
        else:
            marks.append((place, [(number, alarm)]))
    return marks


def _axis_step(alarm: Alarm) -> int:
    """A curve's steps count updates that were made, and the axis has no zero."""
    return alarm.step + 1


def _label(together: Sequence[tuple[int, Alarm]]) -> str:
    """The numbers of the table, as spans; the monitor too if it is one alone."""
    spans: list[list[int]] = []
    for number in sorted(number for number, _ in together):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    numbers = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    monitors = {alarm.monitor for _, alarm in together}
    return f"{numbers} {words(monitors.pop())}" if len(monitors) == 1 else numbers


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
