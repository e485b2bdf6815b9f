"""trainworthy contract: pin a reference, try the rules, draft a contract."""

from __future__ import annotations

import argparse

from pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command and its actions."""
    parser = commands.add_parser("contract", help="a data contract's rules: test them, pin a reference, draft one")
    parser.set_defaults(command=lambda parsed: parser.print_help() or 2)
    actions = parser.add_subparsers(metavar="ACTION")
    test = actions.add_parser(
        "test",
        help="which rules can never fail? exit code 1 if there are any",
        description="Breaks a sample of rows in many ways, rule by rule, and lists the rules that nothing breaks.",
    )
    test.add_argument("use_case")
    test.add_argument(
        "--version", metavar="VERSION", help="published version; default: the declared one, if it is here"
    )
    test.set_defaults(command=run_test)
    pin = actions.add_parser(
        "pin",
        help="write reference.json: the distributions that rules compare with",
        description="Counts a published version of the dataset and writes reference.json beside contract.yaml.",
    )
    pin.add_argument("use_case")
    pin.add_argument("--version", metavar="VERSION", help="published version to count; default: the declared one")
    pin.set_defaults(command=run_pin)


def run_test(parsed: argparse.Namespace) -> int:
    """Print what was found; 1 if a rule can never fail."""
    from pipeline.rule_test import tested_rules, tested_text

    tested = tested_rules(parsed.use_case, parsed.version)
    print(tested_text(tested))
    return 1 if tested.trial.never else 0


def run_pin(parsed: argparse.Namespace) -> int:
    """Write the reference."""
    from pipeline.pin import pin

    print(pin(parsed.use_case, parsed.version))
    return 0
