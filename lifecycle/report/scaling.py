"""What the stages reported on the way to full: the seeds, and the data-learning curve with what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainworthy.lifecycle.cost.forecast_error import reached_by_full
from trainworthy.lifecycle.protocol.records import StageReport
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.report.formatting import figure
from trainworthy.lifecycle.report.outcome import Records, stages_of
from trainworthy.lifecycle.wording import metric_name


@dataclass(frozen=True)
class SeedRow:
    """One training of a stage as text; `note` says whether it counts, and what would have stopped it."""

    stage: str
    seed: int
    val_loss: str
    val_score: str
    note: str


def seed_rows(records: Records) -> list[SeedRow]:
    """Every training of the stages that had several."""
    return [_row(stage, trained) for stage in stages_of(records) for trained in stage.trained]


def score_name(records: Records) -> str:
    """What the trainings' score is, as a column is headed."""
    named = [trained.score for stage in stages_of(records) for trained in stage.trained]
    return f"Validation {metric_name(named[0])}" if named else ""


def curve_sentences(records: Records) -> list[str]:
    """What the pilot expected of full, whether it came so, and what twice the rows of full would give."""
    stages = stages_of(records)
    sentences = [f"After {stage.kind}: {stage.data_curve.told}." for stage in stages if stage.data_curve is not None]
    return [*sentences[:1], *_came(stages), *sentences[1:]]


def _row(stage: StageReport, trained: SeedResult) -> SeedRow:
    notes = ["this one counts"] if trained.seed == stage.seed else []
    notes += [f"would be stopped by {', '.join(trained.stopped_by)}"] if trained.stopped_by else []
    notes += [f"gave no answer: {trained.error}"] if trained.error is not None else []
    loss, score = (("not measured" if value is None else figure(value)) for value in (trained.val_loss, trained.scored))
    return SeedRow(stage.kind, trained.seed, loss, score, "; ".join(notes))


def _came(stages: Sequence[StageReport]) -> list[str]:
    reached = reached_by_full(stages)
    if reached is None or reached.forecast is None or reached.actual is None:
        return []
    side = "inside" if reached.inside else "above" if reached.actual > reached.forecast.high else "below"
    return [f"Full reached {figure(reached.actual)}, {side} the interval."]
