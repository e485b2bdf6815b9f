"""A run of the bare command is shown among those of its job in the UI.

Dagster notes the code location of runs that are launched, and lists a job's runs by it. Of `dagster job execute -m
MODULE` it notes the module alone, which is the location's name as well: workspace.yaml says the same.
"""

from __future__ import annotations

import dagster as dg
from dagster._core.code_pointer import ModuleCodePointer

# What Dagster itself puts on a run that is launched.
REPOSITORY_TAG = ".dagster/repository"


def show_in_location(context: dg.AssetExecutionContext) -> None:
    """Tag the run with its location, unless Dagster has: it was launched, or its module is not known."""
    run = context.run
    if run.remote_job_origin is not None or run.job_code_origin is None or REPOSITORY_TAG in run.tags:
        return
    pointer = run.job_code_origin.repository_origin.code_pointer
    if isinstance(pointer, ModuleCodePointer):
        context.instance.add_run_tags(run.run_id, {REPOSITORY_TAG: f"__repository__@{pointer.module}"})
