"""trainworthy explain: what a check of preflight asks, what a failure looks like, its likely cause and its fix."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainworthy.pipeline.commands import Subparsers

if TYPE_CHECKING:
    # At run time it would cost every command a quarter of its start.
    from trainworthy.lifecycle.gates.check import CheckWords

WIDTH = 100
# Checks that are asked of figures, and a family that model.py has: they stand beside the catalogue.
BESIDE = {
    "memory_forecast": "what training will hold, against the machine and its GPU: docs/preflight/memory_forecast.md",
    "cost_forecast": "time and price of the three stages, against budget.run_usd: docs/how-to/preflight.md",
    "leakage_in_training": "what the code lets through to the label: docs/how-to/leakage.md",
    "own": "the functions check_<something> of model.py: docs/how-to/preflight.md",
}


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("explain", help="what a check asks, its likely cause and its fix; without one, all")
    parser.add_argument("check", nargs="?", help="an id such as inputs.finite, or a family such as inputs")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print one check, a family's, or the list of all."""
    from trainworthy.lifecycle.errors import nearest
    from trainworthy.lifecycle.gates.catalogue import CATALOGUE

    if parsed.check in BESIDE:
        print(f"{parsed.check}: {BESIDE[parsed.check]}")
        return 0
    asked = [check for check in CATALOGUE if parsed.check in (None, check.id, check.family)]
    if not asked:
        known = [*(check.id for check in CATALOGUE), *{check.family for check in CATALOGUE}, *BESIDE]
        near = nearest(str(parsed.check), known)
        fix = (
            f"did you mean {near!r}?"
            if near
            else "trainworthy explain lists them; own.<name> is check_<name> of model.py"
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
