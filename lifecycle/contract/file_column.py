"""Columns whose values are files: `file` says of which kind, `size` of which size, in a column's customProperties.

A value is the file's path below the dataset's folder, with `/`, and begins with `files/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from trainworthy.lifecycle.contract.odcs import where
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.files.kind import FileKind

FILE_ROLES = ("feature", "target", "other")
_MOST_AXES = 8


def file_problems(item: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with a column's `file` and `size`; nothing if it has neither."""
    name, kind, size = item["name"], values.get("file"), values.get("size")
    if "file" not in values:
        if "size" in values:
            yield Problem(where(name, "size"), "is the size of a file, and the column names none", _add_file(), size)
        return
    known = get_args(FileKind)
    if kind not in known:
        fix = did_you_mean(kind, known) if isinstance(kind, str) else f"write one of {', '.join(known)}"
        yield Problem(where(name, "file"), "unknown kind of file", fix, kind)
        return
    if item.get("logicalType") != "string":
        fix = "write logicalType: string; the column holds each file's path"
        yield Problem(where(name, "file"), "a file is named by a text", fix, item.get("logicalType"))
    if values.get("role", "feature") not in FILE_ROLES:
        yield Problem(
            where(name, "role"), "a file can't have this role", "write feature, target or other", values["role"]
        )
    if "allowedDrift" in values:
        fix = "remove it: drift looks at the values of columns, and paths are none"
        yield Problem(where(name, "allowedDrift"), "can't be judged of a file", fix, values["allowedDrift"])
    if "size" in values:
        yield from _size_problems(name, str(kind), size)


def _size_problems(name: str, kind: str, size: Any) -> Iterator[Problem]:
    place = where(name, "size")
    if kind == "text":
        yield Problem(place, "a text has no size", "remove it", size)
        return
    whole = isinstance(size, list) and size and all(type(side) is int and side > 0 for side in size)
    axes = (1, _MOST_AXES) if kind == "array" else (2, 2)
    if not whole or not axes[0] <= len(size) <= axes[1]:
        form = "the array's shape, for example [128, 3]" if kind == "array" else "[height, width] in pixels"
        yield Problem(place, "is no size", f"write {form}, whole numbers above 0", size)


def _add_file() -> str:
    return f"add {{property: file, value: {' | '.join(get_args(FileKind))}}}, or remove size"
