"""Columns of a table whose values name files: pictures or texts that lie beside the table, or in a folder beside it.

A value is a path below the table's folder, or what is left of one: `0001` for `images/0001.jpg`. What stands before and
behind is the same for all values of a column, so that it can be written into the generated dataset.py.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import pandas as pd

from trainworthy.lifecycle.contract.draft import ColumnDraft
from trainworthy.lifecycle.errors import Problem
from trainworthy.pipeline.scaffold.contents import read_contents
from trainworthy.pipeline.scaffold.folder import PICTURES, TEXTS, Folder, shown
from trainworthy.pipeline.scaffold.folder_files import PART, FoundFiles, link
from trainworthy.pipeline.scaffold.source import Kind

# Files that are looked at beside a table: one that lies among more than these has none that would be meant.
MOST_NEAR = 200_000
# Values that show where a column's files lie, and the share of them that must be there.
LOOKED_AT, NEARLY_ALL = 50, 0.5
_WHOLE_NAME = rf"(?i:{'|'.join(re.escape(suffix) for suffix in (*PICTURES, *TEXTS))})$"
# The table's name in a part.
ROWS = "rows"


@dataclass(frozen=True)
class FileColumn:
    """A value of the column names the file `before` + value + `behind`, below the table's folder."""

    name: str
    kind: Literal["picture", "text"]
    before: str
    behind: str
    found: FoundFiles


@dataclass(frozen=True)
class TableFiles:
    """A table at `path` and its columns of files."""

    path: Path
    columns: tuple[FileColumn, ...]

    def place(self, folder: Path) -> None:
        """Lay the first part out below `folder`: links to the user's files, since whoever reads them makes a copy."""
        for column in self.columns:
            link(self.path.parent, {file: file for file in column.found.folder.files}, folder / PART)
        link(self.path.parent, {PurePosixPath(self.path.name): PurePosixPath(ROWS + self.path.suffix)}, folder / PART)

    @property
    def mappings(self) -> dict[str, tuple[str, str]]:
        """Of each column what stands before and behind a value."""
        return {column.name: (column.before, column.behind) for column in self.columns}

    def drafts(self, columns: Sequence[ColumnDraft]) -> tuple[ColumnDraft, ...]:
        """The columns, those of files as inputs."""
        inputs = {
            column.name: ColumnDraft(name=column.name, role="feature", file=column.kind) for column in self.columns
        }
        return tuple(inputs.get(column.name, column) for column in columns)


def find_file_columns(
    path: Path, raw: pd.DataFrame, kinds: dict[str, Kind], others: Sequence[str | None]
) -> tuple[TableFiles | None, list[Problem]]:
    """The table's columns of files, each file opened once; None if it has none, and what is wrong with them.

    `others` are the target and whatever else is no input.
    """
    near = _Near(path.parent)
    columns, problems = list[FileColumn](), list[Problem]()
    for name in raw.columns:
        if name in others or kinds.get(name) not in ("text", "integer"):
            continue
        if (place := near.place_of(raw[name])) is None:
            continue
        column, wrong = _opened(path, str(name), raw[name], *place)
        problems += wrong
        columns += [] if column is None else [column]
    return (TableFiles(path, tuple(columns)) if columns else None), problems


