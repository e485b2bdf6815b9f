"""A training's loss by step: what each window may be called is said by its marks, not by colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.records import CurvePoint, StageReport
from trainworthy.lifecycle.report.alarms import draw_marks
from trainworthy.lifecycle.report.loss_axis import clip, clipped_at, drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STAGE_STYLES = {"smoke": ("#8b949e", ":"), "pilot": ("#57606a", "--"), "full": ("#1f5fae", "-")}
_LATER, _EVALUATED, _RESERVE = "later passes: training loss", "first pass, evaluation mode", "reserve, evaluation mode"


def training_curve(axes: Axes, stages: Sequence[StageReport]) -> bool:
    """Draws the stages' windows with their 95 % intervals; False if there is no finite one."""
    if not any(drawable(point) for stage in stages for point in stage.curve):
        return False
    for stage in stages:
        colour, line = _STAGE_STYLES[stage.kind]
        curve = [point for point in stage.curve if drawable(point)]
        first = [point for point in curve if point.pass_number == 1]
        # Joined to the last window of the first pass, which ends there.
        later = [*first[-1:], *(point for point in curve if point.pass_number > 1)]
        _line(axes, first, colour, line, 1.6, label=stage.kind)
        if len(later) > 1 or not first:
            _line(axes, later, colour, line, 0.7, marker="|", label=_LATER)
        monitored = [point for point in stage.monitored if point.slice is None and drawable(point)]
        _marks(axes, [point for point in monitored if point.scored == "batches"], colour, "o", _EVALUATED)
        _marks(axes, [point for point in monitored if point.scored == "reserve"], colour, "s", _RESERVE)
    axes.set(xscale="log", xlabel="optimizer step", ylabel="loss while training")
    draw_marks(axes, stages)
    limit = clipped_at(stages)
    if limit is not None:
        clip(axes, stages, limit)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    _legend(axes)
    return True


def drawn_sentence(stages: Sequence[StageReport]) -> str:
    """The caption's sentence on what is drawn: kinds of windows that none of the stages has are left out."""
    points = [point for stage in stages for point in (*stage.curve, *stage.monitored) if point.slice is None]
    parts = ["Left: progressive loss, scored before each update, 95 % interval"]
    if any(point.pass_number > 1 and point.mode == "training" for point in points):
        parts.append("thin with ticks from the second pass on, where the rows have been seen and it is training loss")
    if any(point.scored == "batches" and point.mode == "evaluation" for point in points):
        parts.append("circles: the same without dropout")
    if any(point.scored == "reserve" for point in points):
        parts.append("squares: training rows that are never trained on")
    if any(stage.alarms for stage in stages):
        parts.append("vertical lines: alarms, dashed where they only warn")
    if clipped_at(stages) is not None:
        parts.append("an arrow: the curve leaves the axis here, with its highest loss")
    return "; ".join(parts) + "."


def _line(
    axes: Axes, points: Sequence[CurvePoint], colour: str, line: str, width: float, *, label: str, marker: str = ""
) -> None:
    steps = [point.step for point in points]
    losses = [point.loss for point in points]
    axes.plot(
        steps, losses, color=colour, linestyle=line, linewidth=width, marker=marker, markersize=4, label=label
    )  # fmt: skip
    low, high = [point.low for point in points], [point.high for point in points]
    axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)


def _marks(axes: Axes, points: Sequence[CurvePoint], colour: str, marker: str, label: str) -> None:
    if points:
        axes.errorbar(
            [point.step for point in points], [point.loss for point in points],
            yerr=[1.96 * point.standard_error for point in points], color=colour, linestyle="", marker=marker,
            markerfacecolor="white", markersize=3.5, linewidth=0.7, label=label,
        )  # fmt: skip


def _legend(axes: Axes) -> None:
    """Each kind of window once, for all stages."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(once.values(), once.keys(), frameon=False, fontsize=7)
