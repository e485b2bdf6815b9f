"""What a Dagster run is told through its config, as plain values. resources/workspace.py (Intent) declares the keys."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any


def run_config(**intent: Any) -> dict[str, Any]:
    """The run config with these values of the resource `intent`, for example dataset_version="v10"."""
    # A config that is given replaces the job's own, so it names the console's logger again.
    return {"resources": {"intent": {"config": intent}}, "loggers": {"console": {}}}


def config_text(**intent: Any) -> str:
    """The same on one line: a file for `dagster job execute -c`, or text for the UI's launchpad."""
    return json.dumps(run_config(**intent))


def train_command(use_case: str, file: str) -> str:
    """The command that trains and judges a model with the run config in the file."""
    return job_command("train", use_case, file)


def job_command(job: str, use_case: str, file: str = "") -> str:
    """Dagster's command for a job of the use case, with the run config in the file if one is named."""
    config = f" -c {file}" if file else ""
    return f"dagster job execute -m trainworthy.pipeline.definitions -j {job}_{use_case}{config}"


def told_command(job: str, use_case: str, file: str = "") -> str:
    """The command for a job that people are told: it checks the run config in the file first."""
    return f"trainworthy train {use_case}{'' if job == 'train' else f' --{job}'}{f' -c {file}' if file else ''}"


def first_model_fix(folder: Path) -> str:
    """What to do where there is no champion yet, for the use case of the folder."""
    # Also after versions that were judged and not promoted.
    file, how = folder / "first_model.yaml", "train as the first model until one is promoted"
    if not file.is_file():
        return f"{how}: {told_command('train', folder.name, 'FILE')}, where FILE holds {config_text(first_model=True)}"
    here = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{how}: {told_command('train', folder.name, shlex.quote(str(here)))}"
