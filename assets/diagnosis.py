"""The diagnosis of a stage that its own checks stopped: which part of the training is at fault."""

from __future__ import annotations

from pathlib import Path

from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.gates.diagnosis import MOST_EXCHANGES, parts_in_order, trainings_within
from trainworthy.lifecycle.gates.seeds import updates_of_stages
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob, TrainJob
from trainworthy.lifecycle.protocol.records import Snapshot
from trainworthy.lifecycle.protocol.results import DiagnoseResult


def diagnose_stage(
    run: StepRun, snapshot: Snapshot, training: TrainJob, failed: CheckResult, ended_after: int | None
) -> DiagnoseResult | None:
    """Parts of the stage's `training` exchanged until it ends by its budget; None where the worker gave no answer.

    `ended_after` are the updates after which an alarm ended the stage.
    """
    spec, split = run.use_case.spec, snapshot.splits["training"]
    updates = updates_of_stages(split.rows, split.positives or 0, spec.training, spec.stages)
    out = Path(training.out) / "diagnosis"
    job = DiagnoseJob(
        use_case_folder=training.use_case_folder,
        out=str(out),
        device=training.device,
        training=training.model_copy(update={"out": str(out)}),
        parts=parts_in_order((failed,)),
        most=MOST_EXCHANGES,
        trainings=trainings_within(updates[training.stage], updates["full"]),
        updates=ended_after,
    )
    try:
        result = run.in_worker(job)
    except WorkerError as error:
        # It explains a stop, and makes none.
        run.context.log.warning(f"no diagnosis: {error.problem}")
        return None
    assert isinstance(result, DiagnoseResult)
    # What it says stands in the failed check.
    run.context.log.info(f"diagnosis: {result.diagnosis.at_fault or 'no part'} is at fault")
    return result
