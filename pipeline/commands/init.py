"""trainworthy init: the files of a team's own repository."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.pipeline.commands import Subparsers

if TYPE_CHECKING:
    from trainworthy.pipeline.scaffold.repository import Repository


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "init",
        help="write the files of a project of your own, into a git repository",
        description="Writes what a project needs beside its use cases: Dagster's settings, definitions.py, prices, "
        "DVC's settings and a GitHub workflow. Files that are there are kept.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("."), help="in a git repository; default this one")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Write the files, and say what to do next."""
    from trainworthy.pipeline.scaffold.repository import make_repository

    print(_text(make_repository(parsed.folder)))
    return 0


def _text(made: Repository) -> str:
    """What was written, what was kept, and the next commands."""
    here = os.path.samefile(made.folder, ".")
    return "\n".join(
        [
            f"wrote    {', '.join(made.written) or 'nothing'}   in {made.folder}",
            *([f"kept     {', '.join(made.kept)}   as they were"] if made.kept else []),
            *([f"         add to .gitignore: {' '.join(made.unignored)}"] if made.unignored else []),
            *(
                [
                    f"note     GitHub reads workflows of {made.above} alone: move .github there, and give its steps "
                    f"working-directory: {made.folder.relative_to(made.above)}"
                ]
                if made.above
                else []
            ),
            "",
            "Next:",
            *([] if here else [f"  cd {shlex.quote(str(made.folder))}"]),
            "  trainworthy new NAME --data TABLE --target COLUMN --time COLUMN   # a use case from a table",
            "  git add --all && git commit -m 'a use case'   # a verdict promotes what a commit holds",
            "  trainworthy ui                                # Dagster's UI, with definitions.py",
            "On GitHub: the variable TRAINWORTHY of the repository says what pip installs for the workflow.",
        ]
    )
