"""trainworthy contract: pin a reference, try the rules, draft a contract."""

from __future__ import annotations

import argparse
from pathlib import Path

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

    suggest = actions.add_parser(
        "suggest",
        help="draft a contract from a dataset version or from files",
        description="Drafts contract.yaml from rows, for review. Writes to the terminal, or to a new file.",
    )
    suggest.add_argument("sources", nargs="+", metavar="DATASET|FILE", help="name@version, or .csv or .parquet files")
    suggest.add_argument("--target", metavar="COLUMN", help="what a model shall predict; default: a guess")
    suggest.add_argument("--time", metavar="COLUMN", help="when the model is asked; default: a guess")
    suggest.add_argument("--key", action="append", metavar="COLUMN", help="names a row; give it again for several")
    suggest.add_argument("--out", type=Path, metavar="FILE", help="a new file; one that exists stays as it is")
    suggest.set_defaults(command=run_suggest)


def run_suggest(parsed: argparse.Namespace) -> int:
    """Print the draft, or write it."""
    from pipeline.suggest import Asked, suggest

    asked = Asked(tuple(parsed.sources), parsed.target, parsed.time, tuple(parsed.key or ()), parsed.out)
    print(suggest(asked).removesuffix("\n"))
    return 0


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
