"""trainworthy datasets: published versions, and publishing one."""

from __future__ import annotations

import argparse

from pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("datasets", help="published dataset versions")
    parser.set_defaults(command=run)
    actions = parser.add_subparsers(metavar="ACTION")
    publish = actions.add_parser("publish", help="build a version with DVC and enter it in data/versions.yaml")
    publish.add_argument("dataset")
    publish.add_argument("version")
    publish.add_argument("parameters", nargs="+", metavar="NAME=VALUE", help="parameters of the dvc.yaml stage")
    publish.set_defaults(command=run_publish)


def run(parsed: argparse.Namespace) -> int:
    """Print every published version."""
    from pipeline.show import datasets_text

    print(datasets_text())
    return 0


def run_publish(parsed: argparse.Namespace) -> int:
    """Publish a version."""
    from pipeline.show import publish_dataset

    print(publish_dataset(parsed.dataset, parsed.version, parsed.parameters))
    return 0
