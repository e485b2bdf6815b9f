"""Columns of a table whose values name files: pictures or texts that lie beside the table, or in a folder beside it.

A value is a path below the table's folder, or what is left of one: `0001` for `images/0001.jpg`. What stands before and
behind is the same for all values of a column, so that it can be written into the generated dataset.py.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import pandas as pd

from trainworthy.lifecycle.contract.draft import ColumnDraft
from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.wording import counted
from trainworthy.pipeline.scaffold.contents import read_contents
from trainworthy.pipeline.scaffold.folder import AS_ARRAYS, PICTURES, TEXTS, Folder, shown
from trainworthy.pipeline.scaffold.folder_files import PART, FoundFiles, link
from trainworthy.pipeline.scaffold.source import Kind, free_name

# How much is looked at below the table's folder: a table in somebody's home names nothing of all that lies there.
MOST_FILES, MOST_FOLDERS, DEEPEST = 200_000, 1_000, 3
# Values that show where a column's files lie, spread over the rows.
LOOKED_AT = 50
# So many of all say that a column of bare names is meant, and that a row without a file is a slip.
NEARLY_ALL = 0.9
_WHOLE_NAME = re.compile(rf"(?:{'|'.join(re.escape(suffix) for suffix in (*PICTURES, *TEXTS))})$", re.IGNORECASE)
# A longer value is no name of a file.
MOST_LETTERS = 200
# The table's name in a part.
ROWS = "rows"


class Place(NamedTuple):
    """A value of the column `source` names the file before + value + behind, below the table's folder."""

    source: str
    before: str
    behind: str

    def file(self, value: object) -> str:
        return f"{self.before}{value}{self.behind}"

    def __str__(self) -> str:
        return f"{self.before}…{self.behind}"


@dataclass(frozen=True)
class FileColumn:
    """A column of files, `name` in the dataset; `repeats` where several rows name one file."""

    name: str
    kind: Literal["picture", "text"]
    place: Place
    found: FoundFiles
    repeats: bool


@dataclass(frozen=True)
class TableFiles:
    """A table at `path`, its columns of files, and what is to be known of others that look like such, a line each."""

    path: Path
    columns: tuple[FileColumn, ...]
    notes: tuple[str, ...] = ()

    def place(self, folder: Path) -> None:
        """Lay the first part out below `folder`: links to the user's files, since whoever reads them makes a copy."""
        files = {file: file for column in self.columns for file in column.found.folder.files}
        link(self.path.parent, files, folder / PART)
        link(self.path.parent, {PurePosixPath(self.path.name): PurePosixPath(ROWS + self.path.suffix)}, folder / PART)

    @property
    def places(self) -> dict[str, Place]:
        """Where the files of each column lie."""
        return {column.name: column.place for column in self.columns}

    @property
    def pictures(self) -> list[FileColumn]:
        return [column for column in self.columns if column.kind == "picture"]

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width to which the network brings every picture; None without one."""
        sizes = [column.found.size for column in self.pictures]
        return (max(height for height, _ in sizes), max(width for _, width in sizes)) if sizes else None

    @property
    def mode(self) -> str:
        """Pillow's, in which they are read."""
        return max((column.found.mode for column in self.pictures), key=len, default="")

    @property
    def row_bytes(self) -> int:
        """What the tensors of a row's files take."""
        height, width = self.size or (0, 0)
        texts = sum(column.found.row_bytes for column in self.columns if column.kind == "text")
        return texts + 4 * height * width * len(self.mode) * len(self.pictures)

    def drafts(self, columns: Sequence[ColumnDraft]) -> tuple[ColumnDraft, ...]:
        """The columns, those of files as inputs; the name of a file that stays beside it is none."""
        drafts = {draft.name: draft for draft in columns}
        for column in self.columns:
            source = column.place.source
            if source != column.name and drafts[source].role == "feature":
                remark = f"left out: the name of a file, which is read as {column.name!r}"
                drafts[source] = ColumnDraft(name=source, role="entity", remark=remark)
            drafts[column.name] = ColumnDraft(name=column.name, role="feature", file=column.kind)
        return tuple(drafts.values())


