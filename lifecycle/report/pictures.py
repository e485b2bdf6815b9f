"""The report's pictures: PNG on white, below 100 kB each, so that Dagster's metadata can hold them too.

A picture without data says so in words. Colour never carries a meaning alone: line styles, filled
and hollow marks and labels say the same.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from PIL import Image

from trainworthy.lifecycle.protocol.figures import CANDIDATE, Comparison, Estimate, Metric, ModelFigures
from trainworthy.lifecycle.protocol.records import EvaluationReport, StageReport
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report import changed_inputs
from trainworthy.lifecycle.report.letters import drawable
from trainworthy.lifecycle.report.training_curve import training_curve
from trainworthy.lifecycle.tasks import is_better_higher, words_of
from trainworthy.lifecycle.wording import figures, metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_SLICES = 24

ACCENT, INK, SOFT, GRID = "#1f5fae", "#22272e", "#59636e", "#e3e6ea"
_DPI = 144


def learning_curve(stages: Sequence[StageReport]) -> bytes:
    """Two panels: loss while training by step for each stage, with 95 % intervals, and the data-learning-curve,
    validation loss by training rows."""
    figure = _figure(9.6, 3.3)
    left, right = figure.subplots(1, 2)
    if not training_curve(left, stages):
        _say(left, "No finite loss was recorded.")
    _data_curve(right, stages)
    return _png(figure)


def rate_curve(curve: Sequence[tuple[float, float]], declared: float, tried: tuple[float, float]) -> bytes:
    """Loss by learning rate of a range test; the band is worth trying, the line is the declared rate."""
    figure = _figure(5.6, 3.3)
    axes = figure.subplots()
    if not curve:
        return _nothing(figure, axes, "No finite loss was recorded.")
    axes.axvspan(*tried, color=ACCENT, alpha=0.12, linewidth=0, label="worth trying")
    axes.axvline(declared, color=INK, linestyle="--", linewidth=1, label="declared")
    axes.plot([rate for rate, _ in curve], [loss for _, loss in curve], color=ACCENT, marker="o", markersize=3)
    axes.set(xscale="log", xlabel="learning rate, growing from update to update", ylabel="loss")
    axes.legend(frameon=False, fontsize=8)
    return _png(figure)


def reliability_curve(report: EvaluationReport) -> bytes:
    """What is observed by what is answered, in bins; the area of a mark grows with its rows."""
    figure = _figure(4.4, 4.2)
    axes = figure.subplots()
    bins = report.reliability
    if not bins:
        return _nothing(figure, axes, "No reliability was measured.")
    named, (low, top) = words_of(report), _range(report)
    axes.plot([low, top], [low, top], color=SOFT, linestyle="--", linewidth=1, label="perfect calibration")
    axes.plot([b.predicted for b in bins], [b.observed for b in bins], color=ACCENT, linewidth=1.2)
    most = max(max(item.rows for item in bins), 1)
    areas = [12 + 120 * item.rows / most for item in bins]
    axes.scatter([b.predicted for b in bins], [b.observed for b in bins], s=areas, color=ACCENT, zorder=3)
    for band in _bands(report):
        axes.plot([band.predicted] * 2, [band.low, band.high], color=ACCENT, linewidth=1, alpha=0.6)
    axes.set(xlabel=named.predicted, ylabel=named.observed, xlim=(low, top), ylim=(low, top))
    axes.set_aspect("equal")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return _png(figure)


class _Band(NamedTuple):
    """The interval of the share that came true, at a mean probability."""

    predicted: float
    low: float
    high: float


def _bands(report: EvaluationReport) -> list[_Band]:
    """Those of the first claim, where it is what the reliability is of: several labels together have none."""
    bands = report.calibration[0].bands if report.calibration else ()
    if [band.rows for band in bands] != [reliability_bin.rows for reliability_bin in report.reliability]:
        return []
    return [_Band(band.predicted, band.observed.low, band.observed.high) for band in bands if band.observed is not None]


def _range(report: EvaluationReport) -> tuple[float, float]:
    """Both ends of both axes: from 0 to 1 at most for what lies there, else what the numbers span."""
    values = [value for item in report.reliability for value in (item.predicted, item.observed)]
    low, top = min(values), max(values)
    if low >= 0 and top <= 1:
        return 0.0, min(1.0, top * 1.08)
    room = 0.08 * (top - low) or 1.0
    return low - room, top + room


def slice_chart(report: EvaluationReport, champion: ModelFigures | None = None) -> bytes:
    """The candidate's metric on each slice with its 95 % interval, worst on top; the line is all rows.

    The champion's stands below it, in grey with a hollow mark.
    """
    ranked = worst_first(slice_metrics(report))
    shown = ranked[:MAX_SLICES]
    figure = _figure(7.2, 1.1 + 0.27 * max(len(shown), 3))
    axes = figure.subplots()
    if not shown:
        return _nothing(figure, axes, "No slice has enough rows for an interval.")
    for place, metric in enumerate(reversed(shown)):
        _interval(axes, place, metric.estimate.value, metric.estimate.low, metric.estimate.high, filled=True)
        for other in met_there(metric, champion):
            _interval(axes, place - 0.28, other.value, other.low, other.high, filled=False, color=SOFT)
    if champion is not None:
        axes.plot([], [], "o", color=SOFT, markerfacecolor="white", markersize=5.5, label="champion")
    _names(axes, [_short(f"{metric.slice}  ({metric.rows:,})") for metric in reversed(shown)])
    for metric in overall_of_slices(report):
        axes.axvline(metric.estimate.value, color=SOFT, linestyle="--", linewidth=1, label="all rows")
        axes.axvspan(metric.estimate.low, metric.estimate.high, color=SOFT, alpha=0.12, linewidth=0)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(frameon=False, fontsize=8, loc="outside upper right", ncols=2)
    rest = f", the {len(shown)} worst of {len(ranked)} slices" if len(ranked) > len(shown) else ""
    axes.set_xlabel(f"{metric_name(slice_metric(report))}{rest}")
    return _png(figure, grid="x")


def comparison_chart(comparisons: Sequence[Comparison], named: Words) -> bytes:
    """Gain over each reference with its 95 % interval; a hollow mark where the interval holds zero."""
    figure = _figure(5.6, 1.1 + 0.42 * max(len(comparisons), 2))
    axes = figure.subplots()
    if not comparisons:
        return _nothing(figure, axes, "No comparison was made.")
    _beside_zero(
        axes, [(f"{named.reference(item.reference)} · {metric_name(item.metric)}", item.gain) for item in comparisons]
    )
    axes.set_xlabel("gain of the candidate: left of zero worse, right better")
    return _png(figure, grid="x")


def met_there(metric: Metric, champion: ModelFigures | None) -> tuple[Estimate, ...]:
    """What the champion measures there: one, or none."""
    measured = () if champion is None else champion.metrics
    return tuple(
        champion_metric.estimate
        for champion_metric in measured
        if (champion_metric.metric, champion_metric.slice) == (metric.metric, metric.slice)
    )


def importance_chart(report: EvaluationReport) -> bytes:
    """The rise of the loss when each feature's values are exchanged; hollow where the interval holds zero."""
    importances = changed_inputs.most_important(report.changed_inputs) if report.changed_inputs else ()
    figure = _figure(5.6, 1.1 + 0.27 * max(len(importances), 3))
    axes = figure.subplots()
    if not importances:
        return _nothing(figure, axes, "No importance was measured.")
    _beside_zero(axes, [(item.column, item.loss) for item in importances])
    axes.set_xlabel("rise of the mean loss when the feature's values are exchanged")
    return _png(figure, grid="x")


