"""Names of a use case's own checks, read from model.py as text: neither torch nor the catalogue is needed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PREFIX = "check_"


def may_have_own(model: Path) -> bool:
    """Whether a file may define or import such a check in any way: its text names one, or imports all of a module."""
    text = model.read_text(encoding="utf-8", errors="replace") if model.is_file() else ""
    return re.search(rf"\b{PREFIX}\w", text) is not None or "import *" in text


def own_names_of(model: Path) -> tuple[str, ...]:
    """Those of a file; none if it is not there."""
    return own_names(model.read_text(encoding="utf-8", errors="replace")) if model.is_file() else ()


def own_id(name: str) -> str:
    """check_shapes → own.shapes"""
    return f"own.{name.removeprefix(PREFIX)}"


def own_names(source: str) -> tuple[str, ...]:
    """Names of the functions that a model.py's text defines or imports as checks; none if it is no Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return ()
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    imported = [a.asname or a.name for node in body if isinstance(node, ast.ImportFrom) for a in node.names]
    return tuple(name for name in (*defined, *imported) if name.startswith(PREFIX))
