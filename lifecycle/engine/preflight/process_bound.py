"""What in a use case's code may come out otherwise in another process: read, not run.

Numbers, tables and seeded generators do not. A set's order and hash() hang on the process, and so do clocks, names of
the machine, unseeded generators and the order of a folder; of a package that is not known to be plain nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.identity import python_sources

# Of the standard library, and others' packages: nothing in them but what is named below differs by the process.
PLAIN = frozenset({
    "__future__", "abc", "bisect", "collections", "concurrent", "dataclasses", "enum", "functools", "hashlib",
    "itertools", "json", "math", "operator", "pathlib", "re", "statistics", "string", "types", "typing",
    "typing_extensions", "unicodedata", "warnings", "zlib", "torch", "numpy", "pandas", "scipy", "PIL", "trainworthy",
    "lifecycle",
})  # fmt: skip
BUILTINS = frozenset({"hash", "set", "frozenset", "id", "__import__", "eval", "exec"})
ATTRIBUTES = frozenset({
    "default_rng", "RandomState", "seed", "now", "today", "utcnow", "time", "glob", "rglob", "iterdir",
    "walk", "home", "cwd",
})  # fmt: skip


def process_bound(folder: Path) -> tuple[str, ...]:
    """What makes it worth asking in model.py and the modules beside it that it imports, each as `model.py: set`."""
    found, waiting, seen, beside = list[str](), ["model"], set[str](), _modules(folder)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for path in beside.get(name, ()):
            tree = ast.parse(path.read_bytes())
            imported = list(_imported(tree))
            waiting += [part for parts in imported for part in parts]
            foreign = {parts[0] for parts in imported if parts and not set(parts) & beside.keys()} - PLAIN
            found += [f"{path.name}: {what}" for what in sorted({*foreign, *_used(tree)})]
    return tuple(found)


def _modules(folder: Path) -> dict[str, list[Path]]:
    """The folder's modules by their own name, a package's by that of its folder: several may have one."""
    modules: dict[str, list[Path]] = {}
    for path in python_sources(folder).values():
        modules.setdefault(path.parent.name if path.stem == "__init__" else path.stem, []).append(path)
    return modules


def _imported(tree: ast.AST) -> Iterator[list[str]]:
    """The parts of each imported name; `from . import layers` has layers alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ([*(node.module or "").split("."), alias.name] for alias in node.names if node.module)
            yield from ([alias.name] for alias in node.names if not node.module)


def _used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.SetComp):
            yield "a set"
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            yield node.attr
