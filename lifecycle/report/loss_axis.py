"""The loss axis of a training's curve: a spike must not press what is healthy into one flat line."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.records import CurvePoint, StageReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A curve that stays within three heights of the healthy range still shows its shape, so nothing is cut off.
_MOST_HEIGHTS = 3.0
_SPREADS = 4.0


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
