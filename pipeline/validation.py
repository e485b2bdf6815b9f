"""What judges data without a training: a sensor on newly published versions and a daily schedule for each use case.

Both are switched off until somebody switches them on. Both start `validate_<use_case>` on the newest published
version; the schedule does it every day, since what was good may be late today.

No `from __future__ import annotations`: Dagster cannot resolve a text annotation of `context`.
"""

import dagster as dg

from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.pipeline.starting import request, run_key, run_of, under_way

# An hour before the weekly training, so that it does not start on data that is broken. UTC.
DAILY_CRON = "0 5 * * *"
SENSOR_SECONDS = 60


def validating_sensor(use_case: UseCase) -> dg.SensorDefinition:
    """The sensor <use case>_validate_new_version: starts one run for a newly published dataset version, once."""

    @dg.sensor(
        name=f"{use_case.name}_validate_new_version",
        job_name=_job(use_case),
        minimum_interval_seconds=SENSOR_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Validates when a newer version of {use_case.spec.dataset.name} is published.",
    )
    def validate_new_version(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        version = due_version(use_case, context.instance)
        if isinstance(version, dg.SkipReason):
            return version
        # A key of its own: the sensor that trains looks for its runs by theirs.
        key = f"validate:{run_key(use_case, version)}"
        if (started := run_of(context.instance, key)) is not None:
            reason = f"the newest published version, {version}, was validated by run {started.run_id[:8]}"
            return dg.SkipReason(f"{reason}, which ended as {started.status.value}")
        return request(use_case, version, key)

    return validate_new_version


def daily_schedule(use_case: UseCase) -> dg.ScheduleDefinition:
    """The schedule <use case>_validate_daily: once a day, the newest version is validated again."""

    @dg.schedule(
        name=f"{use_case.name}_validate_daily",
        job_name=_job(use_case),
        cron_schedule=DAILY_CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Once a day, validates the newest published dataset version; what did not change is reused.",
    )
    def validate_daily(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        version = due_version(use_case, context.instance)
        return version if isinstance(version, dg.SkipReason) else request(use_case, version)

    return validate_daily


def due_version(use_case: UseCase, instance: dg.DagsterInstance) -> str | dg.SkipReason:
    """The newest published version if no validation is under way; else why nothing is due."""
    published = tuple(read_versions(use_case.project).get(use_case.spec.dataset.name, {}))
    if not published:
        return dg.SkipReason("no dataset version is published yet: trainworthy datasets publish --help")
    return under_way(instance, _job(use_case)) or published[-1]


def _job(use_case: UseCase) -> str:
    return f"validate_{use_case.name}"