class _Near:
    """Pictures and texts in the folder and below it, by their names with and without what stands behind the dot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_name: dict[str, list[str]] | None = None

    def place_of(self, values: pd.Series) -> tuple[str, str] | None:
        """What stands before and behind each value, None where most of them name no file."""
        known = values.dropna().drop_duplicates().astype("str")
        # Small numbers, such as ages, are names of some numbered files, too: what is bare names nearly each row.
        if len(known) <= NEARLY_ALL * len(values) and not known.head(LOOKED_AT).str.contains(_WHOLE_NAME).all():
            return None
        known = known.head(LOOKED_AT)
        places = Counter[tuple[str, str]]()
        for value in known:
            places.update(set(self._places(value)))
        (place, count), *_ = places.most_common(1) or [(("", ""), 0)]
        return place if count > NEARLY_ALL * len(known) else None

    def _places(self, value: str) -> Iterator[tuple[str, str]]:
        if "\\" in value or value.startswith(("/", ".")) or value.endswith("/"):
            return
        if self._by_name is None:
            self._by_name = _by_name(self._folder)
        for file in self._by_name.get(PurePosixPath(value).name, ()):
            behind = "" if file.endswith(value) else PurePosixPath(file).suffix
            before = file.removesuffix(f"{value}{behind}")
            if before + value + behind == file and (not before or before.endswith("/")):
                yield before, behind


def _by_name(folder: Path) -> dict[str, list[str]]:
    files, count = defaultdict[str, list[str]](list), 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        for name in names:
            count += 1
            if count > MOST_NEAR:
                return {}
            stem, suffix = os.path.splitext(name)
            if suffix.lower() in (*PICTURES, *TEXTS) and not name.startswith("."):
                file = Path(parent, name).relative_to(folder).as_posix()
                for key in {name, stem}:
                    files[key].append(file)
    return files


def _opened(
    path: Path, name: str, values: pd.Series, before: str, behind: str
) -> tuple[FileColumn | None, list[Problem]]:
    """The column with what its files hold; None and what is wrong with them."""
    where = f"column {name!r}"
    if empty := int(values.isna().sum()):
        return None, [Problem(where, f"names no file in {empty:,} rows", "remove these rows, or name a file in each")]
    files = [PurePosixPath(f"{before}{value}{behind}") for value in values.astype("str").drop_duplicates()]
    inside = path.parent.resolve()
    missing = [
        file for file in files
        if not (path.parent / file).is_file() or not (path.parent / file).resolve().is_relative_to(inside)
    ]  # fmt: skip
    if missing:
        problem = f"{len(missing):,} of the {len(files):,} files that it names are missing: {shown(missing)}"
        fix = f"put them beside {path.name}, or remove these rows"
        return None, [Problem(where, problem, fix, str(path.parent))]
    suffixes = {file.suffix.lower() for file in files}
    if not (suffixes <= set(PICTURES) or suffixes <= set(TEXTS)):
        problem = f"names files of several kinds: {', '.join(sorted(suffixes))}"
        return None, [Problem(where, problem, "name pictures alone, or texts alone")]
    kind: Literal["picture", "text"] = "text" if suffixes <= set(TEXTS) else "picture"
    folder = Folder("texts" if kind == "text" else "pictures", tuple(files))
    contents, problems = read_contents(path.parent, folder)
    if contents is None:
        return None, problems
    return FileColumn(name, kind, before, behind, FoundFiles(path.parent, folder, contents)), []


def file_observations(files: TableFiles, group: str | None) -> Iterator[str]:
    """What a person should know of the files, a line each."""
    for column in files.columns:
        noun, contents = column.found.folder.noun, column.found.contents
        place = f"{column.before}…{column.behind}" if column.before or column.behind else "beside the table"
        yield f"{column.name!r} names {len(column.found.folder.files):,} {noun}s, {place}"
        if column.kind == "picture":
            yield column.found.sizes_text()
        if contents.repeated:
            yield f"{contents.repeated:,} {noun}s of {column.name!r} repeat another one byte for byte: remove them"
        if group is None:
            yield (
                f"not seen: whether several {noun}s are of one {column.found.things}. Those of one must lie in one "
                "split, or the figures are too good: --group COLUMN"
            )


def unnamed_files(path: Path, raw: pd.DataFrame, files: TableFiles | None) -> Iterator[str]:
    """Columns whose values look like names of files, where none of them was found."""
    taken = {column.name for column in files.columns} if files is not None else set[str]()
    for name in raw.columns:
        texts = raw[name].dropna()
        if name in taken or texts.empty or not isinstance(texts.iloc[0], str):
            continue
        named = texts.head(LOOKED_AT).astype("str").str.lower().str.endswith((*PICTURES, *TEXTS))
        if named.mean() > NEARLY_ALL:
            yield (
                f"{name!r} names files, such as {texts.iloc[0]!r}, and most do not lie below {path.parent}: put the "
                "table beside them, with paths below its folder, and they are read"
            )
