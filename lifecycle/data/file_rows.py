"""The files that rows name: each opened once before a snapshot is written, and the hash of its bytes.

A file that is missing, empty or unreadable would else end a training hours later. The hash stands beside the path in
the snapshot (`picture:sha256`), so that a changed file makes another snapshot and equal files are found.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.files.decode import wrong_content
from trainworthy.lifecycle.files.kind import outside
from trainworthy.lifecycle.files.tree import in_threads
from trainworthy.lifecycle.protocol.checks import CheckResult

if TYPE_CHECKING:
    import pandas as pd

# Read whole, in several threads at once.
MOST_BYTES = 256 * 2**20
NAMED_ROWS = 20
_SHA = ":sha256"
_FIX = "correct or remove these rows, or put the files there, in dataset.py; then publish the next version"


def sha_column(name: str) -> str:
    """Where a split holds the sha256 of a file column's bytes; with a colon, so that it is no feature's name."""
    return f"{name}{_SHA}"


def is_sha_column(name: str) -> bool:
    """True for a column of such hashes: it is null where its files are, and says nothing more."""
    return name.endswith(_SHA)


@dataclass(frozen=True)
class FileFacts:
    """What was found of one file: the hash of its bytes, in words what is wrong with it, if anything is, and of a
    picture or mask height and width."""

    sha256: str = ""
    wrong: str = ""
    size: tuple[int, ...] = ()


@dataclass(frozen=True)
class FileRows:
    """The check `files`, and for each column of files the hashes by row number, None where there is no file."""

    check: CheckResult
    hashes: dict[str, list[str | None]] = field(default_factory=dict)


def look_at_files(source: Path, contract: Contract) -> FileRows:
    """Open every file that rows of the dataset in `source` name, several at a time."""
    columns = contract.file_columns
    if not columns:
        return FileRows(CheckResult(name="files", status="not_applicable", evidence="no column names files"))
    rows = read_columns(source, [*contract.primary_key, *(column.name for column in columns)])
    details: list[dict[str, Any]] = []
    facts: dict[str, list[FileFacts | None]] = {}
    for column in columns:
        values = rows[column.name]
        by_path = _facts_by_path(source, column, values, _classes(column, contract))
        facts[column.name] = [
            None if path is None else by_path[path] for path in values.astype(object).where(values.notna(), None)
        ]
    for column in columns:
        wrong = [
            _mistake(file_facts, picture)
            for file_facts, picture in zip(facts[column.name], _pictures(column, columns, facts), strict=True)
        ]
        details += _named(rows, wrong, column, contract.primary_key)
        count = rows[column.name].nunique()
        details.append({"column": column.name, "kind": column.file, "files": count, "wrong": _count(wrong)})
    hashes = {
        name: [None if file_facts is None else file_facts.sha256 for file_facts in column_facts]
        for name, column_facts in facts.items()
    }
    return FileRows(_check(details), hashes)


def _classes(column: Column, contract: Contract) -> int | None:
    """How many classes the pixels of the label's masks may hold; None for other files."""
    return len(contract.label.classes) if column.name == contract.label.column else None


def _pictures(
    column: Column, columns: Sequence[Column], facts: Mapping[str, list[FileFacts | None]]
) -> Sequence[FileFacts | None]:
    """The picture of each file of a column: of a mask that is the label the first picture of its row, else None."""
    pictures = [other.name for other in columns if other.file == "picture" and other.role == "feature"]
    if column.file != "mask" or column.role != "target" or not pictures:
        return [None] * len(facts[column.name])
    return facts[pictures[0]]


def _mistake(facts: FileFacts | None, picture: FileFacts | None) -> str | None:
    """What is wrong with a file; None if nothing is, or if there is no file."""
    if facts is None:
        return None
    if facts.wrong or picture is None or not picture.size or facts.size == picture.size:
        return facts.wrong or None
    return f"the mask is {_sides_of(facts.size)} pixels, and its picture {_sides_of(picture.size)}"


def _sides_of(size: tuple[int, ...]) -> str:
    return " × ".join(map(str, size))


def _facts_by_path(source: Path, column: Column, values: pd.Series, classes: int | None) -> dict[str, FileFacts]:
    """What was found of each different file."""
    names = [str(value) for value in values.dropna().unique()]
    look = functools.partial(look_at, source.resolve(), column, classes=classes)
    return dict(zip(names, in_threads(look, names, f"opening the files of {column.name}"), strict=True))


def _count(wrong: Sequence[str | None]) -> int:
    return sum(mistake is not None for mistake in wrong)


def _named(rows: pd.DataFrame, wrong: Sequence[str | None], column: Column, key: Sequence[str]) -> list[dict[str, Any]]:
    """The first rows whose file can't be used, by key; the path of a sensitive column is left out."""
    import polars as pl

    from trainworthy.lifecycle.contract.failing_rows import plain_rows

    places = [place for place, mistake in enumerate(wrong) if mistake is not None][:NAMED_ROWS]
    if not places:
        return []
    shown = [*key] if column.sensitive else [*key, column.name]
    named = plain_rows(pl.from_pandas(rows.iloc[places][list(dict.fromkeys(shown))].reset_index(drop=True)))
    return [
        {"row": row, "column": column.name, "status": "fail", "problem": wrong[place]}
        for row, place in zip(named, places, strict=True)
    ]


def _check(details: Sequence[dict[str, Any]]) -> CheckResult:
    totals = [detail for detail in details if "files" in detail]
    named = [detail for detail in details if "files" not in detail]
    count, files = sum(detail["wrong"] for detail in totals), sum(detail["files"] for detail in totals)
    if not count:
        evidence = f"{files:,} files of {', '.join(detail['column'] for detail in totals)} can be read"
        return _result("pass", 0, evidence, "", (*named, *totals))
    first = "; ".join(f"{_row(detail)}: {detail['problem']}" for detail in named[:3])
    more = f"; {count - min(3, len(named)):,} more rows" if count > min(3, len(named)) else ""
    evidence = f"{count:,} rows name a file that can't be used: {first}{more}"
    return _result("fail", count, evidence, _FIX, (*named, *totals))


def _result(status: str, observed: int, evidence: str, fix: str, details: tuple[dict[str, Any], ...]) -> CheckResult:
    return CheckResult.model_validate({
        "name": "files", "status": status, "required": True, "observed": observed, "threshold": 0,
        "evidence": evidence, "fix": fix, "details": details,
    })  # fmt: skip


def _row(detail: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in detail["row"].items())


def look_at(source: Path, column: Column, name: str, classes: int | None = None) -> FileFacts:
    """Open one file of a column by its path below `source`, which is resolved; of masks of a label `classes`."""
    if why := outside(name):
        return FileFacts(wrong=f"a file outside the dataset's folder: {why}")
    path = source / name
    if not path.resolve().is_relative_to(source):
        return FileFacts(wrong="a file outside the dataset's folder: a link leads there")
    if not path.is_file():
        return FileFacts(wrong="the file is missing")
    size = path.stat().st_size
    if size > MOST_BYTES:
        return FileFacts(wrong=f"the file has {size:,} bytes, more than {MOST_BYTES:,}")
    data = path.read_bytes()
    assert column.file is not None
    wrong, shape = wrong_content(data, column.file, column.size, classes)
    return FileFacts(sha256=hashlib.sha256(data).hexdigest(), wrong=wrong, size=shape)
