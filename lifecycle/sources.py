"""What a source or a table says, and the file that remembers it: one is parsed only where its bytes were not before.

Of a source its tokens count, comments and docstrings left out, and what it imports; of a table its values, but for
those that are words for people (TEXTS).
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.identity import canonical_json, sha256_file, sha256_json

# Values of a table that are words for people.
TEXTS = frozenset({"question", "symptom", "also", "cause", "fix", "fixes", "page"})
# What was kept by another reading than this file's is parsed anew.
_FORM = sha256_file(Path(__file__))
# Sources that are remembered; more are those of many earlier states.
_MOST_KEPT = 5000


@dataclass(frozen=True)
class Source:
    """A source file: the sha256 of its tokens and what it imports, `a.b.c` for `from a.b import c`."""

    sha256: str
    imports: tuple[str, ...]


class Sources:
    """Reads sources and tables, by what was kept of each where it has not changed since; `kept` is the file, if any."""

    def __init__(self, kept: Path | None) -> None:
        self._path, self._kept, self._new = kept, _read_kept(kept), False
        self._sources: dict[str, Source] = {}

    def __call__(self, path: Path, *, top_only: bool = False, package: str = "") -> Source:
        """The source at a path; with `top_only` without what it imports in functions."""
        text = path.read_bytes()
        key = f"source {hashlib.sha256(text).hexdigest()} {package}{'?' if top_only else ''}"
        return self._known(key, lambda: read_source(text, top_only=top_only, package=package))

    def table(self, path: Path) -> str:
        """Hash of the values of the table at a path that decide."""
        text = path.read_bytes()
        return self._known(f"table {hashlib.sha256(text).hexdigest()}", lambda: _read_table(text)).sha256

    def _known(self, key: str, read: Callable[[], Source]) -> Source:
        if key not in self._sources:
            if (known := self._kept.get(key)) is None:
                source = read()
                known = self._kept[key] = [source.sha256, list(source.imports)]
                self._new = True
            self._sources[key] = Source(known[0], tuple(known[1]))
        return self._sources[key]

    def keep(self) -> None:
        """Write what was read, where that is possible: without it the next process parses again."""
        if self._path is None or not self._new:
            return
        if len(self._kept) > _MOST_KEPT:
            for key in self._kept.keys() - self._sources.keys():
                del self._kept[key]
        text = canonical_json({"form": _FORM, "sources": self._kept})
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            temporary.write_bytes(text)
            temporary.replace(self._path)
        self._new = False


_in_memory: dict[Path | None, dict[str, list[Any]]] = {}


def _read_kept(path: Path | None) -> dict[str, list[Any]]:
    if path not in _in_memory:
        _in_memory[path] = {}
        if path is not None:
            with suppress(OSError, ValueError, TypeError, KeyError):
                document = json.loads(path.read_bytes())
                if document["form"] == _FORM:
                    _in_memory[path] = dict(document["sources"])
    return _in_memory[path]


def read_source(text: bytes, *, top_only: bool = False, package: str = "") -> Source:
    """Tokens and imports of a source; what cannot be parsed counts by its bytes and imports nothing."""
    try:
        tree = ast.parse(text)
        docstrings = {(node.lineno, node.col_offset) for node in _docstrings(tree)}
        digest, skipped = hashlib.sha256(), (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)
        in_docstring = False
        for token in tokenize.tokenize(io.BytesIO(text).readline):
            if token.type in skipped or (in_docstring and token.type in (tokenize.STRING, tokenize.NEWLINE)):
                in_docstring = in_docstring and token.type != tokenize.NEWLINE
                continue
            in_docstring = token.type == tokenize.STRING and (token.start[0], token.start[1]) in docstrings
            if not in_docstring:
                # An indentation counts by being one, not by its width.
                string = "" if token.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE) else token.string
                digest.update(f"{token.type} {len(string)} {string}\n".encode())
    except (SyntaxError, ValueError, tokenize.TokenError):
        return Source(hashlib.sha256(text).hexdigest(), ())
    return Source(
        digest.hexdigest(), tuple(sorted({_name(imported) for imported in _imports(tree, top_only, package)} - {""}))
    )


def _name(imported: str) -> str:
    """The dotted name; of Python's own, and of a use case's own by a relative import, nothing."""
    first = imported.partition(".")[0]
    return "" if not first or first in sys.stdlib_module_names else imported


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            constant = first.value if isinstance(first, ast.Expr) else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                yield constant


def _imports(node: ast.AST, top_only: bool, package: str) -> Iterator[str]:
    """Dotted names that are imported below a node, those for type checkers left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = _base(child, package)
            yield from (f"{base}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and _for_types(child.test):
            for other in child.orelse:
                yield from _imports(ast.Module(body=[other], type_ignores=[]), top_only, package)
        elif not (top_only and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from _imports(child, top_only, package)


def _base(node: ast.ImportFrom, package: str) -> str:
    """The module of `from … import`; a relative one is a use case's own, where there is no package."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def _for_types(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _read_table(text: bytes) -> Source:
    return Source(sha256_json(_deciding(tomllib.loads(text.decode()))), ())


def _deciding(value: Any) -> Any:
    """A table's values without words for people."""
    if isinstance(value, dict):
        return {name: _deciding(inner) for name, inner in value.items() if name not in TEXTS}
    return [_deciding(inner) for inner in value] if isinstance(value, list) else value
