"""trainworthy site: a page of all use cases, their champions, verdicts and cost."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "site",
        help="a page of all use cases: champions, verdicts, cost; opens offline",
        description="Writes index.html and the reports that it links to. It needs no server and loads nothing.",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: site/ in the state folder")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Write the page."""
    from trainworthy.pipeline.site import site

    print(site(parsed.out))
    return 0
