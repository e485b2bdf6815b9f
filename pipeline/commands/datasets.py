"""trainworthy datasets: published versions, what differs between two, and publishing one."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("datasets", help="published dataset versions: list, compare, publish")
    parser.set_defaults(command=run)
    actions = parser.add_subparsers(metavar="ACTION")
    publish = actions.add_parser(
        "publish",
        help="build or import a version with DVC and enter it in data/versions.yaml",
        description="Builds a version with the parameters of its dvc.yaml stage, or imports it: from --from, else from "
        "the address in data/<dataset>.dvc. A version that changes what an earlier one holds is refused.",
    )
    publish.add_argument("dataset")
    publish.add_argument("version")
    publish.add_argument("parameters", nargs="*", metavar="NAME=VALUE", help="parameters of the dvc.yaml stage")
    publish.add_argument("--from", dest="source", metavar="URL", help="import the files: a folder, s3://…, https://…")
    publish.add_argument("--backfill", default="", metavar="REASON", help="rows of the newest version change; say why")
    publish.set_defaults(command=run_publish)
    diff = actions.add_parser(
        "diff",
        help="rows and labels that differ between two versions; exit code 1 if old ones changed undeclared",
        description="Compares two versions by the key and the label of the contracts that use the dataset. Exit code 1 "
        "if the later one changes or removes rows of the earlier one and does not declare it.",
    )
    diff.add_argument(
        "versions", nargs="+", metavar="VERSION", help="flights v3 v4, or flights@v3 flights@v4, or v3 v4"
    )
    diff.add_argument("--key", metavar="A,B", help="columns that name a row; default: the contract's primary key")
    diff.add_argument("--out", type=Path, metavar="FILE", help="every row that differs, by key, as Parquet")
    diff.set_defaults(command=run_diff)


def run(parsed: argparse.Namespace) -> int:
    """Print every published version."""
    from trainworthy.pipeline.datasets import datasets_text

    print(datasets_text())
    return 0


def run_publish(parsed: argparse.Namespace) -> int:
    """Publish a version."""
    from trainworthy.pipeline.datasets import publish_dataset

    source = parsed.source
    if source and "://" not in source:
        # What is kept has to mean the same folder from anywhere.
        source = str(Path(source).expanduser().resolve())
    print(publish_dataset(parsed.dataset, parsed.version, parsed.parameters, source, parsed.backfill))
    return 0


def run_diff(parsed: argparse.Namespace) -> int:
    """Print what differs; 1 if old rows or labels changed undeclared."""
    from trainworthy.pipeline.datasets_diff import diff_text

    text, undeclared = diff_text(parsed.versions, parsed.key.split(",") if parsed.key else [], parsed.out)
    print(text)
    return 1 if undeclared else 0
