"""data/contents.jsonl: which files each published version holds, by the hash of what they say. One line a version.

A line needs no trust: the hashes of its files combine to the content hash of an entry in data/versions.yaml, or the
line is nobody's. So two versions are compared file by file without fetching either. Versions that were published
before there were lines lack theirs; the next publish adds them. `times` is told and never judged by: the first and
last value of each column of dates or times, as Parquet's own statistics have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import ContentHash, FileContent, combined, parquet_files
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.state import write_atomic

Times = dict[str, tuple[str, str]]


class PublishedContent(Frozen):
    """The files of a published version, and the first and last value of its columns of dates and times (ISO 8601)."""

    dataset: str
    version: str
    files: tuple[FileContent, ...] = Field(min_length=1)
    times: Times = Field(default_factory=dict)

    @property
    def content(self) -> ContentHash:
        """The logical content that the files combine to."""
        return combined(self.files)


def contents_path(project: Path) -> Path:
    """Where a project keeps the files of its published versions."""
    return project / "data" / "contents.jsonl"


def read_contents(project: Path) -> dict[str, PublishedContent]:
    """Every known list by the content hash that it combines to; {} if none is written yet. Raises DatasetError."""
    path = contents_path(project)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    contents = (_content(number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return {content.content.sha256: content for content in contents}


def add_contents(project: Path, new: Mapping[str, PublishedContent]) -> None:
    """Write lines for the content hashes that have none yet, all at once."""
    known = read_contents(project)
    missing = [content for sha256, content in new.items() if sha256 not in known]
    if not missing:
        return
    lines = [_line(content) for content in (*known.values(), *missing)]
    path = contents_path(project)
    write_atomic(path, "".join(lines).encode())
    path.chmod(0o644)


def published_files(dataset: str, version: str, content: ContentHash, folder: Path) -> PublishedContent:
    """The line of a version whose files lie in `folder`."""
    return PublishedContent(dataset=dataset, version=version, files=content.files, times=times_of(folder))


def times_of(folder: Path) -> Times:
    """First and last value of each column of dates or times, by the files' statistics; no row is read.

    A column is left out where a file has no statistics for it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    spans: dict[str, tuple[Any, Any]] = {}
    without: set[str] = set()
    for path in parquet_files(folder).values():
        file = pq.ParquetFile(path)
        kinds = {field.name: field.type for field in file.schema_arrow}
        for place, name in enumerate(file.schema.names):
            kind = kinds.get(name)
            if kind is None or not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
                continue
            span = _span(file.metadata, place)
            if span is None:
                without.add(name)
            elif span:
                first, last = spans.get(name, span)
                spans[name] = (min(first, span[0]), max(last, span[1]))
    return {name: (first.isoformat(), last.isoformat()) for name, (first, last) in spans.items() if name not in without}


def _span(metadata: Any, column: int) -> tuple[Any, Any] | tuple[()] | None:
    """Least and largest value in a file's row groups; () if it is all null, None if a row group does not say."""
    least, largest = [], []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            least.append(statistics.min)
            largest.append(statistics.max)
        elif statistics is None or statistics.null_count != metadata.row_group(group).num_rows:
            return None
    return (min(least), max(largest)) if least else ()


def _content(number: int, line: str) -> PublishedContent:
    try:
        return PublishedContent.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        fix = "restore the file's last commit, or remove the line: publishing writes it again"
        raise DatasetError(f"line {number} of data/contents.jsonl can't be used: {problem}", fix=fix) from None


def _line(content: PublishedContent) -> str:
    return json.dumps(content.model_dump(mode="json"), separators=(",", ":"), allow_nan=False) + "\n"
