"""trainworthy backup: what cannot be made again, with a hash of every file, in a new folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    summary = "records, verdicts, models, attempts and databases, whole, in a new folder"
    parser = commands.add_parser(
        "backup",
        help=summary,
        description=f"{summary}. Refuses while runs are in progress, unless told otherwise; its order fits either way. "
        "It may hold rows of your data: keep it as you keep them. The project's own files are git's.",
    )
    parser.add_argument("folder", type=Path, help="a new folder, best on another disk")
    parser.add_argument("--running", action="store_true", help="also while runs are in progress, as far as they came")
    parser.add_argument(
        "--mlflow-database",
        action="append",
        default=[],
        metavar="VARIABLE",
        help="a variable with the address of a database of MLflow's server; once more for that of its users",
    )
    parser.add_argument("--mlflow-artifacts", type=Path, metavar="FOLDER", help="where MLflow's server keeps its files")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("dagster", "mlflow", "shared_state"),
        help="leave this out, for which something else is done",
    )
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Take it, and print what it is known by."""
    from trainworthy.pipeline.backup.places import places
    from trainworthy.pipeline.backup.signals import taken_back
    from trainworthy.pipeline.backup.take import take_backup
    from trainworthy.resources.settings import read_settings

    settings = read_settings()
    where = places(settings, parsed.mlflow_database, parsed.mlflow_artifacts, parsed.without)
    with taken_back("backup"):
        manifest, sha256 = take_backup(settings, where, parsed.folder, despite_runs=parsed.running)
    dumps = f", {len(manifest.dumps)} databases" if manifest.dumps else ""
    print(f"{len(manifest.files):,} files, {manifest.bytes / 1e6:,.1f} MB{dumps}: {parsed.folder}")
    for title, lines in (("in progress meanwhile", manifest.running), ("gone while it was taken", manifest.gone)):
        if lines:
            print(f"{title}: {'; '.join(lines[:5])}{f' and {len(lines) - 5} more' if len(lines) > 5 else ''}")
    if manifest.without:
        print(f"not in it: {', '.join(manifest.without)}")
    print(f"sha256 of its manifest, by which it is known: {sha256}")
    return 0