def find_file_columns(
    path: Path, raw: pd.DataFrame, kinds: dict[str, Kind], target: str, kept: Collection[str | None]
) -> tuple[TableFiles, list[Problem]]:
    """The table's columns of files, each file opened once, and what is wrong with them.

    Columns that are `kept`, such as the key, and those whose files repeat, which are a group, stay as they are: their
    files get a column of their own.
    """
    near, columns, notes, problems = _Near(path.parent), list[FileColumn](), list[str](), list[Problem]()
    names = [name for name in map(str, raw.columns) if name != target and kinds.get(name) in ("text", "integer")]
    # Whole paths first: what they name, no bare name beside them has to be asked about.
    for name in sorted(names, key=lambda name: not is_whole(raw[name])):
        claimed = {str(file) for column in columns for file in column.found.folder.files}
        place, told = near.place_of(name, raw[name], claimed)
        if isinstance(told, Problem):
            problems.append(told)
        elif told:
            notes.append(told)
        if place is None:
            notes += near.unread(name, raw[name]) if told == "" else ()
            continue
        found, wrong = _opened(path, place, raw[name])
        problems += wrong
        if found is None:
            continue
        if any(other.found.folder.files == found.folder.files for other in columns):
            notes.append(f"{name!r} names the files that another column names, which are read once")
            continue
        repeats = len(found.folder.files) < len(raw)
        taken = [*map(str, raw.columns), *(column.name for column in columns)]
        kind: Literal["picture", "text"] = "text" if found.folder.form == "texts" else "picture"
        own = free_name(kind, name, taken) if name in kept or repeats else name
        columns.append(FileColumn(own, kind, place, found, repeats))
    columns.sort(key=lambda column: names.index(column.place.source))
    return TableFiles(path, tuple(columns), tuple(notes)), problems


