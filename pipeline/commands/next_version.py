"""trainworthy next: train and judge the next published dataset version."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("next", help="train and judge the next published dataset version against the champion")
    parser.add_argument("use_case")
    parser.add_argument(
        "version", nargs="?", help="this published version, for example to pass over one that a gate stops"
    )
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Say what is next and become Dagster's command for it; 0 if every published version has its verdict."""
    from trainworthy.lifecycle.errors import ChampionError
    from trainworthy.lifecycle.files.versions import published_version
    from trainworthy.lifecycle.promotion.judged import NOTHING_NEWER
    from trainworthy.lifecycle.run_config import first_model_fix, train_command
    from trainworthy.pipeline.execute import become
    from trainworthy.pipeline.show import find_use_case, standing_of

    use_case = find_use_case(parsed.use_case)
    if parsed.version:
        published_version(use_case.project, use_case.spec.dataset.name, parsed.version)
    standing = standing_of(use_case)
    if standing.champion is None:
        fix = first_model_fix(use_case.folder)
        raise ChampionError("there is no champion to compare with", value=parsed.use_case, fix=fix)
    champion = f"champion: version {standing.champion}, trained on {standing.trained_on}"
    if not parsed.version and not standing.waiting:
        print(f"{champion}; nothing newer: {standing.newest_judged} has its verdict\n{NOTHING_NEWER}")
        return 0
    version = parsed.version or standing.waiting[0]
    print(f"{champion}; {'version to judge' if parsed.version else 'next published version'}: {version}")
    if not parsed.version and standing.waiting[1:]:
        print(f"to skip {version}: trainworthy next {parsed.use_case} {standing.waiting[1]}")
    command = train_command(parsed.use_case, shlex.quote(str(_written_config(parsed.use_case, version))))
    print(command, flush=True)
    become(command)


def _written_config(use_case: str, version: str) -> Path:
    """The run config as a file, all that `dagster job execute` takes; it stays for whoever runs the command again."""
    from trainworthy.lifecycle.run_config import config_text
    from trainworthy.lifecycle.storage.state import StateFolder, write_atomic
    from trainworthy.resources.settings import read_settings

    state = StateFolder(read_settings().var)
    path = state.folder("run_configs", use_case, f"{version}.yaml")
    write_atomic(path, config_text(dataset_version=version).encode())
    return path
