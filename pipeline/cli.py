"""The command `trainworthy`: argument parsing only; each command has a file in pipeline/commands/."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from trainworthy.lifecycle.errors import TrainworthyError, did_you_mean
from trainworthy.pipeline.commands import (
    attempts,
    backup,
    baseline,
    champion,
    check,
    compare,
    contract,
    datasets,
    diagnose,
    doctor,
    explain,
    freeze,
    history,
    init,
    new,
    next_version,
    replay,
    restore,
    rollback,
    schema,
    site,
    train,
    ui,
    verdict,
)

# In the order of the help text, which is that of a user's day.
COMMANDS = (
    doctor, init, new, check, explain, baseline, contract, train, verdict, next_version, champion, rollback, history,
    compare, freeze, attempts, site, ui, diagnose, replay, datasets, backup, restore, schema,
)  # fmt: skip
EXAMPLES = """\
examples:
  trainworthy doctor                  is everything set up, and what to do where it is not
  trainworthy train flight_delays     train and judge; with --preflight only ask whether that is worth it
  trainworthy verdict flight_delays   the newest verdict: decision, reasons, cost, links
  trainworthy init                    the files of a project of your own, in this folder
  trainworthy new churn               an own use case, to begin with on example rows
  trainworthy next flight_delays      train on the next dataset version, against the champion

`train` becomes Dagster's command, which CI runs: dagster job execute -m trainworthy.pipeline.definitions -j train_NAME
Every error is explained in docs/errors.md."""


class Parser(argparse.ArgumentParser):
    """An unknown command is answered with the nearest known one."""

    def _check_value(self, action: argparse.Action, value: str) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            raise argparse.ArgumentError(None, f"no such command: {value}; {did_you_mean(value, action.choices)}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Exit code 2, with the way to the help in place of the whole usage."""
        self.exit(2, f"{self.prog}: {message}\n  help: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A user's error is one message on stderr and exit code 1."""
    whole = parser()
    parsed = whole.parse_args(with_durations(sys.argv[1:] if arguments is None else arguments))
    command: Callable[[argparse.Namespace], int] | None = getattr(parsed, "command", None)
    if command is None:
        whole.print_help(sys.stderr)
        return 2
    try:
        code = command(parsed)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # `| head` has seen enough; what is left in the buffer must not fail at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except TrainworthyError as error:
        print(f"trainworthy: {error}\n  more: {error.more}", file=sys.stderr)
        return 1


def with_durations(arguments: Sequence[str]) -> list[str]:
    """The arguments with a duration before now, as -PT1H, tied to its option: argparse takes it for one of its own."""
    tied: list[str] = []
    for argument in arguments:
        if argument.startswith(("-P", "-p")) and tied and tied[-1] == "--known":
            tied[-1] = f"--known={argument}"
        else:
            tied.append(argument)
    return tied


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    whole = Parser(
        prog="trainworthy",
        description="Is this run worth its compute, and its model worth shipping?",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(metavar="COMMAND", title="commands")
    for command in COMMANDS:
        command.add(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main())
