"""trainworthy ui and mlflow-ui: the UIs of Dagster and of MLflow, on this project's state, on loopback alone."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainworthy.pipeline.commands import Subparsers

if TYPE_CHECKING:
    # At run time settings would cost every command four fifths of its start.
    from trainworthy.resources.settings import Settings

# What a user can do nothing about: `dagster dev` is marked as superseded by a command of another package.
QUIET = "ignore:Function `dev_command`,ignore::UserWarning:click.core"


def add(commands: Subparsers) -> None:
    """Declare both commands."""
    for name, shown, port in (
        ("ui", "Dagster's UI, with sensors and schedules", 3000),
        ("mlflow-ui", "MLflow's", 5000),
    ):
        parser = commands.add_parser(name, help=f"{shown}, at http://127.0.0.1:{port}")
        parser.add_argument("--port", type=int, default=port, help=f"default {port}")
        parser.set_defaults(command=_dagster if name == "ui" else _mlflow)


def _dagster(parsed: argparse.Namespace) -> int:
    """Run `dagster dev` in place of this process."""
    from trainworthy.lifecycle.errors import SettingsError
    from trainworthy.resources.dagster_settings import dagster_home, refuse_unset
    from trainworthy.resources.settings import read_settings

    settings = read_settings()
    if _is_taken("ui", parsed.port):
        return 1
    # Without a home Dagster makes a temporary folder and says so; nothing of ours lies in it either way.
    home = dagster_home(settings).resolve()
    workspace = settings.project / "workspace.yaml"
    missing = [str(path) for path in (workspace, home / "dagster.yaml") if not path.is_file()]
    if missing:
        fix = f"trainworthy init {shlex.quote(str(settings.project))} writes what the project lacks"
        raise SettingsError("files that say what Dagster loads and keeps are missing", value=missing, fix=fix)
    refuse_unset(home)
    command = ("dagster", "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(parsed.port))
    return _become(command, settings, DAGSTER_DISABLE_TELEMETRY="1", DAGSTER_HOME=str(home))


def _mlflow(parsed: argparse.Namespace) -> int:
    """Run `mlflow ui` in place of this process."""
    from trainworthy.resources.settings import read_settings

    settings = read_settings()
    if _is_taken("mlflow-ui", parsed.port):
        return 1
    print("it takes half a minute", flush=True)
    _make_store()
    store = f"sqlite:///{settings.var}/mlflow/mlflow.db"
    command = ("mlflow", "ui", "--host", "127.0.0.1", "--port", str(parsed.port), "--backend-store-uri", store)
    # The UI alone, without its workers for language model scoring.
    return _become(command, settings, MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")


def _make_store() -> None:
    """The local store, whole: MLflow's own server makes its tables in place, half of them if it is ended."""
    from trainworthy.resources.mlflow import Tracking

    if not os.environ.get("MLFLOW_TRACKING_URI"):
        Tracking().reach()


def _is_taken(ui: str, port: int) -> bool:
    from trainworthy.pipeline.doctor.ports import is_free

    free = is_free(ui, port)
    sys.stdout.flush()
    return not free


def _become(command: Sequence[str], settings: Settings, **variables: str) -> int:
    """Replaces this process, so that an interrupt reaches the UI itself. Does not return."""
    from trainworthy.resources.settings import resolved_variables

    warnings = ",".join(part for part in (os.environ.get("PYTHONWARNINGS"), QUIET) if part)
    # A shell's `&` in a script has SIGINT ignored, and Dagster then would not end on TERM either.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(settings.project)
    environment = os.environ | {"PYTHONWARNINGS": warnings} | resolved_variables(settings) | variables
    os.execve(sys.executable, [sys.executable, "-m", *command], environment)
