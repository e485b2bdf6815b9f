"""trainworthy new: a use case from a table, or with example rows."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.pipeline.commands import Subparsers

if TYPE_CHECKING:
    from trainworthy.lifecycle.spec.split import GroupSplit, HashSplit, StratifiedSplit, TimeSplit
    from trainworthy.lifecycle.spec.task import KindName
    from trainworthy.pipeline.scaffold.create import Created


# Roles whose remark says why the model does not read the column.
NO_INPUTS = ("other", "entity")
# Those of lifecycle/spec/task.py, whose import every command would wait for.
KINDS = ("binary", "multiclass", "multilabel", "regression", "segmentation", "language_model")


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "new",
        help="write a use case for a table or a folder of files, and publish them as version v1 of its dataset",
        description="Writes a use case that predicts a column of a table, the class of a picture or text, a mask, or "
        "the next byte of texts, and publishes version v1 of its dataset. Without --data it makes example rows.",
    )
    parser.add_argument("name", help="of the use case, its folder and its dataset: lower-case letters, digits, _")
    parser.add_argument("--data", type=Path, metavar="PATH", help="rows as .csv or .parquet, whose columns may name "
        "pictures or .txt files beside it; or a folder: of a folder a class with such files, of images/ and masks/, or "
        "of .txt files; a copy is kept")  # fmt: skip
    parser.add_argument(
        "--target",
        metavar="COLUMN",
        help="what the model shall predict: two values, classes, labels with | between them, numbers, or long texts",
    )
    parser.add_argument("--kind", choices=KINDS, help="of the task, where the target's values would give another one")
    parser.add_argument("--quantiles", metavar="LIST", help="what a model of numbers answers instead of one number, "
        "for example 0.1,0.5,0.9")  # fmt: skip
    parser.add_argument("--time", metavar="COLUMN", help="when the model is asked: a column of dates or times; left "
        "out where the rows hold none")  # fmt: skip
    parser.add_argument("--split", choices=["group", "stratified", "hash"], help="how rows without times are split; "
        "left out, what the rows allow")  # fmt: skip
    parser.add_argument("--group", metavar="COLUMN", help="whole groups lie in one split, for example the customer; "
        "of a folder prefix or folder")  # fmt: skip
    parser.add_argument("--encoding", metavar="NAME", help="of a CSV file that is not UTF-8, for example cp1252")
    parser.add_argument("--separator", metavar="CHARACTER", help='between fields of a CSV file: ";" or tab')
    parser.add_argument("--null", action="append", metavar="TEXT", help="in a CSV file means that a value is missing, "
        "as an empty field does, for example . or ?; give it again for several")  # fmt: skip
    parser.add_argument(
        "--time-format", metavar="FORM", help="of --time where it is not plain, for example %%d/%%m/%%Y"
    )
    parser.add_argument("--positive", metavar="VALUE", help="the target's positive value, where it is not obvious")
    parser.add_argument("--key", action="append", metavar="COLUMN", help="names a row; give it again for several")
    parser.add_argument("--owner", metavar="OWNER", help="team:name or an e-mail address; default team:NAME")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Write the use case and say what to do next."""
    from trainworthy.pipeline.scaffold.create import create
    from trainworthy.pipeline.scaffold.request import Request
    from trainworthy.resources.settings import read_settings

    request = Request(
        name=parsed.name,
        data=parsed.data,
        target=parsed.target,
        time=parsed.time,
        positive=parsed.positive,
        keys=tuple(parsed.key or ()),
        owner=parsed.owner,
        group=parsed.group,
        split=parsed.split,
        encoding=parsed.encoding,
        separator=parsed.separator,
        nulls=tuple(parsed.null or ()),
        time_format=parsed.time_format,
        kind=parsed.kind,
        quantiles=parsed.quantiles,
    )
    print(_summary(request.name, request.source, create(request, read_settings())))
    return 0


def _summary(name: str, source: str, created: Created) -> str:
    """What was written, what was guessed, what to review, and the next commands."""
    from trainworthy.lifecycle.run_config import told_command

    left_out = [
        column for column in created.columns if column.role in NO_INPUTS or (column.role == "key" and column.remark)
    ]
    no_inputs = [f"  {column.name!r} {column.remark}" for column in left_out]
    key = " + ".join(created.key)
    return "\n".join(
        [
            f"wrote    {created.folder}, and the stage {name} in dvc.yaml",
            f"rows     {name}@v1: {created.rows:,} rows, {created.labels}",
            f"         a copy of the {created.copied} lies in {source}/: keep it, v1 is rebuilt from it",
            f"         Primary key: {key}",
            f"task     {created.why}",
            f"split    {_split_summary(created.windows.split, created.kind, created.copied)}",
            *(
                ["", f"Seen in the {created.copied}:", *(f"  {line}" for line in created.observations)]
                if created.observations
                else []
            ),
            *(["", "These columns are no inputs of the model:", *no_inputs] if no_inputs else []),
            "",
            *_review(name, created.kind),
            "",
            "Next:",
            f"  trainworthy check {name}",
            f"  {told_command('preflight', name)}",
            f"  {told_command('train', name, shlex.quote(created.first_model))}   # after git add and git commit",
        ]
    )


def _review(name: str, kind: KindName) -> list[str]:
    """What only a person knows."""
    if kind == "language_model":
        return ["Review the texts: a model of them can recite what it has read. Leave out what must not be told."]
    return [
        "Review the inputs: that each is known when the model is asked is a guess, and only you can check it.",
        f"  trainworthy contract review {name}   # until then the verdict is shadow at best",
    ]


def _split_summary(split: TimeSplit | GroupSplit | HashSplit | StratifiedSplit, kind: KindName, copied: str) -> str:
    """Which rows are the benchmark, and why; `copied` is what --data names."""
    if split.by == "time":
        return (
            f"the newest {split.benchmark.window} are the benchmark; before it lie {split.calibration} of calibration, "
            f"{split.validation} of validation"
        )
    share = f"{split.shares.benchmark:.0%} of the"
    if split.by == "group":
        return (
            f"no times: {share} values of {split.group} are the benchmark, with all their rows (--group names another)"
        )
    from trainworthy.pipeline.scaffold.project import STRATA

    why = f"exactly so in each {STRATA.get(kind, 'class')}" if split.by == "stratified" else "by chance"
    group = "--group prefix or --group folder" if copied == "folder" else "--group COLUMN"
    return f"no times: {share} rows are the benchmark, {why}; {group} if several rows are about the same thing"
