"""Dagster's command for a job, from the command line of Trainworthy: its run config is checked, then it takes over."""

from __future__ import annotations

import os
import shlex
import sys
from typing import NoReturn

# Dagster says of its own command that another is to be used, before anything of ours can say a word.
_NOT_FOR_USERS = "ignore:Function `job_execute_command` is superseded"


def become(command: str) -> NoReturn:
    """Replace this process in the project's folder, so that signals and the exit code are the command's own."""
    from trainworthy.resources.dagster_settings import dagster_home, refuse_unset
    from trainworthy.resources.settings import read_settings, resolved_variables

    settings = read_settings()
    refuse_unset(dagster_home(settings))
    environment = os.environ | resolved_variables(settings)
    warnings = [environment.get("PYTHONWARNINGS", ""), _NOT_FOR_USERS]
    environment["PYTHONWARNINGS"] = ",".join(filter(None, warnings))
    os.chdir(settings.project)
    os.execve(sys.executable, [sys.executable, "-m", *shlex.split(command)], environment)
