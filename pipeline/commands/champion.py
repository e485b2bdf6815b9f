"""trainworthy champion: which version is live."""

from __future__ import annotations

import argparse

from pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("champion", help="version of the present champion; exit code 1 if there is none")
    parser.add_argument("use_case")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the version; 1 if there is none."""
    from pipeline.show import champion_version

    version = champion_version(parsed.use_case)
    print(version or f"{parsed.use_case} has no champion yet")
    return 0 if version else 1
