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


def in_words(changed: ChangedInputs) -> tuple[str, ...]:
    """What was asked, and what was left out."""
    sentences = (f"Not measured: {changed.reason}.",) if changed.reason else _measured_sentences(changed)
    return (*sentences, *((f"Left out: {'; '.join(changed.left_out)}.",) if changed.left_out else ()))


def _measured_sentences(changed: ChangedInputs) -> tuple[str, ...]:
    unused = [importance.column for importance in changed.importance if not importance.loss.shows_gain]
    return (
        f"{count(changed.rows)} rows of {count(changed.groups)} groups were answered again with one feature changed at "
        f"a time. Importance is the rise of the mean {metric_name(changed.loss)} when a feature's values are exchanged "
        "between rows: features that tell the same share it, so that each alone may show none.",
        *((f"Not shown to be used: {', '.join(unused)}.",) if unused else ()),
    )


def most_important(changed: ChangedInputs) -> tuple[Importance, ...]:
    return changed.importance[:MOST_IMPORTANT]


def importance_rows(changed: ChangedInputs) -> list[tuple[str, ...]]:
    """Feature, rise of the loss."""
    return [(importance.column, estimate(importance.loss, sign=True)) for importance in changed.importance]


def perturbation_heads(changed: ChangedInputs) -> tuple[str, ...]:
    measure = behaviour_measure(changed.measure)
    heading = f"{measure[0].upper()}{measure[1:]}" if measure else "Change of the answer"
    return ("Feature", "Changed", heading, "Rise of mean loss", "Refused by the contract")


def perturbation_rows(changed: ChangedInputs) -> list[tuple[str, ...]]:
    """What does the most harm first, by the rise of the loss; what was not asked last."""
    perturbations = sorted(
        changed.perturbations,
        key=lambda perturbation: (perturbation.loss is None, -(perturbation.loss.value if perturbation.loss else 0.0)),
    )
    return [
        (
            perturbation.column,
            CHANGES[perturbation.change],
            estimate(perturbation.moved) if perturbation.moved else perturbation.reason or "not measured",
            estimate(perturbation.loss, sign=True) if perturbation.loss else "",
            _refused(perturbation),
        )
        for perturbation in perturbations[:MOST_LINES]
    ]


def unanswered_rows(changed: ChangedInputs) -> list[tuple[str, ...]]:
    """Changes that the contract lets through and the model has no answer to."""
    return [
        (perturbation.column, CHANGES[perturbation.change], perturbation.reason)
        for perturbation in changed.perturbations
        if perturbation.asked and perturbation.moved is None and perturbation.loss is None and perturbation.refused < 1
    ]


def _refused(perturbation: Perturbation) -> str:
    return f"{share(perturbation.refused)} of rows" if perturbation.refused else "no row"


def behaviour_rows(results: Sequence[BehaviourResult]) -> list[tuple[str, ...]]:
    """Test, how it stands, what is measured, measured, limit, rows."""
    stands = {"kept": "kept", "not_shown": "not shown", "broken": "failed"}
    return [
        (
            result.declared.title,
            stands[result.standing],
            behaviour_measure(result.measure),
            estimate(result.estimate) if result.estimate else f"not measured: {result.told}",
            f"{result.declared.at_most:g}",
            count(result.rows),
        )
        for result in results
    ]


def curves(report: EvaluationReport) -> tuple[Dependence, ...]:
    """The curves that are drawn: of the first claim, the most important features first."""
    dependences = report.changed_inputs.dependence if report.changed_inputs else ()
    first = next((curve.claim for curve in dependences), "")
    return tuple(curve for curve in dependences if curve.claim == first)[:MOST_PANELS]


def draw_curve(axes: Axes, curve: Dependence, colour: str) -> None:
    """Mean answer by value, with its interval: a line over numbers, marks over values."""
    answers = [point.answer for point in curve.points]
    numbers = [point.at for point in curve.points if point.at is not None]
    places = numbers if len(numbers) == len(answers) else list(range(len(answers)))
    low, middle, high = ([getattr(answer, end) for answer in answers] for end in ("low", "value", "high"))
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
