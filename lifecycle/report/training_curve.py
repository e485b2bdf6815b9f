"""A training's loss by step: what each window may be called is said by its marks, not by colour alone.

On its loss axis a spike must not press what is healthy into one flat line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.records import StageReport
from trainworthy.lifecycle.protocol.training_figures import CurvePoint
from trainworthy.lifecycle.report.alarms import draw_marks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STAGE_STYLES = {"smoke": ("#8b949e", ":"), "pilot": ("#57606a", "--"), "full": ("#1f5fae", "-")}
_LATER, _EVALUATED, _RESERVE = "later passes: training loss", "first pass, evaluation mode", "reserve, evaluation mode"
# A curve that stays within three heights of the healthy range still shows its shape, so nothing is cut off.
_MOST_HEIGHTS = 3.0
_SPREADS = 4.0


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


def drawable(point: CurvePoint) -> bool:
    """True for a window that a curve can show: finite, and after the first update."""
    return math.isfinite(point.loss) and point.step > 0


def clipped_at(stages: Sequence[StageReport]) -> float | None:
    """The loss above which the curves are cut off, None where all of them fit.

    Healthy is what lies between the lowest window and the highest of: each stage's first window, what the best
    constant answer loses, and four times the lower half's spread above the median. A spike moves none of these while
    fewer than half of the windows are in it.
    """
    curves = [[point for point in stage.curve if drawable(point)] for stage in stages]
    losses = sorted(point.loss for curve in curves for point in curve)
    if not losses:
        return None
    median, low = statistics.median(losses), losses[0]
    spread = median - losses[len(losses) // 10]
    priors = [stage.metrics.get("val_loss_of_prior", math.nan) for stage in stages]
    first = [curve[0].loss for curve in curves if curve]
    top = max(median + _SPREADS * spread, *first, *(prior for prior in priors if math.isfinite(prior)))
    height = top - low
    return top + 0.25 * height if losses[-1] > low + _MOST_HEIGHTS * height > low else None


def clip(axes: Axes, stages: Sequence[StageReport], limit: float) -> None:
    """Ends the axis at `limit`. Each stage's curve gets an arrow where it leaves it, and its highest value beside."""
    lowest = min(point.low for stage in stages for point in stage.curve if drawable(point) and point.loss <= limit)
    axes.set_ylim(lowest - 0.05 * (limit - lowest), limit)
    left = [(stage.kind, [p for p in stage.curve if drawable(p) and p.loss > limit]) for stage in stages]
    for line, (kind, above) in enumerate((kind, above) for kind, above in left if above):
        first, highest = above[0], max(above, key=lambda point: point.loss)
        axes.annotate(
            "", (first.step, 1.0), xycoords=axes.get_xaxis_transform(), xytext=(0, -16), textcoords="offset points",
            arrowprops={"arrowstyle": "-|>", "color": "#22272e", "linewidth": 1.2}, zorder=5,
        )  # fmt: skip
        # To the left of its arrow: a training that goes wrong mostly ends there.
        axes.annotate(
            f"{kind} leaves the axis: up to {_loss_text(highest.loss)}", (first.step, 1.0),
            xycoords=axes.get_xaxis_transform(), xytext=(-5, -4 - 9 * line), textcoords="offset points", ha="right",
            va="top", fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, zorder=6,
        )  # fmt: skip


def _loss_text(loss: float) -> str:
    return f"{loss:,.0f}" if 1000 <= loss < 1e9 else f"{loss:.3g}"
