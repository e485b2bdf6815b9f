"""What a wrong decision was declared to cost, in words, for beside the figures that are of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainworthy.lifecycle.protocol.figures import CANDIDATE
from trainworthy.lifecycle.protocol.records import EvaluationReport
from trainworthy.lifecycle.report.formatting import figure
from trainworthy.lifecycle.wording import costs_told

_OF_CLASSES = (
    "Decided is the class of the least expected cost: decision cost, accuracy, recall, precision, F1 and rates of "
    "decisions are of it, and not of the most probable class."
)


def costs_text(declared: Mapping[str, Any]) -> str:
    """What the costs of a suite's `declared` section benchmark are, and of which columns; empty without costs."""
    decision = declared.get("decision") or {}
    if decision.get("cost_matrix"):
        return _OF_CLASSES
    told = costs_told(decision.get("costs") or {})
    return f"Decision cost is a row's mean: {told}." if told else ""


def costs_of_report(report: EvaluationReport) -> str:
    """The same of an evaluation, with the threshold that the candidate decides by; empty without such costs."""
    sentence = costs_text(report.suite.declared) if report.suite is not None else ""
    if not sentence or CANDIDATE not in report.thresholds:
        return sentence
    return f"{sentence} The candidate acts from {figure(report.thresholds[CANDIDATE])} on."