def dependence_chart(report: EvaluationReport) -> bytes:
    """A panel for each of the most important features: the mean answer by its value, on one scale."""
    curves = changed_inputs.curves(report)
    across = min(len(curves), 4) or 1
    figure = _figure(2.4 * across, 2.2 * math.ceil(max(len(curves), 1) / across))
    panels = figure.subplots(math.ceil(max(len(curves), 1) / across), across, squeeze=False, sharey=True)
    if not curves:
        return _nothing(figure, panels[0, 0], "No dependence was measured.")
    for axes, curve in zip(panels.flat, curves, strict=False):
        changed_inputs.draw_curve(axes, curve, ACCENT)
    for axes in panels.flat[len(curves) :]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel("mean answer" if curves[0].claim == "answer" else f"mean probability of {curves[0].claim}"[:40])
    return _png(figure)


def slice_metric(report: EvaluationReport) -> str:
    """The metric that slices are told by: the primary one, else the first that was measured on them."""
    measured = [item.metric for item in report.metrics if item.model == CANDIDATE and item.slice is not None]
    return report.primary if report.primary in measured or not measured else measured[0]


def slice_metrics(report: EvaluationReport) -> tuple[Metric, ...]:
    """The candidate's slice_metric on each slice."""
    return tuple(item for item in _of_candidate(report, slice_metric(report)) if item.slice is not None)


def overall_of_slices(report: EvaluationReport) -> tuple[Metric, ...]:
    """The candidate's slice_metric over all rows: one, or none if it was not measured."""
    return tuple(item for item in _of_candidate(report, slice_metric(report)) if item.slice is None)


def overall_metrics(report: EvaluationReport) -> tuple[Metric, ...]:
    """The candidate's primary metric over all rows: one, or none if it was not measured."""
    return tuple(item for item in _of_candidate(report, report.primary) if item.slice is None)


