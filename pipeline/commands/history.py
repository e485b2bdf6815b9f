"""trainworthy history: who was champion when, and why; and what was held back."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("history", help="which model was live when, on which data, and why")
    parser.add_argument("use_case")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the history."""
    from trainworthy.pipeline.show import history_text

    print(history_text(parsed.use_case))
    return 0
