"""The smallest job: for tests of what Dagster keeps of a run."""

import dagster as dg


@dg.asset
def number() -> None:
    return None


JOB = dg.Definitions(
    assets=[number], jobs=[dg.define_asset_job("job", executor_def=dg.in_process_executor)]
).resolve_job_def("job")
