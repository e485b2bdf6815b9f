"""The jobs of a use case that cannot be loaded: they stop with what is wrong, so that no other use case is held up.

preflight_<name> also leaves the problems for the pull request that brought them.

No `from __future__ import annotations`: Dagster cannot resolve a text annotation of a resource.
"""

import re
from pathlib import Path

import dagster as dg

from trainworthy.assets.ci import PREFLIGHT, tell_refusal
from trainworthy.assets.stopped import StoppedError
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.pipeline.factory import JOBS
from trainworthy.resources.settings import read_settings
from trainworthy.resources.workspace import Intent, Workspace

# Dagster refuses other names; no loaded use case has one either.
_JOB_NAME = re.compile(r"\w+", re.ASCII)


def broken_jobs(error: UseCaseError) -> list[dg.JobDefinition]:
    """train_<name>, experiment_<name> and preflight_<name>; none where the folder's name can't be part of a job's."""
    if not _JOB_NAME.fullmatch(error.name):
        return []

    # It asks for the intent, so that the run configs of the jobs that it stands for are accepted.
    @dg.op(name=f"{error.name}__problems", out=dg.Out(dg.Nothing), description=str(error))
    def problems(context: dg.OpExecutionContext, intent: Intent, workspace: Workspace) -> None:
        if context.job_name == f"{PREFLIGHT}_{error.name}":
            tell_refusal(workspace.state, _folder(error.name), "use_case", error, context.run_id)
        raise StoppedError(str(error))

    return [_job(name, error, problems) for name, *_ in JOBS]


def _job(name: str, error: UseCaseError, problems: dg.OpDefinition) -> dg.JobDefinition:
    @dg.job(
        name=f"{name}_{error.name}",
        description=f"Cannot run: {error}",
        tags={"trainworthy/use_case": error.name},
        config={"loggers": {"console": {}}},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        problems()

    return job


def _folder(name: str) -> Path:
    """Where the use case lies; among several folders of use cases the first that has one of this name."""
    places = [parent / name for parent in read_settings().use_cases]
    return next((place for place in places if place.is_dir()), places[0])
