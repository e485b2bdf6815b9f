"""What a Dagster run is told through its config, as plain values. resources/workspace.py (Intent) declares the keys."""

from __future__ import annotations

import json
from typing import Any


def run_config(**intent: Any) -> dict[str, Any]:
    """The run config with these values of the resource `intent`, for example dataset_version="v10"."""
    # A config that is given replaces the job's own, so it names the console's logger again.
    return {"resources": {"intent": {"config": intent}}, "loggers": {"console": {}}}


def config_option(**intent: Any) -> str:
    """The same as the option of `dagster job execute` and `dagster asset materialize`, quoted for a shell."""
    return f"--config-json '{json.dumps(run_config(**intent))}'"


def train_command(use_case: str, **intent: Any) -> str:
    """The command that trains and judges a model with this intent."""
    return f"dagster job execute -m pipeline.definitions -j train_{use_case} {config_option(**intent)}"
