"""trainworthy explain: what a check of preflight asks, what a failure looks like, its likely cause and its fix."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator

from lifecycle.gates.check import CheckWords
from pipeline.commands import Subparsers

WIDTH = 100


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("explain", help="what a check asks, its likely cause and its fix; without one, all")
    parser.add_argument("check", nargs="?", help="an id such as inputs.finite, or a family such as inputs")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print one check, a family's, or the list of all."""
    from lifecycle.errors import did_you_mean
    from lifecycle.gates.catalogue import CATALOGUE

    asked = [check for check in CATALOGUE if parsed.check in (None, check.id, check.family)]
    if not asked:
        known = [*(check.id for check in CATALOGUE), *{check.family for check in CATALOGUE}]
        fix = (
            did_you_mean(parsed.check, known) if not parsed.check.startswith("own.") else "look at check_* in model.py"
        )
        print(f"no such check\n  value: {parsed.check!r}\n  fix: {fix}", file=sys.stderr)
        return 1
    told = _one(asked[0]) if parsed.check == asked[0].id else (f"{check.id:<40} {check.question}" for check in asked)
    print("\n".join(told))
    return 0


def _one(check: CheckWords) -> Iterator[str]:
    stops = "a failure stops the step" if check.severity == "error" else "a failure is a warning and stops nothing"
    yield f"{check.id}: {check.question}"
    yield f"  {stops}"
    for name in ("symptom", "cause", "fix"):
        yield textwrap.fill(f"{name}: {getattr(check, name)}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    if check.after:
        yield f"  asked after: {check.after}"
    yield f"  more: docs/preflight/{check.id}.md"
    yield "  where it does not apply, use_case.yaml says so with the reason:"
    yield f"    preflight: {{not_applicable: {{{check.id}: why}}}}"
