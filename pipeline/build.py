"""Dagster's definitions: one lifecycle per use case, what starts it, and the resources.

Belongs here: putting things together. Does not: any work; loading imports none of torch, mlflow,
great_expectations, dvc and pandas (tests/pipeline/test_definitions.py holds it).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import dagster as dg

from trainworthy.lifecycle.errors import SettingsError, UseCaseError
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.pipeline.broken import broken_jobs
from trainworthy.pipeline.console import console
from trainworthy.pipeline.factory import lifecycle_assets, lifecycle_checks, lifecycle_jobs
from trainworthy.pipeline.retraining import new_version_sensor, weekly_schedule
from trainworthy.pipeline.stuck_runs import stuck_runs_sensor
from trainworthy.pipeline.validation import daily_schedule, validating_sensor
from trainworthy.resources.launcher import Launcher
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.settings import Settings, choose_project, read_settings, use_case_folders
from trainworthy.resources.workspace import Intent, Workspace


def build_defs(
    use_cases: Sequence[UseCase],
    resources: Mapping[str, Any] | None = None,
    broken: Sequence[UseCaseError] = (),
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> dg.Definitions:
    """Definitions of these use cases; `resources` overrides the defaults by name (for tests and deployments).

    The jobs of a broken use case exist, and stop with its problems. Every job brings its executor; `executor` is for
    what has no job, as `Materialize all`.
    """
    defaults = {"workspace": Workspace(), "tracking": Tracking(), "launcher": Launcher(), "intent": Intent()}
    return dg.Definitions(
        assets=[asset for use_case in use_cases for asset in lifecycle_assets(use_case)],
        asset_checks=[check for use_case in use_cases for check in lifecycle_checks(use_case)],
        jobs=[
            *(job for use_case in use_cases for job in lifecycle_jobs(use_case)),
            *(job for error in broken for job in broken_jobs(error)),
        ],
        sensors=[
            *(make(use_case) for use_case in use_cases for make in (new_version_sensor, validating_sensor)),
            stuck_runs_sensor(),
        ],
        schedules=[make(use_case) for use_case in use_cases for make in (weekly_schedule, daily_schedule)],
        resources={**defaults, **(resources or {})},
        loggers={"console": console},
        executor=executor,
    )


def team_definitions(project: Path | None, resources: Mapping[str, Any] | None) -> dg.Definitions:
    """As trainworthy.definitions says: a project's use cases, without an executor, which is the team's to choose.

    Wrong settings end it with one clear message.
    """
    if project is not None:
        try:
            choose_project(project)
        except SettingsError as error:
            raise click.ClickException(str(error)) from None
    loaded, broken = load_all()
    return build_defs(loaded, resources, broken, executor=None)


def load_all() -> tuple[list[UseCase], list[UseCaseError]]:
    """Every use case of the settings, and the broken ones, each told on stderr in a line.

    Settings that are wrong end the command with one clear message.
    """
    try:
        settings = read_settings()
        _tell_unread_settings(settings)
        folders = use_case_folders(settings)
    except SettingsError as error:
        # click shows this as one message without a traceback, exit code 1.
        raise click.ClickException(str(error)) from None
    loaded, broken = [], []
    for folder in folders:
        try:
            loaded.append(load_use_case(folder))
        except UseCaseError as error:
            click.echo(f"Left out, while the other use cases go on: {error.name!r}, {error.in_brief}", err=True)
            broken.append(error)
    return loaded, broken


def _tell_unread_settings(settings: Settings) -> None:
    """Say so where Dagster works without dagster.yaml: it has sent its notice about telemetry by then, and goes on."""
    if os.environ.get("DAGSTER_HOME") or Path("dagster.yaml").is_file():
        return
    project = shlex.quote(str(settings.project))
    there = (settings.project / "dagster.yaml").is_file()
    fix = f"cd {project}" if there else f"trainworthy init {project}"
    click.echo(
        f"Warning: there is no dagster.yaml in {Path.cwd()}, where Dagster looks for it: this run will be in no "
        f"history, and Dagster's own telemetry is on\n  fix: {fix}, or name its folder in DAGSTER_HOME",
        err=True,
    )
