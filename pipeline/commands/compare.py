"""trainworthy compare: two models of a use case on the same rows."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "compare",
        help="two models on the same rows: every metric of both, the paired gain, and on which slices",
        description="Measures two versions on rows that both answered, as evaluations and verdicts kept them. "
        "Nothing is trained or scored.",
    )
    parser.add_argument("use_case")
    parser.add_argument("first", help="a version of the model, or champion")
    parser.add_argument("second", nargs="?", default="champion", help="another one; the champion if left out")
    parser.add_argument("--page", type=Path, help="write it as a page of HTML, too")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the comparison."""
    from trainworthy.pipeline.compare import compare

    print(compare(parsed.use_case, parsed.first, parsed.second, parsed.page), end="")
    return 0
