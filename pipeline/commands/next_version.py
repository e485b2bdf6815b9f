"""trainworthy next: train and judge the next published dataset version."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import NoReturn

from pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("next", help="train and judge the next published dataset version against the champion")
    parser.add_argument("use_case")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Say what is next and become Dagster's command for it; 0 if every published version has its verdict."""
    from lifecycle.errors import ChampionError
    from lifecycle.promotion.judged import NOTHING_NEWER
    from lifecycle.run_config import train_command
    from pipeline.show import find_use_case, standing_of

    standing = standing_of(find_use_case(parsed.use_case))
    if standing.champion is None:
        fix = f"train the first model: {train_command(parsed.use_case, first_model=True)}"
        raise ChampionError("there is no champion to compare with", value=parsed.use_case, fix=fix)
    champion = f"champion: version {standing.champion}, trained on {standing.trained_on}"
    if not standing.waiting:
        print(f"{champion}; nothing newer: {standing.newest_judged} has its verdict\n{NOTHING_NEWER}")
        return 0
    print(f"{champion}; next published version: {standing.waiting[0]}", flush=True)
    _become(train_command(parsed.use_case, dataset_version=standing.waiting[0]))


def _become(command: str) -> NoReturn:
    """Replace this process in the project's folder, so that signals and the exit code are the command's own."""
    from resources.settings import PROJECT

    os.chdir(PROJECT)
    os.execv(sys.executable, [sys.executable, "-m", *shlex.split(command)])
