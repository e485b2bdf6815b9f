"""What a table holds, as far as a use case needs it: types, label, key, roles and windows; or all that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.pipeline.scaffold.dates import time_formats
from trainworthy.pipeline.scaffold.found import Found, built, free_name
from trainworthy.pipeline.scaffold.found_texts import find_texts_of_table
from trainworthy.pipeline.scaffold.reading import Reading, find_reading
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.roles import column_roles, find_key
from trainworthy.pipeline.scaffold.shares import choose_shares, find_group
from trainworthy.pipeline.scaffold.source import Kind, column_kinds, read_source
from trainworthy.pipeline.scaffold.summary import what_was_seen
from trainworthy.pipeline.scaffold.target import find_target
from trainworthy.pipeline.scaffold.windows import choose_windows

if TYPE_CHECKING:
    import pandas as pd


def find_out(request: Request, source: Path, work: Path) -> tuple[Found | None, list[Problem]]:
    """What the file `source` holds; None and every problem that could be found. `work` is an empty folder.

    The rows are built by a dataset.py that is made here. Without a valid name there is none, and only the file's own
    columns are looked at.
    """
    reading, problems = _reading(request, source)
    if problems:
        return None, problems
    raw, problems = read_source(source, reading)
    if raw is None:
        return None, problems
    formats, ambiguous, problems = time_formats(raw, request.time, request.time_format)
    kinds, kind_problems = column_kinds(raw, formats)
    target, target_problems = find_target(request, raw, kinds)
    problems += [*kind_problems, *target_problems, *_key_problems(request, raw), *_group_problems(request, raw)]
    # A form of dates that could not be told says more than that the column is none of times; and times beside texts
    # need not be when a model is asked to go on with them.
    is_text = target is not None and target.task.kind == "language_model"
    if not (is_text and request.time is None) and not any(one.where.startswith("--time") for one in problems):
        problems += _time_problems(request, raw, kinds)
    if problems or target is None or not request.is_named:
        return None, problems
    kinds |= {target.column: target.read_as}
    if target.task.kind == "language_model":
        return find_texts_of_table(request, source, work, raw, kinds, target, reading, formats)
    time, day = request.time, request.time and free_name("day", request.time, kinds)
    key = request.keys or find_key(raw, time, target.column)
    if time is None and len(key) > 1:
        # Intervals and hashes go by one column.
        key = ()
    numbered = None if key else free_name("row", time or "new", kinds)
    text = rendered(
        "dataset.py.j2", name=request.name, kinds=kinds, time=time, target=target, day=day,
        numbered=numbered, reading=reading, formats=formats, cut=None,
    )  # fmt: skip
    rows = built(text, source, work)
    key = key or (str(numbered),)
    group = request.group
    if time is None and request.split is None and group is None:
        group = find_group(rows, target.column, key)
    if day is not None:
        windows, problems = choose_windows(rows, day, target.label)
    else:
        windows, problems = choose_shares(rows, target.label, key[0], group, request.split)
    if windows is None:
        return None, problems
    columns = tuple(
        column_roles(
            rows, time=time, day=day, label=target.label, key=key, remark=target.remark, group=group, in_order=False
        )
    )
    if not any(column.role == "feature" for column in columns):
        told = "; ".join(f"{column.name!r}: {column.remark or column.role}" for column in columns)
        fix = "give columns with several values that are known when the model is asked"
        return None, [Problem("--data", f"no column can be an input of a model ({told})", fix)]
    seen = what_was_seen(raw, rows, kinds, target.column, reading, formats, ambiguous)
    return Found(kinds, target, time, day, tuple(key), text, rows, columns, windows, seen), []


def _reading(request: Request, source: Path) -> tuple[Reading | None, list[Problem]]:
    """How a CSV file is to be read; None of any other file, for which read_source says what is wrong with it."""
    if source.suffix == ".csv" and source.is_file():
        return find_reading(source, request.encoding, request.separator)
    asked = {"--encoding": request.encoding, "--separator": request.separator}
    fix = "leave it out"
    return None, [Problem(name, "is for CSV files", fix, value) for name, value in asked.items() if value is not None]


def _group_problems(request: Request, raw: pd.DataFrame) -> Iterator[Problem]:
    name = request.group
    if name is None:
        return
    if name not in raw.columns:
        yield Problem("--group", "is no column of the file", did_you_mean(name, map(str, raw.columns)), name)
    elif missing := int(raw[name].isna().sum()):
        yield Problem("--group", f"{name!r} is empty in {missing:,} rows", "fill it in, or remove these rows", name)
    elif name == request.target:
        yield Problem("--group", "is the target too", "name two columns", name)


def _time_problems(request: Request, raw: pd.DataFrame, kinds: dict[str, Kind]) -> Iterator[Problem]:
    name = request.time
    if name is None:
        times = [other for other, kind in kinds.items() if kind in ("time", "instant")]
        if times and not (request.split or request.group):
            fix = f"write --time {times[0]} if the model is asked then; else --split hash, or --group COLUMN"
            yield Problem("--time", f"is missing, and {times[0]!r} holds times", fix)
        return
    if name not in raw.columns:
        yield Problem("--time", "is no column of the file", did_you_mean(name, raw.columns), name)
        return
    if name == request.target:
        yield Problem("--time", "is the target too", "name two columns", name)
    missing, known = int(raw[name].isna().sum()), raw[name].dropna()
    if len(known) and name in kinds and kinds[name] not in ("time", "instant"):
        fix = (
            "write all of them as ISO 8601, with a zone or all without, such as 2024-01-31T13:00:00Z; or --time-format"
        )
        yield Problem("--time", f"{name!r} is no column of times", fix, str(known.iloc[0]))
    elif missing:
        yield Problem("--time", f"{name!r} is empty in {missing:,} rows", "remove these rows, or name another column")


def _key_problems(request: Request, raw: pd.DataFrame) -> Iterator[Problem]:
    key = list(request.keys)
    unknown = [name for name in key if name not in raw.columns]
    for name in unknown:
        yield Problem("--key", "is no column of the file", did_you_mean(name, raw.columns), name)
    if request.target in key:
        yield Problem("--key", "is the target too", "name columns that are known before", request.target)
    if not key or unknown:
        return
    empty, shared = int(raw[key].isna().any(axis=1).sum()), int(raw.duplicated(key, keep=False).sum())
    if empty or shared:
        fix = "name more columns (--key A --key B), or leave --key out: the rows are numbered then"
        problem = f"does not name each row: {shared:,} rows share theirs, {empty:,} have none"
        yield Problem("--key", problem, fix, key)
