"""A sensor that does now and then what `trainworthy doctor --fix` does for runs whose process is gone.

It looks at runs of the machine that Dagster's daemon is on: where runs have a machine or a container of their own, what
starts them there (a run launcher with run monitoring) has to look after them.

No `from __future__ import annotations`: Dagster cannot resolve a text annotation of `context`.
"""

import dagster as dg

SENSOR_SECONDS = 60


def stuck_runs_sensor() -> dg.SensorDefinition:
    """The sensor stuck_runs: marks runs without a process as failed and frees the pool slots of ended runs."""

    @dg.sensor(
        name="stuck_runs",
        minimum_interval_seconds=SENSOR_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Marks runs of this machine whose process is gone as failed, and frees the pool slots they held.",
    )
    def stuck_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        # Definitions load without what the doctor imports.
        from trainworthy.pipeline.doctor.runs import repaired
        from trainworthy.resources.settings import read_settings

        done = list(repaired(read_settings(), context.instance))
        for line in done:
            context.log.warning(line)
        return dg.SkipReason("; ".join(done) or "no run is stuck")

    return stuck_runs
