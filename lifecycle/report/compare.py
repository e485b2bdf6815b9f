"""Two models side by side, as text for a terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainworthy.lifecycle.protocol.figures import Compared, Comparison
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report import pictures
from trainworthy.lifecycle.report.figures import Figure, figure_of
from trainworthy.lifecycle.report.formatting import estimate, with_method
from trainworthy.lifecycle.report.render import environment
from trainworthy.lifecycle.wording import count, metric_name

# More do not fit a picture that can be read.
_MOST_DRAWN = 25


@dataclass(frozen=True)
class TwoModels:
    """Two versions of a use case's model on the same rows; `facts` are rows of what else differs: name and both values.

    `metrics` are over all rows, `parts` the primary metric over parts of them, and the one that a part is judged by.
    `costs` says what decisions cost, where that is declared.
    """

    use_case: str
    first: str
    second: str
    measured_on: str
    facts: tuple[tuple[str, str, str], ...]
    metrics: tuple[Compared, ...]
    parts: tuple[Compared, ...]
    costs: str = ""


def stands(item: Compared) -> str:
    """How the first model stands to the second, by the interval of the gain."""
    if item.gain is None:
        return item.told
    return "better" if item.gain.shows_gain else "worse" if item.gain.shows_loss else "no difference shown"


def compare_text(models: TwoModels) -> str:
    """For a terminal: metrics, then parts of the rows, the worst gain first."""
    names = (f"version {models.first}", f"version {models.second}")
    blocks = [f"{models.use_case}: {names[0]} against {names[1]}, on {models.measured_on}"]
    if models.facts:
        blocks.append(_table(("", *names), models.facts))
    titles = ("metric", *names, "gain, above 0 is better", "")
    blocks.append(_table(titles, [(metric_name(item.metric), *_cells(item)) for item in models.metrics]))
    if models.costs:
        blocks.append(models.costs)
    for metric, parts in by_metric(models.parts).items():
        titles = (metric_name(metric), "rows", *names, "gain, above 0 is better", "")
        blocks.append(_table(titles, [(item.part, count(item.rows), *_cells(item)) for item in parts]))
    return "\n\n".join(blocks) + "\n"


def worst_gain_first(parts: Sequence[Compared]) -> list[Compared]:
    """Parts by their gain; those without one last."""
    return sorted(parts, key=lambda item: item.gain.value if item.gain else float("inf"))


def by_metric(parts: Sequence[Compared]) -> dict[str, list[Compared]]:
    """Parts by their metric, the primary one first, each the worst gain first."""
    metrics = dict.fromkeys(item.metric for item in parts)
    return {metric: worst_gain_first([item for item in parts if item.metric == metric]) for metric in metrics}


def render_compare(models: TwoModels, made_at: str) -> str:
    """The page: self-contained HTML, without scripts."""
    template = environment().get_template("compare.html.j2")
    return template.render(
        models=models, parts=by_metric(models.parts), figure=_forest(models), made_at=made_at, stands=stands
    )


def _forest(models: TwoModels) -> Figure | None:
    """Gains over all rows and parts, those with an interval."""
    primary = models.parts[:1] or models.metrics[:1]
    whole = [item for item in models.metrics if primary and item.metric == primary[0].metric]
    of_primary = [item for item in models.parts if item.metric == models.parts[0].metric]
    shown = [item for item in (*whole, *worst_gain_first(of_primary)) if item.gain is not None]
    if not shown:
        return None
    gains = [
        Comparison(reference=item.part or "all rows", metric=item.metric, gain=item.gain)
        for item in shown[:_MOST_DRAWN]
        if item.gain is not None
    ]
    listed = "; ".join(f"{comparison.reference} {estimate(comparison.gain, sign=True)}" for comparison in gains[:3])
    rest = f", the {len(gains)} worst of {len(shown)}" if len(gains) < len(shown) else ""
    caption = (
        f"Gain of version {models.first} over version {models.second}{rest}, with 95 % intervals by group. "
        "A hollow mark: the interval holds zero."
    )
    return figure_of(pictures.comparison_chart(gains, Words()), f"Gains: {listed}", caption)


def _cells(item: Compared) -> tuple[str, str, str, str]:
    first, second = ("" if value is None else with_method(value) for value in (item.first, item.second))
    return first, second, "" if item.gain is None else with_method(item.gain, sign=True), stands(item)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest value."""
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    lines = [[value.ljust(width) for value, width in zip(row, widths, strict=True)] for row in (titles, *rows)]
    return "\n".join("  ".join(line).rstrip() for line in lines)
