"""The pictures as the page holds them: data URI, alternative text that states the finding, caption."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass

from trainworthy.lifecycle.gates.learning_rate import suggested_range
from trainworthy.lifecycle.protocol.figures import ChangedInputs, Comparison, ModelFigures
from trainworthy.lifecycle.protocol.records import EvaluationReport, StageReport
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report import changed_inputs, pictures, sections
from trainworthy.lifecycle.report.alarms import marks_text
from trainworthy.lifecycle.report.formatting import estimate, figure, number, with_method
from trainworthy.lifecycle.report.outcome import (
    Records,
    all_comparisons,
    of_champion,
    reading,
    record_of,
    said,
    stages_of,
)
from trainworthy.lifecycle.report.training_curve import drawn_sentence as told_curve
from trainworthy.lifecycle.wording import count, metric_name


@dataclass(frozen=True)
class Figure:
    """A PNG as data URI, with the text for those who do not see it and a caption for those who do.

    `width` and `height` in pixels keep the page from jumping; the picture is drawn at one and a half times its size.
    """

    uri: str
    alt: str
    caption: str
    width: int
    height: int


def figures(records: Records) -> dict[str, Figure]:
    """The figures for which the records hold data: rates, learning, comparison, reliability, slices."""
    drawn: dict[str, Figure] = {}
    if rates := _rates(records):
        drawn["rates"] = rates
    if stages := stages_of(records):
        drawn["learning"] = _learning(stages)
    if comparisons := all_comparisons(records):
        drawn["comparison"] = _comparison(comparisons, said(records))
    report = record_of(records, "evaluation", EvaluationReport)
    if report and report.reliability:
        drawn["reliability"] = _reliability(report)
    if report and pictures.slice_metrics(report):
        drawn["slices"] = _slices(report, of_champion(records))
    if report and report.changed_inputs and report.changed_inputs.importance:
        drawn["importance"] = _importance(report, report.changed_inputs)
    if report and changed_inputs.curves(report):
        drawn["dependence"] = _dependence(report)
    return drawn


def _rates(records: Records) -> Figure | None:
    """Of preflight's range of learning rates, None if it has tried none; a stopped preflight has one too."""
    report = records.get("preflight")
    details = [detail for check in report.checks for detail in check.details] if report else []
    trial = next((detail for detail in details if detail.get("check") == "learning_rate.range"), None)
    if not trial or not trial["curve"]:
        return None
    curve, declared = [(rate, loss) for rate, loss in trial["curve"]], float(trial["observed"])
    low, high = suggested_range(curve)
    alt = f"Loss by learning rate: worth trying {low:.2g} to {high:.2g}, declared {declared:.2g}"
    caption = "Preflight's range test, one update a point. The band is worth trying if the dashed rate does badly."
    return figure_of(pictures.rate_curve(curve, declared, (low, high)), alt, caption)


def _learning(stages: list[StageReport]) -> Figure:
    losses = [(stage, pictures.validation_loss(stage)) for stage in stages]
    listed = [f"{stage.kind} {figure(loss)} on {count(stage.rows)} rows" for stage, loss in losses if loss is not None]
    alt = f"Learning curves. Validation loss: {', '.join(listed) or 'not measured'}{marks_text(stages)}"
    caption = f"{told_curve(stages)} Right: validation loss by training rows."
    if any(stage.trained for stage in stages):
        caption += " Hollow marks: other seeds."
    if any(stage.data_curve and stage.data_curve.full_loss for stage in stages):
        caption += " Bar: what the pilot expected of full."
    return figure_of(pictures.learning_curve(stages), alt, caption)


def _comparison(comparisons: tuple[Comparison, ...], named: Words) -> Figure:
    listed = [
        f"{named.reference(item.reference)} {with_method(item.gain, sign=True)}, {reading(item)}"
        for item in comparisons
    ]
    caption = "Paired gain with 95 % interval. A hollow mark: the interval holds zero."
    return figure_of(pictures.comparison_chart(comparisons, named), f"Gain over {'; '.join(listed)}", caption)


def _reliability(report: EvaluationReport) -> Figure:
    gap = max(abs(item.predicted - item.observed) for item in report.reliability)
    difference = number(gap, 3) if gap < 1 else figure(gap)
    alt = f"Reliability in {len(report.reliability)} bins: predicted and observed differ by at most {difference}"
    caption = "On the dashed line, predicted and observed agree. Larger marks hold more rows."
    return figure_of(pictures.reliability_curve(report), alt, caption)


def _slices(report: EvaluationReport, champion: ModelFigures | None) -> Figure:
    slices = sections.slices_shown(report)
    ends = [f"{item.slice} {estimate(item.estimate)}" for item in (slices[0], slices[-1])]
    metric = metric_name(pictures.slice_metric(report))
    alt = f"{metric} on {len(slices)} slices, from {ends[0]} (worst) to {ends[1]} (best)"
    caption = "Rows of each slice in brackets; the dashed line and band are all rows with their 95 % interval."
    caption += " Grey: the champion on the same rows." if champion else ""
    return figure_of(pictures.slice_chart(report, champion), alt, caption)


def _importance(report: EvaluationReport, changed: ChangedInputs) -> Figure:
    first = ", ".join(
        f"{importance.column} {estimate(importance.loss, sign=True)}" for importance in changed.importance[:3]
    )
    caption = "A hollow mark: the interval holds zero, so that the feature is not shown to be used."
    return figure_of(pictures.importance_chart(report), f"Permutation importance, the greatest: {first}", caption)


def _dependence(report: EvaluationReport) -> Figure:
    names = ", ".join(curve.column for curve in changed_inputs.curves(report))
    caption = "Partial dependence: the mean answer if all rows had the value, at values of training rows."
    return figure_of(pictures.dependence_chart(report), f"Mean answer by {names}", caption)


def figure_of(png: bytes, alt: str, caption: str) -> Figure:
    """A PNG with its texts."""
    # Width and height are the first two numbers of a PNG's header chunk (PNG specification, 11.2.2).
    width, height = struct.unpack(">II", png[16:24])
    uri = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return Figure(uri=uri, alt=alt, caption=caption, width=round(width / 1.5), height=round(height / 1.5))
