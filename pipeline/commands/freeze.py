"""trainworthy freeze: a confirmed blind spot becomes a slice that decides."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "freeze",
        help="a confirmed blind spot becomes a slice of the benchmark, in the suite's next version",
        description="Writes the rule into benchmark.slices of use_case.yaml, with the primary margin to the champion, "
        "and raises benchmark.version. Look at it, change the bound if another is right, and commit it.",
    )
    parser.add_argument("use_case")
    parser.add_argument("number", type=int, help="which one, as the newest report lists them, from 1 on")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Write it, and print what was written."""
    from trainworthy.pipeline.freeze import freeze

    print(freeze(parsed.use_case, parsed.number), end="")
    return 0