class _Near:
    """Files below the folder by their names, with and without what stands behind the dot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, list[str]] | None = None
        self._others: dict[str, list[str]] = {}

    def unread(self, name: str, values: pd.Series) -> Iterator[str]:
        """What is to be told of a column whose values nearly all name files of kinds that no draft reads."""
        known = values.dropna().drop_duplicates().astype("str")
        # An age names one of some numbered files, and a row of a sound names its own.
        if len(known) * 2 <= len(values):
            return
        looked = known.iloc[:: max(1, len(known) // LOOKED_AT)]
        files = [files[0] for value in looked if (files := self._others.get(PurePosixPath(value).name))]
        if len(files) < NEARLY_ALL * len(looked) or {Path(file).suffix for file in files} & {".csv", ".parquet"}:
            return
        yield f"{name!r} names files that no draft reads, such as {files[0]}: {AS_ARRAYS}"

    def place_of(
        self, name: str, values: pd.Series, claimed: Collection[str]
    ) -> tuple[Place | None, str | Problem]:  # fmt: skip
        """Where the files of a column lie, None if it is no column of files; and what is to be told of that.

        `claimed` are files that other columns name by their whole paths.
        """
        known, whole = values.dropna().drop_duplicates().astype("str"), is_whole(values)
        if known.empty or (not whole and known.str.len().max() > MOST_LETTERS):
            return None, ""
        looked = known.iloc[:: max(1, len(known) // LOOKED_AT)]
        counts = Counter[Place]()
        for value in looked:
            counts.update({place for place in self._places(name, value) if whole or place.file(value) not in claimed})
        most = max(counts.values(), default=0)
        best = sorted(place for place, count in counts.items() if count == most)
        if most * 2 <= len(looked):
            return None, self._told(name, known, most, len(looked)) if whole else ""
        if not whole and not self._are_meant(best[0], known, len(values)):
            return None, ""
        if len(best) > 1:
            fix = f"write the whole path into {name!r}, or move the table away from files that it does not name"
            several = f"its values name files in several places: {' and '.join(map(str, best[:3]))}"
            return None, Problem(f"column {name!r}", several, fix, str(self._folder))
        there = sum((self._folder / best[0].file(value)).is_file() for value in known) / len(known)
        if not whole and there < NEARLY_ALL:
            return None, f"{there:.0%} of the values of {name!r} name files ({best[0]}): too few for it to be meant"
        if empty := int(values.isna().sum()):
            told = f"names files, and none in {counted(empty, 'row')}"
            if empty <= (1 - NEARLY_ALL) * len(values):
                return None, Problem(f"column {name!r}", told, "remove these rows, or name a file in each")
            return None, f"{name!r} {told}: left out; remove these rows to have it read"
        return best[0], ""

    def _are_meant(self, place: Place, known: pd.Series, rows: int) -> bool:
        """Whether what is left of names is: small numbers, such as ages, are names of some numbered files, too."""
        files = [file for named in (self._found or {}).values() for file in named]
        of_place = {
            file for file in files
            if file.startswith(place.before) and file.endswith(place.behind) and "/" not in file[len(place.before) :]
        }  # fmt: skip
        return len(known) * 2 > rows or len(known) >= NEARLY_ALL * len(of_place)

    def _told(self, name: str, known: pd.Series, found: int, looked: int) -> str:
        value = str(known.iloc[0])
        start = f"{name!r} names files, such as {value!r}, and none is read: "
        if value.startswith(f"{self._folder}/"):
            return f"{start}write them below the table's folder, as {os.path.relpath(value, self._folder)!r}"
        return f"{start}of {looked} looked at {found} lie below {self._folder}, where such paths begin"

    def _places(self, source: str, value: str) -> Iterator[Place]:
        if not is_inside(value):
            return
        if (self._folder / value).is_file():
            yield Place(source, "", "")
            return
        if self._found is None:
            self._found, self._others = _by_name(self._folder)
        for file in self._found.get(PurePosixPath(value).name, ()):
            behind = "" if file.endswith(value) else PurePosixPath(file).suffix
            before = file.removesuffix(f"{value}{behind}")
            if before + value + behind == file and (not before or before.endswith("/")):
                yield Place(source, before, behind)


def is_whole(values: pd.Series) -> bool:
    """Whether the values are names with what stands behind the dot."""
    known = values.dropna().head(LOOKED_AT).astype("str")
    return bool(len(known)) and bool(known.str.contains(_WHOLE_NAME).all())


def is_inside(value: str) -> bool:
    """Whether it is a plain path below a folder: no backslash, nothing absolute, no part that is empty, . or .. ."""
    return "\\" not in value and "\0" not in value and not {"", ".", ".."} & set(value.split("/"))


def _by_name(folder: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Pictures and texts, and other files; nothing where there is too much to be looked at."""
    files, others, count, folders_seen = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list), 0, 0
    for parent, folders, names in os.walk(folder):
        depth = len(Path(parent).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX"))) * (depth < DEEPEST)
        count, folders_seen = count + len(names), folders_seen + 1
        if count > MOST_FILES or folders_seen > MOST_FOLDERS:
            return {}, {}
        for name in names:
            stem, suffix = os.path.splitext(name)
            if name.startswith("."):
                continue
            file = Path(parent, name).relative_to(folder).as_posix()
            for key in {name, stem}:
                (files if suffix.lower() in (*PICTURES, *TEXTS) else others)[key].append(file)
    return files, others


def _opened(path: Path, place: Place, values: pd.Series) -> tuple[FoundFiles | None, list[Problem]]:
    """The files of a column with what they hold; None and what is wrong with them."""
    where, folder = f"column {place.source!r}", path.parent
    files = [place.file(value) for value in values.astype("str").drop_duplicates()]
    inside: dict[str, bool] = {}

    def is_there(file: str) -> bool:
        whole = folder / file
        parent = os.path.dirname(file)
        if parent not in inside:
            inside[parent] = (folder / parent).resolve().is_relative_to(folder.resolve())
        own = not whole.is_symlink() or whole.resolve().is_relative_to(folder.resolve())
        return is_inside(file) and inside[parent] and own and whole.is_file()

    missing = [file for file in files if not is_there(file)]
    if missing:
        problem = f"{len(missing):,} of the {len(files):,} files that it names are missing: {shown(missing)}"
        return None, [Problem(where, problem, f"put them below {folder}, or remove these rows", str(folder))]
    suffixes = {os.path.splitext(file)[1].lower() for file in files}
    if not (suffixes <= set(PICTURES) or suffixes <= set(TEXTS)):
        return None, [_not_drafted(place.source, suffixes)]
    found = Folder("texts" if suffixes <= set(TEXTS) else "pictures", tuple(map(PurePosixPath, files)))
    contents, problems = read_contents(folder, found)
    return (None, problems) if contents is None else (FoundFiles(folder, found, contents), [])


def _not_drafted(name: str, suffixes: Collection[str]) -> Problem:
    """What to do about files of a kind that `new` does not draft, or of several kinds."""
    where, named = f"column {name!r}", ", ".join(sorted(suffix or "without an ending" for suffix in suffixes))
    if suffixes == {".npy"}:
        fix = (
            f"draft the table without {name!r}, then add the arrays by hand, as a column with file: array: "
            'docs/how-to/files.md has an example under "Arrays beside a table"'
        )
        return Problem(
            where, "names arrays (.npy), which a contract may hold and `trainworthy new` does not draft", fix
        )
    if len(suffixes) == 1:
        fix = f"leave out {name!r}, or make pictures, texts or .npy arrays of them: docs/how-to/files.md"
        return Problem(where, f"names files that no dataset reads: {named}", fix)
    return Problem(where, f"names files of several kinds: {named}", "name pictures alone, or texts alone")


def file_observations(files: TableFiles, group: str | None) -> Iterator[str]:
    """What a person should know of the files, a line each."""
    for column in files.columns:
        noun, contents, source = column.found.folder.noun, column.found.contents, column.place.source
        names = [str(file) for file in column.found.folder.files]
        place = str(column.place) if column.place[1:] != ("", "") else f"such as {names[0]}"
        yield f"{source!r} names {len(names):,} {noun}s, {place}"
        if column.kind == "picture":
            yield column.found.sizes_text(files.size)
        if column.repeats:
            yield f"several rows name one {noun}: its name stays as {source!r}, the {noun} is {column.name!r}"
        if contents.repeated:
            yield f"{contents.repeated:,} {noun}s of {source!r} repeat another one byte for byte: remove them"
    if files.columns and group is None:
        first = files.columns[0].found
        yield (
            f"not seen: whether several {first.folder.noun}s are of one {first.things}. Those of one must lie in one "
            "split, or the figures are too good: --group COLUMN"
        )
    yield from files.notes
