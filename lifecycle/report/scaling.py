"""What the stages told on the way to full: the seeds, and the data-learning curve with what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle.cost.forecast_error import reached_by_full
from lifecycle.records import SeedResult, StageReport
from lifecycle.report.formatting import number
from lifecycle.report.outcome import Records, stages_of


@dataclass(frozen=True)
class SeedRow:
    """One training of a stage as text; `note` says whether it counts, and what would have stopped it."""

    stage: str
    seed: int
    val_loss: str
    val_auc: str
    note: str


def seed_rows(records: Records) -> list[SeedRow]:
    """Every training of the stages that had several."""
    return [_row(stage, one) for stage in stages_of(records) for one in stage.trained]


def curve_sentences(records: Records) -> list[str]:
    """What the pilot expected of full, whether it came so, and what twice the rows of full would give."""
    stages = stages_of(records)
    told = [f"After {stage.kind}: {stage.data_curve.told}." for stage in stages if stage.data_curve is not None]
    return [*told[:1], *_came(stages), *told[1:]]


def _row(stage: StageReport, one: SeedResult) -> SeedRow:
    notes = ["this one counts"] if one.seed == stage.seed else []
    notes += [f"would be stopped by {', '.join(one.stopped_by)}"] if one.stopped_by else []
    notes += [f"gave no answer: {one.error}"] if one.error is not None else []
    loss, auc = (("not measured" if value is None else number(value)) for value in (one.val_loss, one.val_auc))
    return SeedRow(stage.kind, one.seed, loss, auc, "; ".join(notes))


def _came(stages: Sequence[StageReport]) -> list[str]:
    found = reached_by_full(stages)
    if found is None or found.forecast is None or found.actual is None:
        return []
    side = "inside" if found.inside else "above" if found.actual > found.forecast.high else "below"
    return [f"Full reached {number(found.actual)}, {side} the interval."]
