"""What a file holds, as far as a use case needs it: types, label, key, roles and windows; or all that is wrong."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.contract.draft import ColumnDraft
from lifecycle.errors import Problem, did_you_mean
from pipeline.scaffold.render import rendered
from pipeline.scaffold.request import Request
from pipeline.scaffold.roles import column_roles, find_key
from pipeline.scaffold.source import Kind, column_kinds, read_source
from pipeline.scaffold.target import TargetLabels, target_labels
from pipeline.scaffold.windows import Windows, choose_windows

if TYPE_CHECKING:
    import pandas as pd

# Of the first version: one part.
PARAMETERS = {"parts": 1}


@dataclass(frozen=True)
class Found:
    """`rows` are as dataset.py builds them; `day` and `numbered` name the columns that it adds."""

    kinds: dict[str, Kind]
    labels: TargetLabels
    time: str
    day: str
    key: tuple[str, ...]
    dataset_text: str
    rows: pd.DataFrame
    columns: tuple[ColumnDraft, ...]
    windows: Windows

    def inputs(self, *kinds: Kind) -> list[str]:
        """Names of the features of these types, in the order of the columns."""
        features = [column.name for column in self.columns if column.role == "feature"]
        return [name for name in features if self.kinds[name] in kinds]


def find_out(request: Request, source: Path, work: Path) -> tuple[Found | None, list[Problem]]:
    """What the file `source` holds; None and every problem that could be found. `work` is an empty folder.

    The rows are built by a dataset.py that is made here. Without a valid name there is none, and only the file's own
    columns are looked at.
    """
    raw, problems = read_source(source)
    if raw is None:
        return None, problems
    kinds, problems = column_kinds(raw)
    labels, target_problems = target_labels(request, raw, kinds)
    problems += [*target_problems, *_time_problems(request, raw, kinds), *_key_problems(request, raw)]
    if problems or labels is None or request.time is None or not request.is_named:
        return None, problems
    time, day = request.time, _free_name("day", request.time, kinds)
    key = request.keys or find_key(raw, time, labels.column)
    numbered = None if key else _free_name("row", time, kinds)
    text = rendered(
        "dataset.py.j2", name=request.name, kinds=kinds, time=time, target=labels.column, labels=labels.table,
        day=day, numbered=numbered,
    )  # fmt: skip
    rows = _built(text, source, work)
    windows, problems = choose_windows(rows, day, labels.column)
    if windows is None:
        return None, problems
    key = key or (str(numbered),)
    told = f"1 where the file says {labels.positive!r}, else 0"
    columns = tuple(column_roles(rows, time=time, day=day, target=labels.column, key=key, label=told))
    if not any(column.role == "feature" for column in columns):
        told = "; ".join(f"{column.name!r}: {column.remark or column.role}" for column in columns)
        fix = "give columns with several values that are known when the model is asked"
        return None, [Problem("--data", f"no column can be an input of a model ({told})", fix)]
    return Found(kinds, labels, time, day, tuple(key), text, rows, columns, windows), []


def _time_problems(request: Request, raw: pd.DataFrame, kinds: dict[str, Kind]) -> Iterator[Problem]:
    name = request.time
    if name is None:
        return
    if name not in raw.columns:
        yield Problem("--time", "is no column of the file", did_you_mean(name, raw.columns), name)
        return
    if name == request.target:
        yield Problem("--time", "is the target too", "name two columns", name)
    missing, known = int(raw[name].isna().sum()), raw[name].dropna()
    if len(known) and name in kinds and kinds[name] not in ("time", "instant"):
        fix = "write all of them as ISO 8601, with a zone or all without, for example 2024-01-31T13:00:00Z"
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


def _free_name(name: str, time: str, taken: dict[str, Kind]) -> str:
    """A name for a column that dataset.py adds, which the file does not have."""
    names = (name, f"{time}_{name}", *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
    return next(found for found in names if found not in taken)


def _built(text: str, source: Path, work: Path) -> pd.DataFrame:
    """The rows that the generated dataset.py makes of the file."""
    import pandas as pd

    part = place_part(source, work / "source")
    path = work / "dataset.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("trainworthy_new_dataset", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(part.parent, work / "built", PARAMETERS["parts"])
    return pd.read_parquet(work / "built" / f"{part.stem}.parquet")


def place_part(source: Path, folder: Path) -> Path:
    """A copy of the file as the first part. Numbered, since parts are read in order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"part-0001{source.suffix}"
    shutil.copyfile(source, part)
    return part
