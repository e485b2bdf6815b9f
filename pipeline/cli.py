"""The command `trainworthy`: argument parsing only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from lifecycle.errors import TrainworthyError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A user's error is one message on stderr and exit code 1."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        return command(parsed)
    except TrainworthyError as error:
        print(f"trainworthy: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainworthy", description="Is this run worth its compute, and its model worth shipping?"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    verdict = commands.add_parser("verdict", help="the newest verdict of a use case: decision, reasons, cost, links")
    verdict.add_argument("use_case")
    verdict.set_defaults(command=_verdict)
    champion = commands.add_parser("champion", help="version of the present champion; exit code 1 if there is none")
    champion.add_argument("use_case")
    champion.set_defaults(command=_champion)
    datasets = commands.add_parser("datasets", help="published dataset versions")
    datasets.set_defaults(command=_datasets)
    actions = datasets.add_subparsers(metavar="ACTION")
    publish = actions.add_parser("publish", help="build a version with DVC and enter it in data/versions.yaml")
    publish.add_argument("dataset")
    publish.add_argument("version")
    publish.add_argument("parameters", nargs="+", metavar="NAME=VALUE", help="parameters of the dvc.yaml stage")
    publish.set_defaults(command=_publish)
    return parser


def _verdict(parsed: argparse.Namespace) -> int:
    from pipeline.show import newest_verdict, verdict_text

    print(verdict_text(newest_verdict(parsed.use_case)))
    return 0


def _champion(parsed: argparse.Namespace) -> int:
    from pipeline.show import champion_version

    version = champion_version(parsed.use_case)
    print(version or f"{parsed.use_case} has no champion yet")
    return 0 if version else 1


def _datasets(parsed: argparse.Namespace) -> int:
    from pipeline.show import datasets_text

    print(datasets_text())
    return 0


def _publish(parsed: argparse.Namespace) -> int:
    from pipeline.show import publish_dataset

    print(publish_dataset(parsed.dataset, parsed.version, parsed.parameters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
