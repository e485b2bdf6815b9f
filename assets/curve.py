"""The data-learning curve of a run's stages: made from their records, told in the log, asked by one check."""

from __future__ import annotations

from collections.abc import Sequence

from trainworthy.assets.step_run import StepOfRun
from trainworthy.lifecycle.gates.data_curve import Point, curve_after_full, curve_at_pilot, data_curve_check, point_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import DataCurve, Forecast, SeedResult, Snapshot, StageReport
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.tasks import Kind


def stage_curve(
    run: StepOfRun, kind: Kind, result: TrainResult, trained: Sequence[SeedResult], still_usd: Forecast | None,
    training_usd: float,
) -> tuple[DataCurve | None, tuple[CheckResult, ...]]:  # fmt: skip
    """The curve after pilot or full, and the pilot's check of it; `training_usd` is what one training cost."""
    last, spec = point_of(result.rows, result.metrics, trained), run.use_case.spec
    if run.step == "full":
        pilot = _recorded(run.record("pilot", StageReport))
        return curve_after_full(pilot, last, training_usd, spec.stages.mode, kind.words), ()
    if run.step != "pilot":
        return None, ()
    smoke, rows = _recorded(run.record("smoke", StageReport)), run.record("snapshot", Snapshot).splits["training"].rows
    curve, primary = curve_at_pilot(smoke, last, rows, still_usd, spec.stages.mode, kind.words), spec.benchmark.primary
    # Of another metric the margin says nothing about the loss that the stages measure.
    margin = primary.margin if primary.metric == kind.loss else None
    return curve, (data_curve_check(curve, last, margin),)


def _recorded(stage: StageReport) -> Point | None:
    return point_of(stage.rows, stage.metrics, stage.trained)
