"""trainworthy verdict: the newest verdict of a use case."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("verdict", help="the newest verdict of a use case: decision, reasons, cost, links")
    parser.add_argument("use_case")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the verdict."""
    from trainworthy.pipeline.show import newest_verdict, verdict_text

    print(verdict_text(newest_verdict(parsed.use_case)))
    return 0
