"""trainworthy contract: pin a reference, try the rules, draft a contract."""

from __future__ import annotations

import argparse

from pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command and its actions."""
    parser = commands.add_parser("contract", help="a data contract's rules: test them, pin a reference, draft one")
    parser.set_defaults(command=lambda parsed: parser.print_help() or 2)
    actions = parser.add_subparsers(metavar="ACTION")
    pin = actions.add_parser(
        "pin",
        help="write reference.json: the distributions that rules compare with",
        description="Counts a published version of the dataset and writes reference.json beside contract.yaml.",
    )
    pin.add_argument("use_case")
    pin.add_argument("--version", metavar="VERSION", help="published version to count; default: the declared one")
    pin.set_defaults(command=run_pin)


def run_pin(parsed: argparse.Namespace) -> int:
    """Write the reference."""
    from pipeline.pin import pin

    print(pin(parsed.use_case, parsed.version))
    return 0