def worst_first(metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """Of one metric by value, the worst first; not finite counts as worst."""
    sign = 1.0 if metrics and is_better_higher(metrics[0].metric) else -1.0
    return tuple(sorted(metrics, key=lambda item: _or_worst(sign * item.estimate.value)))


def validation_loss(stage: StageReport) -> float | None:
    """Mean loss on the validation split, None if the stage did not get that far."""
    return stage.metrics.get("val_loss")


def _of_candidate(report: EvaluationReport, metric: str) -> list[Metric]:
    return [item for item in report.metrics if item.model == CANDIDATE and item.metric == metric]


def _or_worst(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _data_curve(axes: Axes, stages: Sequence[StageReport]) -> None:
    losses = [(stage.rows, validation_loss(stage), stage.kind) for stage in stages if stage.rows > 0]
    points = [(rows, loss, stage) for rows, loss, stage in losses if loss is not None and math.isfinite(loss)]
    if not points:
        return _say(axes, "No finite validation loss was recorded.")
    axes.plot([p[0] for p in points], [p[1] for p in points], color=ACCENT, marker="o", linewidth=1.2, markersize=5)
    _stage_labels(axes, points)
    priors = [stage.metrics["val_loss_of_prior"] for stage in stages if "val_loss_of_prior" in stage.metrics]
    if priors:
        axes.axhline(priors[-1], color=SOFT, linestyle="--", linewidth=1, label=words_of(stages[-1]).prior)
        axes.legend(frameon=False, fontsize=8)
    ticks = [p[0] for p in points] + _expected(axes, stages)
    axes.set(xscale="log", xlabel="training rows", ylabel="validation loss")
    axes.minorticks_off()
    axes.set_xticks(ticks, [f"{rows:,}" for rows in ticks])
    axes.margins(x=0.3, y=0.3)


def _stage_labels(axes: Axes, points: Sequence[tuple[int, float, str]]) -> None:
    """Each stage and its loss on the side where the line to the next stage isn't, on white where another line is."""
    following = [*(loss for _, loss, _ in points[1:]), -math.inf]
    for (rows, loss, stage), after in zip(points, following, strict=True):
        below = after > loss
        axes.annotate(
            f"{stage}\n{figures(loss)[0]}", (rows, loss), xytext=(5, -6 if below else 6), textcoords="offset points",
            fontsize=8, va="top" if below else "bottom", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip


def _expected(axes: Axes, stages: Sequence[StageReport]) -> list[int]:
    """Other seeds as hollow marks, and what the pilot expects of full as a bar; gives full's rows if it is not there.

    The fraction of full is 1, so that its rows follow from the pilot's.
    """
    for stage in stages:
        losses = [seed.val_loss for seed in stage.trained if seed.seed != stage.seed and seed.val_loss is not None]
        axes.plot([stage.rows] * len(losses), losses, "o", color=ACCENT, markerfacecolor="white", markersize=4)
    pilot = next((stage for stage in stages if stage.kind == "pilot"), None)
    expected = pilot.data_curve.full_loss if pilot is not None and pilot.data_curve is not None else None
    if pilot is None or expected is None:
        return []
    full = next((stage.rows for stage in stages if stage.kind == "full"), round(pilot.rows / pilot.fraction))
    bar = {"color": ACCENT, "alpha": 0.35, "linewidth": 5, "solid_capstyle": "butt"}
    axes.plot([full, full], [expected.low, expected.high], label="expected by the pilot", zorder=1, **bar)
    axes.legend(frameon=False, fontsize=8)
    return [] if any(stage.kind == "full" for stage in stages) else [full]


def _beside_zero(axes: Axes, named: Sequence[tuple[str, Estimate]]) -> None:
    """Intervals below each other, the first on top; a hollow mark for one that holds 0."""
    axes.axvline(0, color=INK, linewidth=1)
    for place, (_, estimate) in enumerate(reversed(named)):
        _interval(
            axes, place, estimate.value, estimate.low, estimate.high, filled=estimate.shows_gain or estimate.shows_loss
        )
    _names(axes, [_short(name) for name, _ in reversed(named)])


def _interval(
    axes: Axes, place: float, value: float, low: float, high: float, *, filled: bool, color: str = ACCENT
) -> None:
    axes.plot([low, high], [place, place], color=color, linewidth=1.6, solid_capstyle="butt")
    axes.plot(value, place, "o", color=color, markerfacecolor=color if filled else "white", markersize=5.5)


def _names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)))
    # A dollar in a value of the data would start mathematics.
    for label in axes.set_yticklabels(names, fontsize=8.5):
        label.set_parse_math(False)
    axes.set_ylim(-0.6, len(names) - 0.4)


def _short(name: str) -> str:
    return name if len(name) <= 44 else name[:43] + "…"


def _figure(width: float, height: float) -> Figure:
    """A figure of its own: pyplot would keep it in global state. Sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=_DPI, facecolor="white", layout="constrained")


def _nothing(figure: Figure, axes: Axes, sentence: str) -> bytes:
    _say(axes, sentence)
    return _png(figure)


def _say(axes: Axes, sentence: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, sentence, ha="center", va="center", color=SOFT, transform=axes.transAxes)


def _png(figure: Figure, grid: Literal["x", "both"] = "both") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for axes in figure.axes:
        _calm(axes, grid)
    # The pixels as they are: savefig would compress them for the next line to decompress, and draw all twice.
    canvas, file = FigureCanvasAgg(figure), io.BytesIO()
    with drawable(figure):
        canvas.draw()
    drawn = Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba()))
    # 64 colours look the same and take a third of the bytes, if a thin line's colour is kept as well as a surface's.
    few = drawn.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(file, format="png", optimize=True)
    return file.getvalue()


def _calm(axes: Any, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, labelsize=8.5)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    axes.grid(visible=True, axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
