"""trainworthy doctor: is everything set up, and what to do where it is not."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    summary = "check the set-up (versions, stores, ports, disk, stuck runs) and say what to do"
    parser = commands.add_parser("doctor", help=summary, description=f"{summary}; exit code 1 if something fails")
    # --mend is its earlier name.
    parser.add_argument(
        "--fix", "--mend", action="store_true", help="do the safe repairs; without it nothing is changed"
    )
    parser.add_argument("--verbose", action="store_true", help="show every check, also those that passed")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print what did not pass, or every check; 1 if one fails, warnings are none."""
    from trainworthy.lifecycle.protocol.checks import stopping
    from trainworthy.pipeline.doctor.examine import examine, in_brief, repairs, summary, text

    if parsed.fix:
        print("\n".join(repairs()) or "nothing to repair")
    results = examine()
    if parsed.verbose:
        print(text(results), summary(results), sep="\n")
    else:
        print(*filter(None, (in_brief(results),)), f"{summary(results)}; --verbose shows each", sep="\n")
    return 1 if stopping(results) else 0
