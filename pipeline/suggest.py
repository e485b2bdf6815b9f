"""What `trainworthy contract suggest` does: drafts a contract from a dataset version or from files, for review.

A contract needs a label and a key. Both are named, or guessed and marked so: nobody but a person knows what a model
shall predict.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from trainworthy.lifecycle.contract.draft import ColumnDraft, contract_text, draft_contract
from trainworthy.lifecycle.contract.frame import logical_type
from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.contract.profile import naming_columns
from trainworthy.lifecycle.contract.read import contract_problems
from trainworthy.lifecycle.contract.rule import LogicalType
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.errors import DatasetError, Problem, UseCaseError, did_you_mean
from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.pipeline.scaffold.roles import column_roles
from trainworthy.pipeline.scaffold.source import SUFFIXES, column_kinds, read_source
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.settings import projects, read_settings

# Rows on which roles are guessed: the area under the curve of each column alone needs no more.
ROLE_ROWS = 20_000
HEADING = """\
Drafted from {source}, {rows:,} rows. docs/how-to/contract.md explains it. What rows can't tell is marked:
`reviewed: false` is a value known when the model is asked (PT0S)? `review` is a rule a law or an accident?"""
_DATASET = re.compile(r"([a-z][a-z0-9_]*)(?:@([a-z][a-z0-9_]*))?")


@dataclass(frozen=True)
class DraftRequest:
    """The arguments."""

    sources: tuple[str, ...]
    target: str | None
    time: str | None
    keys: tuple[str, ...]
    out: Path | None


def suggest(request: DraftRequest) -> str:
    """The draft's text, or with `out` what was written. Raises TrainworthyError, having written nothing."""
    if request.out is not None and request.out.exists():
        fix = "name a new file, and take over by hand what you like"
        raise UseCaseError("draft", [Problem("--out", "there is such a file, and it stays", fix, str(request.out))])
    name, source, rows = _rows(request.sources)
    text = drafted_text(name, source, rows, request)
    if request.out is None:
        return text
    try:
        with request.out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        fix = "name a new file in a folder that can be written"
        raise UseCaseError(
            "draft", [Problem("--out", f"can't be written: {error.strerror}", fix, str(request.out))]
        ) from None
    return f"wrote    {request.out}: review what it guessed, above all the label, the key and when values are known"


