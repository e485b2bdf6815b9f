"""trainworthy train: check the run config, then run the use case's job as `dagster job execute` does."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers

# Flag, and what it does in the place of training and judging.
_JOBS = {
    "experiment": "train and stop at the validation split: the benchmark stays untouched, nothing is judged",
    "preflight": "only the checks before a training: is it worth it?",
    "validate": "only judge the data",
}


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("train", help="train a use case and judge the model; or only a part of that")
    parser.add_argument("use_case")
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="run config, for example use_cases/NAME/first_model.yaml"
    )
    parts = parser.add_mutually_exclusive_group()
    for job, does in _JOBS.items():
        parts.add_argument(f"--{job}", dest="job", action="store_const", const=job, help=does)
    parser.set_defaults(command=run, job="train")


def run(parsed: argparse.Namespace) -> int:
    """Check what is asked for and become Dagster's command for it, whose exit code is this one's."""
    from trainworthy.lifecycle.run_config import job_command
    from trainworthy.pipeline.execute import become
    from trainworthy.pipeline.show import find_use_case

    use_case = find_use_case(parsed.use_case)
    file = ""
    if parsed.config is not None:
        from trainworthy.pipeline.run_config_check import checked_run_config

        path = Path(parsed.config).absolute()
        checked_run_config(path, use_case, parsed.job)
        file = shlex.quote(str(path))
    command = job_command(parsed.job, parsed.use_case, file)
    print(command, flush=True)
    become(command)
