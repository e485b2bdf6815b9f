"""trainworthy rollback: back to the previous champion, by the use case's job rollback_<name>."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "rollback",
        help="back to the previous champion, once it answers its golden requests",
        description="Runs the job rollback_NAME. Nothing changes until the previous champion has loaded in a fresh "
        "process and answered as it did when it was written. A second rollback goes one further back.",
    )
    parser.add_argument("use_case")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why: the verdict log keeps it")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Become Dagster's command for the job, whose exit code is this one's."""
    from trainworthy.lifecycle.errors import SettingsError
    from trainworthy.lifecycle.run_config import job_command
    from trainworthy.pipeline import execute
    from trainworthy.pipeline.show import find_use_case

    use_case, reason = find_use_case(parsed.use_case), " ".join(parsed.reason.split())
    if not reason:
        raise SettingsError("no reason is given", value="--reason", fix="say in a few words why you go back")
    command = job_command("rollback", use_case.name, shlex.quote(str(_written_config(use_case.name, reason))))
    print(command, flush=True)
    execute.become(command)


def _written_config(use_case: str, reason: str) -> Path:
    """The run config as a file, all that `dagster job execute` takes; it stays for whoever runs the command again."""
    from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
    from trainworthy.resources.settings import read_settings

    path = StateFolder(read_settings().var).folder("run_configs", use_case, "rollback.yaml")
    write_atomic(path, json.dumps({"reason": reason}).encode())
    return path
