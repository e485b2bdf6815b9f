"""trainworthy restore: a backup back to an empty state folder and empty databases, or only looked through."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "restore",
        help="a backup back to an empty state folder and empty databases, or with --verify only looked through",
        description="Holds every file against its hash first. Writes to the state folder (TRAINWORTHY_VAR) and the "
        "databases of the settings, which have to be empty, all or nothing; then looks at them as doctor does. Exit "
        "code 1 if that finds something.",
    )
    parser.add_argument("folder", type=Path, help="what `trainworthy backup` wrote")
    parser.add_argument("--verify", action="store_true", help="only hold every file against its hash")
    parser.add_argument(
        "--mlflow-artifacts", type=Path, metavar="FOLDER", help="where MLflow's server shall have its files"
    )
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Verify or restore; 1 if what was restored is not well."""
    from trainworthy.lifecycle.protocol.checks import stopping
    from trainworthy.pipeline.backup.restore import restore_backup
    from trainworthy.pipeline.backup.signals import taken_back
    from trainworthy.pipeline.backup.verify import verified
    from trainworthy.pipeline.doctor.examine import of_restored, summary, text
    from trainworthy.resources.settings import read_settings

    if parsed.verify:
        manifest, sha256 = verified(parsed.folder)
        print(f"{len(manifest.files):,} files are what was written at {manifest.taken_at}")
        print(f"sha256 of its manifest: {sha256}")
        return 0
    settings = read_settings()
    with taken_back("restore"):
        manifest, sha256 = restore_backup(settings, parsed.folder, parsed.mlflow_artifacts)
    print(f"{len(manifest.files):,} files of {manifest.taken_at} ({sha256[:12]}) are at {settings.var}")
    if manifest.commit:
        print(f"the project was at commit {manifest.commit[:12]}")
    results = of_restored(settings)
    print(text(results))
    print(summary(results))
    return 1 if stopping(results) else 0
