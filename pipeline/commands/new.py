"""trainworthy new: a use case from a table, or with example rows."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands import Subparsers

if TYPE_CHECKING:
    from pipeline.scaffold.create import Created


# Roles whose remark says why the model does not read the column.
NO_INPUTS = ("other", "entity")


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "new",
        help="write a use case for a CSV or Parquet file, and publish the file as version v1 of its dataset",
        description="Writes a use case of binary classification and publishes version v1 of its dataset. Without "
        "--data it makes example rows.",
    )
    parser.add_argument("name", help="of the use case, its folder and its dataset: lower-case letters, digits, _")
    parser.add_argument("--data", type=Path, metavar="FILE", help="rows as .csv or .parquet; a copy of it is kept")
    parser.add_argument("--target", metavar="COLUMN", help="what the model shall predict: a column of two values")
    parser.add_argument("--time", metavar="COLUMN", help="when the model is asked: a column of dates or times")
    parser.add_argument("--positive", metavar="VALUE", help="the target's positive value, where it is not obvious")
    parser.add_argument("--key", action="append", metavar="COLUMN", help="names a row; give it again for several")
    parser.add_argument("--owner", metavar="OWNER", help="team:name or an e-mail address; default team:NAME")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Write the use case and say what to do next."""
    from pipeline.scaffold.create import create
    from pipeline.scaffold.request import Request
    from resources.settings import read_settings

    request = Request(
        name=parsed.name,
        data=parsed.data,
        target=parsed.target,
        time=parsed.time,
        positive=parsed.positive,
        keys=tuple(parsed.key or ()),
        owner=parsed.owner,
    )
    print(_told(request.name, request.source, create(request, read_settings())))
    return 0


def _told(name: str, source: str, created: Created) -> str:
    """What was written, what was guessed, what to review, and the next commands."""
    split = created.windows.split
    no_inputs = [f"  {column.name!r}: {column.remark}" for column in created.columns if column.role in NO_INPUTS]
    key = ", ".join(repr(column) for column in created.key)
    execute = "dagster job execute -m pipeline.definitions -j"
    return "\n".join(
        [
            f"wrote    {created.folder}, and the stage {name} in dvc.yaml",
            f"rows     {name}@v1: {created.rows:,} rows, {100 * created.positive_share:.1f} % positive, named by {key}",
            f"         a copy of the file lies in {source}/: keep it, v1 is rebuilt from it",
            f"split    the newest {split.benchmark.window} are the benchmark; before it lie {split.calibration} of "
            f"calibration, {split.validation} of validation",
            *(["", "These columns are no inputs of the model:", *no_inputs] if no_inputs else []),
            "",
            "Review the inputs: that each is known when the model is asked is a guess, and only you can check it.",
            f"  trainworthy contract review {name}   # until then the verdict is shadow at best",
            "",
            "Next:",
            f"  trainworthy check {name}",
            f"  {execute} preflight_{name}",
            f"  {execute} train_{name} -c {shlex.quote(created.first_model)}   # after git add and git commit",
        ]
    )
