"""Tables and pictures of what the candidate answers if its inputs change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.figures import BehaviourResult, ChangedInputs, Dependence, Importance, Perturbation
from trainworthy.lifecycle.protocol.records import EvaluationReport
from trainworthy.lifecycle.report.formatting import estimate, share
from trainworthy.lifecycle.wording import behaviour_measure, count, metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What a reader takes in at once; the record holds all.
MOST_IMPORTANT, MOST_LINES, MOST_PANELS = 20, 25, 8
CHANGES = {
    "jitter": "moved by a tenth of its spread",
    "missing": "missing",
    "thousandfold": "a thousand times as much",
    "thousandth": "a thousandth",
    "swapped": "swapped for another value",
    "unknown": "a value that no row has",
}


def in_words(found: ChangedInputs) -> tuple[str, ...]:
    """What was asked, and what was left out."""
    told = (f"Not measured: {found.reason}.",) if found.reason else _asked(found)
    return (*told, *((f"Left out: {'; '.join(found.left_out)}.",) if found.left_out else ()))


def _asked(found: ChangedInputs) -> tuple[str, ...]:
    unused = [one.column for one in found.importance if not one.loss.shows_gain]
    return (
        f"{count(found.rows)} rows of {count(found.groups)} groups were answered again with one feature changed at a "
        f"time. Importance is the rise of the mean {metric_name(found.loss)} when a feature's values are exchanged "
        "between rows: features that tell the same share it, so that each alone may show none.",
        *((f"Not shown to be used: {', '.join(unused)}.",) if unused else ()),
    )


def most_important(found: ChangedInputs) -> tuple[Importance, ...]:
    return found.importance[:MOST_IMPORTANT]


def importance_rows(found: ChangedInputs) -> list[tuple[str, ...]]:
    """Feature, rise of the loss."""
    return [(one.column, estimate(one.loss, sign=True)) for one in found.importance]


def perturbation_heads(found: ChangedInputs) -> tuple[str, ...]:
    measure = behaviour_measure(found.measure)
    told = f"{measure[0].upper()}{measure[1:]}" if measure else "Change of the answer"
    return ("Feature", "Changed", told, "Rise of mean loss", "Refused by the contract")


def perturbation_rows(found: ChangedInputs) -> list[tuple[str, ...]]:
    """What does the most harm first, by the rise of the loss; what was not asked last."""
    told = sorted(found.perturbations, key=lambda one: (one.loss is None, -(one.loss.value if one.loss else 0.0)))
    return [
        (
            one.column, CHANGES[one.change], estimate(one.moved) if one.moved else one.reason or "not measured",
            estimate(one.loss, sign=True) if one.loss else "", _refused(one),
        )
        for one in told[:MOST_LINES]
    ]  # fmt: skip


def unanswered_rows(found: ChangedInputs) -> list[tuple[str, ...]]:
    """Changes that the contract lets through and the model has no answer to."""
    return [
        (one.column, CHANGES[one.change], one.reason)
        for one in found.perturbations
        if one.asked and one.moved is None and one.loss is None and one.refused < 1
    ]


def _refused(one: Perturbation) -> str:
    return f"{share(one.refused)} of rows" if one.refused else "no row"


def behaviour_rows(results: Sequence[BehaviourResult]) -> list[tuple[str, ...]]:
    """Test, how it stands, what is measured, measured, limit, rows."""
    stands = {"kept": "kept", "not_shown": "not shown", "broken": "failed"}
    return [
        (
            one.declared.title, stands[one.standing], behaviour_measure(one.measure),
            estimate(one.estimate) if one.estimate else f"not measured: {one.told}", f"{one.declared.at_most:g}",
            count(one.rows),
        )
        for one in results
    ]  # fmt: skip


def curves(report: EvaluationReport) -> tuple[Dependence, ...]:
    """The curves that are drawn: of the first claim, the most important features first."""
    found = report.changed_inputs.dependence if report.changed_inputs else ()
    first = next((one.claim for one in found), "")
    return tuple(one for one in found if one.claim == first)[:MOST_PANELS]


def draw_curve(axes: Axes, curve: Dependence, colour: str) -> None:
    """Mean answer by value, with its interval: a line over numbers, marks over values."""
    answers = [point.answer for point in curve.points]
    numbers = [point.at for point in curve.points if point.at is not None]
    places = numbers if len(numbers) == len(answers) else list(range(len(answers)))
    low, middle, high = ([getattr(one, end) for one in answers] for end in ("low", "value", "high"))
    if numbers:
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(places, middle, color=colour, marker="o", markersize=3, linewidth=1.2)
    else:
        axes.vlines(places, low, high, color=colour, linewidth=1.2)
        axes.plot(places, middle, "o", color=colour, markersize=4)
        axes.set_xticks(places, [point.value[:10] for point in curve.points], rotation=60, fontsize=7)
        for label in axes.get_xticklabels():
            label.set_parse_math(False)
    axes.set_title(curve.column[:28], fontsize=8.5, parse_math=False)
