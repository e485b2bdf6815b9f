"""A run of the bare command is shown among those of its job in the UI.

Dagster notes the code location of runs that are launched, and lists a job's runs by it. Of `dagster job execute -m
MODULE` it notes the module alone, which is the location's name as well: workspace.yaml says the same.
"""

from __future__ import annotations

import dagster as dg

from trainworthy.resources.dagster_private import DagsterPrivateError

# What Dagster itself puts on a run that is launched.
REPOSITORY_TAG = ".dagster/repository"


def show_in_location(context: dg.AssetExecutionContext) -> None:
    """Tag the run with its location, unless Dagster has: it was launched, or its module is not known."""
    module = None if REPOSITORY_TAG in context.run.tags else module_of(context.run)
    if module is not None:
        context.instance.add_run_tags(context.run.run_id, {REPOSITORY_TAG: f"__repository__@{module}"})


def module_of(run: dg.DagsterRun) -> str | None:
    """The module of a run that was not launched; None of any other, and where Dagster does not say."""
    try:
        from trainworthy.resources.dagster_private import ModuleCodePointer

        if run.remote_job_origin is not None or run.job_code_origin is None:
            return None
        pointer = run.job_code_origin.repository_origin.code_pointer
        return pointer.module if isinstance(pointer, ModuleCodePointer) else None
    except (DagsterPrivateError, AttributeError):
        return None
