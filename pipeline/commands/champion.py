"""trainworthy champion: which version is live, and what it was trained on."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers

# Not an error's code: a script can tell "none yet" from a log that cannot be read.
NO_CHAMPION = 3


def add(commands: Subparsers) -> None:
    """Declare the command."""
    summary = f"version of the present champion; exit code {NO_CHAMPION} if there is none"
    parser = commands.add_parser("champion", help=summary)
    parser.add_argument("use_case")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--dataset", action="store_true", help="the dataset version that it was trained on")
    shown.add_argument("--run-config", action="store_true", help="the run config of a run on that version, as JSON")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the version, or its data; NO_CHAMPION if there is none."""
    from trainworthy.pipeline.show import champion_version

    version = champion_version(parsed.use_case)
    if version is None:
        print(f"{parsed.use_case} has no champion yet")
        return NO_CHAMPION
    print(_data(parsed) if parsed.dataset or parsed.run_config else version)
    return 0


def _data(parsed: argparse.Namespace) -> str:
    from trainworthy.lifecycle.run_config import config_text
    from trainworthy.pipeline.show import find_use_case, standing_of

    trained_on = standing_of(find_use_case(parsed.use_case)).trained_on
    assert trained_on is not None
    return config_text(dataset_version=trained_on.version) if parsed.run_config else str(trained_on)
