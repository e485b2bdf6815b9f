"""Builds the dataset `docstrings`: what SciPy's functions say of themselves, cut into pieces of some 128 bytes.

The text is that of the installed SciPy (BSD licence), whose version the parameters name: another version is another
text. Files are read and not run. A piece ends at the end of a line, and so late that no more than `length` bytes are in
it; those shorter than a quarter of it are left out, as are longer lines and pieces that came before. `module` is the
file that a piece comes from: its functions resemble each other, so nothing of it is met again in another split.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

PACKAGES = ("stats", "signal", "optimize", "interpolate", "linalg", "spatial", "ndimage", "special")
# Of a file at most so many pieces, so that no module is a large part of a split.
MOST_OF_MODULE = 40


def build(out: Path, length: int, pieces: int, scipy: str) -> None:
    """One table of the first `pieces` pieces, a file's in turn with the other files'."""
    if version("scipy") != scipy:
        raise SystemExit(
            f"the text is that of scipy {scipy}, and {version('scipy')} is installed: pip install scipy=={scipy}"
        )
    spec = find_spec("scipy")
    assert spec is not None
    assert spec.origin is not None
    root, seen, rows = Path(spec.origin).parent, set[str](), []
    for file in sorted(file for package in PACKAGES for file in (root / package).glob("*.py")):
        taken = 0
        for function, piece in _pieces(file, length):
            if piece not in seen and taken < MOST_OF_MODULE:
                rows.append(
                    {"module": f"{file.parent.name}.{file.stem}", "function": function, "place": taken, "text": piece}
                )
                taken += 1
                seen.add(piece)
    table = pd.DataFrame(rows).sort_values(["place", "module"], kind="stable").head(pieces).reset_index(drop=True)
    out.mkdir(parents=True, exist_ok=True)
    table.drop(columns="place").assign(piece=table.index).to_parquet(out / "docstrings.parquet", index=False)


def _pieces(file: Path, length: int) -> Iterator[tuple[str, str]]:
    """Functions and pieces of their docstrings."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node, clean=False)):
            for piece in _cut(inspect.cleandoc(text), length):
                yield node.name, piece


def _cut(text: str, length: int) -> Iterator[str]:
    piece = ""
    for line in text.splitlines(keepends=True):
        if len(line.encode()) > length:
            continue
        if piece and len((piece + line).encode()) > length:
            if len(piece.strip().encode()) >= length // 4:
                yield piece.strip("\n")
            piece = ""
        piece += line
    if len(piece.strip().encode()) >= length // 4:
        yield piece.strip("\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--pieces", type=int, required=True)
    parser.add_argument("--scipy", required=True)
    arguments = parser.parse_args()
    build(arguments.out, arguments.length, arguments.pieces, arguments.scipy)
