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
    """Print the verdict; where the newest run was stopped before one, what did not pass. Raises RecordError then."""
    from trainworthy.lifecycle.errors import RecordError
    from trainworthy.pipeline.show import newest_verdict, stop_text, verdict_text

    try:
        verdict = newest_verdict(parsed.use_case)
    except RecordError:
        print(stop_text(parsed.use_case), end="", flush=True)
        raise
    print(verdict_text(verdict))
    return 0
