"""`lifecycle`, the name of trainworthy.lifecycle before there was trainworthy.

A training script, the copy of one in an incident and a model that was registered may import by it. They are given the
modules of trainworthy.lifecycle themselves: none is loaded twice. Another package of that name comes first, and with it
the copy of lifecycle that MLflow keeps with a model.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType

EARLIER, NOW = "lifecycle", "trainworthy.lifecycle"


class EarlierName:
    """Finds and loads `lifecycle` and all below it; for sys.meta_path, before what looks into folders."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec whose module will be that of trainworthy; None of another package's."""
        return ModuleSpec(name, cls()) if _is_ours(name) else None

    def create_module(self, spec: ModuleSpec) -> None:
        """As usual; exec_module puts another in its place."""

    def exec_module(self, module: ModuleType) -> None:
        """Importing goes on with what lies in sys.modules after this."""
        sys.modules[module.__name__] = importlib.import_module(_now(module.__name__))

    def get_code(self, name: str) -> CodeType:
        """What `python -m` asks for. Raises ImportError with the command that runs."""
        raise ImportError(f"{name} is {_now(name)} now\n  fix: python -m {_now(name)}")


def install() -> None:
    """From here on the earlier name is known, by this trainworthy where a process had another before."""
    others = [finder for finder in sys.meta_path if getattr(finder, "__module__", "") != __name__]
    sys.meta_path[:] = [EarlierName, *others]


def _is_ours(name: str) -> bool:
    if name.startswith(f"{EARLIER}."):
        return sys.modules.get(EARLIER) is sys.modules.get(NOW, EARLIER)
    return name == EARLIER and _is_free()


def _is_free() -> bool:
    """Whether no package of that name would be found, but for the folder that trainworthy.lifecycle is a link to."""
    found = PathFinder.find_spec(EARLIER)
    if found is None or found.origin is None:
        return True
    own = Path(__file__).parent / EARLIER / "__init__.py"
    return os.path.realpath(found.origin) == os.path.realpath(own)


def _now(name: str) -> str:
    return f"trainworthy.{name}"
