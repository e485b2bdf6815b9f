"""trainworthy attempts: every start of a worker, whom it was charged to, and how it ended."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "attempts",
        help="every start of a worker: for which step, how long, for how much, and how it ended",
        description="Newest first: trainings and questions of all runs, also of those that were killed. The seconds of "
        "one that is lost, or still works, are those up to its last sign of life.",
    )
    parser.add_argument("use_case", nargs="?", default="", help="of this one; of all if left out")
    parser.add_argument("--all", action="store_true", help="not only the newest ones")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the attempts."""
    from trainworthy.pipeline.attempts import attempts_text

    print(attempts_text(parsed.use_case, everything=parsed.all))
    return 0
