"""What starts a training when a new dataset version is published: a sensor and a weekly schedule for each use case.

Both are switched off until somebody switches them on. Both start a candidate of `train_<use_case>` on the newest
published version that waits for its verdict, and both skip with the reason otherwise.

No `from __future__ import annotations`: Dagster cannot resolve a text annotation of `context`.
"""

import dagster as dg

from trainworthy.lifecycle.promotion.judged import NOTHING_NEWER, Standing
from trainworthy.lifecycle.run_config import first_model_fix
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.pipeline.show import standing_of
from trainworthy.pipeline.starting import request, run_key, run_of, under_way

# Mondays at 06:00 UTC. The sensor looks every minute; the schedule tries again what has no verdict a week later,
# for example after a run that failed or was cancelled.
WEEKLY_CRON = "0 6 * * 1"
SENSOR_SECONDS = 60


def new_version_sensor(use_case: UseCase) -> dg.SensorDefinition:
    """The sensor <use case>_new_version: starts one run for a newly published dataset version, once."""

    @dg.sensor(
        name=f"{use_case.name}_new_version",
        job_name=_job(use_case),
        minimum_interval_seconds=SENSOR_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Trains and judges when a newer version of {use_case.spec.dataset.name} is published.",
    )
    def new_version(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        version = due_version(use_case, context.instance)
        if isinstance(version, dg.SkipReason):
            return version
        key = run_key(use_case, version)
        if (started := run_of(context.instance, key)) is not None:
            # A gate that stopped the run would stop it again: what to change is a person's decision.
            reason = f"run {started.run_id[:8]} of {version} ended as {started.status.value} without a verdict"
            return dg.SkipReason(f"{reason}; fix its cause, then run: trainworthy next {use_case.name}")
        return request(use_case, version, key)

    return new_version


def weekly_schedule(use_case: UseCase) -> dg.ScheduleDefinition:
    """The schedule <use case>_weekly: once a week, a run for the newest version if it has no verdict yet."""

    @dg.schedule(
        name=f"{use_case.name}_weekly",
        job_name=_job(use_case),
        cron_schedule=WEEKLY_CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Once a week, trains and judges the newest dataset version if it has no verdict yet.",
    )
    def weekly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        version = due_version(use_case, context.instance)
        # Without a run key: what failed last week is tried again.
        return version if isinstance(version, dg.SkipReason) else request(use_case, version)

    return weekly


def due_version(use_case: UseCase, instance: dg.DagsterInstance) -> str | dg.SkipReason:
    """The newest published version if it waits for its verdict and no training is under way; else why nothing is due.

    Raises RecordError for a broken verdict log: the tick fails and shows the message.
    """
    standing = standing_of(use_case)
    if standing.champion is None:
        return dg.SkipReason(f"there is no champion to compare with; {first_model_fix(use_case.folder)}")
    if not standing.waiting:
        return dg.SkipReason(nothing_waits(standing))
    if (on := under_way(instance, _job(use_case))) is not None:
        return on
    return standing.waiting[-1]


def nothing_waits(standing: Standing) -> str:
    """Why there is nothing to train."""
    return f"the newest published version, {standing.newest_judged}, has its verdict; {NOTHING_NEWER}"


def _job(use_case: UseCase) -> str:
    return f"train_{use_case.name}"
