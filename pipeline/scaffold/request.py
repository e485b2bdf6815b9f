"""What is asked of `trainworthy new`, and what is wrong with the names in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.files.versions import read_versions
from trainworthy.lifecycle.spec.names import NAME_PATTERN
from trainworthy.lifecycle.spec.task import KindName
from trainworthy.lifecycle.spec.use_case import OWNER_PATTERN
from trainworthy.pipeline.scaffold.folder import TEXTS
from trainworthy.pipeline.scaffold.source import SUFFIXES
from trainworthy.resources.settings import Settings


@dataclass(frozen=True)
class Request:
    """The arguments. Without `data`, example rows are made, and `target`, `time` and `keys` are theirs.

    `split` is group, stratified or hash, for rows that time does not split; `quantiles` is their list as it is written.
    """

    name: str
    data: Path | None
    target: str | None
    time: str | None
    positive: str | None
    keys: tuple[str, ...]
    owner: str | None
    group: str | None = None
    split: str | None = None
    encoding: str | None = None
    separator: str | None = None
    nulls: tuple[str, ...] = ()
    time_format: str | None = None
    kind: KindName | None = None
    quantiles: str | None = None

    @property
    def source(self) -> str:
        """The folder of the parts that the dataset is built from, relative to the project."""
        return f"data/{self.name}_source"

    @property
    def is_named(self) -> bool:
        """False if the name is none: no file may be made with it."""
        return re.fullmatch(NAME_PATTERN, self.name) is not None


def request_problems(request: Request, settings: Settings, stages: Collection[str]) -> Iterator[Problem]:
    """A name that is no name or is taken, an owner that is none, and arguments that are missing or too many.

    `stages` are the names of the project's stages in dvc.yaml.
    """
    if not request.is_named:
        fix = "a lower-case letter, then lower-case letters, digits and _, 41 in all at most"
        yield Problem("name", "can't be the name of a folder, a job and a dataset", fix, request.name)
    else:
        yield from _taken(request, settings, stages)
    if request.owner is not None and not re.fullmatch(OWNER_PATTERN, request.owner):
        yield Problem("--owner", "is no owner", "write team:name, or an e-mail address", request.owner)
    given = {"--target": request.target, "--time": request.time}
    if request.data is None:
        given |= {"--positive": request.positive, "--key": request.keys or None, "--group": request.group}
        given |= {"--kind": request.kind, "--quantiles": request.quantiles}
        for option in (option for option, value in given.items() if value is not None):
            yield Problem(option, "names something in a file, and there is no file", "add --data FILE", given[option])
        return
    if request.data.is_dir():
        yield from _of_tables(request)
    elif request.target is None and request.data.suffix.lower() not in TEXTS:
        yield Problem("--target", "is missing", "write --target COLUMN")
    if request.time_format is not None and request.time is None:
        yield Problem("--time-format", "is the form of a column that is not named", "write --time COLUMN too")
    if request.time is not None and request.split is not None:
        fix = "leave out --time, or leave out --split: with times, rows are split by time"
        yield Problem("--split", "and --time exclude each other", fix, request.split)
    if request.time is not None and request.group is not None:
        fix = (
            "leave out --time to split by whole groups alone; or leave out --group, and write by: time_and_group into "
            "use_case.yaml where groups have to be new as well: docs/how-to/splits.md"
        )
        yield Problem("--group", "and --time exclude each other", fix, request.group)
    if request.split == "group" and request.group is None:
        written = "--group prefix or --group folder" if request.data.is_dir() else "--group COLUMN"
        yield Problem("--group", "is missing", f"write {written}: whole groups lie in one split")
    if request.split not in (None, "group") and request.group is not None:
        yield Problem("--group", f"has no effect with --split {request.split}", "write --split group", request.group)


def _of_tables(request: Request) -> Iterator[Problem]:
    """Options that mean nothing for a folder of files."""
    given = {
        "--target": request.target, "--time": request.time, "--key": request.keys or None,
        "--quantiles": request.quantiles, "--encoding": request.encoding, "--separator": request.separator,
        "--null": request.nulls or None,
    }  # fmt: skip
    fix = "leave it out: in a folder the label is the folder's name or the mask, and the key is the file's name"
    if request.data is not None and (
        tables := sorted(path for path in request.data.glob("*") if path.suffix in SUFFIXES)
    ):
        fix = f"name the table: --data {shlex.quote(str(tables[0]))}; the files that its columns name are read with it"
    for option, value in given.items():
        if value is not None:
            yield Problem(option, "is for tables, and --data is a folder", fix, value)
    if request.kind in ("regression", "multilabel"):
        problem = "a folder gives each file one class, or each pixel"
        yield Problem("--kind", problem, "leave it out, or give a table", request.kind)


def _taken(request: Request, settings: Settings, stages: Collection[str]) -> Iterator[Problem]:
    """What already has the name: a use case, else a dataset of the project, else files. Of a use case its other files
    say nothing more."""
    name, project = request.name, settings.use_cases[0].parent
    fix = "take another name"
    for folder in settings.use_cases:
        if (folder / name).exists():
            yield Problem("name", "there is a folder of this name already", fix, str(folder / name))
            return
    if name in stages or name in read_versions(project):
        yield Problem("name", "there is a dataset of this name already, in dvc.yaml or data/versions.yaml", fix, name)
        return
    for path in (f"data/{name}", f"data/{name}.yaml", request.source):
        if (project / path).exists():
            yield Problem("name", "a file of this name is in the way", f"{fix}, or move it away", path)