def drafted_text(name: str, source: str, rows: pd.DataFrame, request: DraftRequest) -> str:
    """The contract of these rows as YAML. Raises UseCaseError for rows that make none."""
    problems = _column_problems(rows, request)
    if problems:
        raise UseCaseError(name, problems)
    time = request.time or _time(rows)
    label, guessed = _label(rows, request.target, time)
    key = request.keys or _naming(rows, label.column)
    if not key:
        fix = "drop repeated rows, or name the columns with --key"
        raise UseCaseError(name, [Problem("--key", "no columns name a row: rows repeat, or have nulls", fix)])
    columns = _columns(rows, label, guessed, time, key)
    document = draft_contract(rows, name=name, purpose=f"What {name} holds.", columns=columns, key=key, label=label)
    text = contract_text(document, columns, HEADING.format(source=source, rows=len(rows)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.yaml"
        path.write_text(text, encoding="utf-8")
        problems = contract_problems(path)
    if problems:
        raise UseCaseError(name, problems)
    return text


def _rows(sources: Sequence[str]) -> tuple[str, str, pd.DataFrame]:
    """Name of the contract, words for its source, and the rows."""
    match = _DATASET.fullmatch(sources[0])
    if len(sources) == 1 and match and not Path(sources[0]).suffix:
        return _published(match[1], match[2])
    parts, problems = [], []
    for path in map(Path, sources):
        raw, file_problems = read_source(path)
        problems += file_problems
        parts += [] if raw is None else [raw]
    columns = {tuple(part.columns) for part in parts}
    if len(columns) > 1:
        problems.append(Problem("FILE", "the files have different columns", "name files of one table", list(sources)))
    if problems:
        named = [Problem(str(problem.value or "FILE"), problem.problem, problem.fix) for problem in problems]
        raise UseCaseError("draft", named)
    rows = pd.concat(parts, ignore_index=True)
    if any(path.endswith(SUFFIXES[0]) for path in sources):
        rows = _typed(rows)
    stem = re.sub(r"\W+", "_", Path(sources[0]).stem) or "rows"
    return stem, ", ".join(Path(path).name for path in sources), rows


def _published(name: str, version: str | None) -> tuple[str, str, pd.DataFrame]:
    """A version of a published dataset; without a name the last one."""
    settings = read_settings()
    listed = {project: read_versions(project) for project in projects(settings)}
    known = {dataset: project for project, versions in listed.items() for dataset in versions}
    if name not in known:
        fix = did_you_mean(name, known) if known else "name a .csv or .parquet file, or publish a version first"
        raise DatasetError("neither a file nor a published dataset", value=name, fix=fix)
    project = known[name]
    version = version or list(listed[project][name])[-1]
    store = DatasetStore(settings.var)
    return name, f"{name}@{version}", read_columns(store.fetch(project, name, version, store.datasets).path)


def _typed(raw: pd.DataFrame) -> pd.DataFrame:
    """The texts of a CSV as values, typed as `trainworthy new` types them. Raises UseCaseError."""
    kinds, problems = column_kinds(raw)
    if problems:
        raise UseCaseError("draft", problems)
    read: dict[str, Any] = {
        "integer": lambda texts: pd.to_numeric(texts).astype("int64"),
        "number": lambda texts: pd.to_numeric(texts).astype("float64"),
        "boolean": lambda texts: texts.str.lower().map({"true": True, "false": False}),
        "text": lambda texts: texts,
        "time": lambda texts: pd.to_datetime(texts, format="ISO8601"),
        "instant": lambda texts: pd.to_datetime(texts, format="ISO8601", utc=True),
    }
    return pd.DataFrame({name: read[kind](raw[name]) for name, kind in kinds.items()})


def _column_problems(rows: pd.DataFrame, request: DraftRequest) -> list[Problem]:
    known = [str(name) for name in rows.columns]
    named = [("--target", request.target), ("--time", request.time), *(("--key", key) for key in request.keys)]
    problems = [
        Problem(option, "is no column of the rows", did_you_mean(name, known), name)
        for option, name in named
        if name is not None and name not in known
    ]
    for name in known:
        kind = logical_type(rows[name])
        if not rows[name].isna().all() and kind not in get_args(LogicalType):
            fix = "leave the column out, or write numbers, texts, true and false, or times"
            problems.append(Problem(f"column {name!r}", f"holds values of type {kind}", fix))
    if (
        request.keys
        and not problems
        and (rows[list(request.keys)].isna().any(axis=None) or rows.duplicated(list(request.keys)).any())
    ):
        problems.append(
            Problem("--key", "does not name a row: it repeats, or is null", "name more columns", request.keys)
        )
    return problems


def _time(rows: pd.DataFrame) -> str | None:
    """The column of times without nulls that has the most different values, timestamps before days."""
    kinds = {str(name): logical_type(rows[name]) for name in rows.columns if not rows[name].isna().any()}
    times = [
        (kind == "timestamp", rows[name].nunique(), name)
        for name, kind in kinds.items()
        if kind in ("date", "timestamp")
    ]
    return max(times)[-1] if times else None


def _label(rows: pd.DataFrame, target: str | None, time: str | None) -> tuple[Label, str]:
    """The label, and the remark if it was guessed: a column of 0 and 1, else a number above its median."""
    numbers = [str(name) for name in rows.columns if logical_type(rows[name]) in ("integer", "number", "boolean")]
    usable = [name for name in numbers if rows[name].nunique() > 1]
    binary = [name for name in usable if set(rows[name].dropna().unique()) == {0, 1}]
    if target is not None and target not in usable:
        fix = "name a column of numbers or booleans; for texts, `trainworthy new` drafts a label of classes"
        raise UseCaseError("draft", [Problem("--target", "can't make a label", fix, target)])
    if target is None and not usable:
        raise UseCaseError("draft", [Problem("--target", "no column can make a label", "add a column of 0 and 1")])
    column = target or (binary or usable)[-1]
    remark = "" if target else "review: a guess of the label; name it with --target"
    if column in binary:
        return Label(name=column, version=1, column=column), remark
    middle = float(rows[column].median())
    # Both sides of the limit must hold rows.
    limit = middle if (rows[column] > middle).any() else float(rows[column].min())
    remark += ("; " if remark else "review: ") + "is its median the limit that matters?"
    return Label(name=f"{column}_high", version=1, column=column, greater_than=limit), remark


def _naming(rows: pd.DataFrame, target: str) -> tuple[str, ...]:
    """Columns that together name a row; a measured number is none."""
    names = [str(name) for name in rows.columns if name != target and logical_type(rows[name]) != "number"]
    return naming_columns(rows, names)


def _columns(rows: pd.DataFrame, label: Label, remark: str, time: str | None, key: Sequence[str]) -> list[ColumnDraft]:
    """The columns' roles, guessed on a part of the rows."""
    few = rows.iloc[:: max(1, len(rows) // ROLE_ROWS)].reset_index(drop=True)
    drafts = column_roles(few, time=time, day=None, label=label, key=key, remark=remark)
    if not any(draft.role == "feature" for draft in drafts):
        candidates = [draft.name for draft in drafts if draft.role == "other"] or [
            draft.name for draft in drafts if draft.role == "entity"
        ]
        remark = "review: no column looks like an input of a model"
        drafts = [
            ColumnDraft(name=draft.name, role="feature", remark=remark) if draft.name in candidates[:1] else draft
            for draft in drafts
        ]
    return drafts
