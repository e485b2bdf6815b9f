"""The command `trainworthy`: argument parsing only; each command has a file in pipeline/commands/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from lifecycle.errors import TrainworthyError
from pipeline.commands import champion, datasets, history, verdict

# In the order of the help text.
COMMANDS = (verdict, champion, history, datasets)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A user's error is one message on stderr and exit code 1."""
    parsed = parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        return command(parsed)
    except TrainworthyError as error:
        print(f"trainworthy: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    whole = argparse.ArgumentParser(
        prog="trainworthy", description="Is this run worth its compute, and its model worth shipping?"
    )
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main())
