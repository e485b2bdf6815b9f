"""Which files with slow tests are run for a commit: in CI a third, by the commit's hash."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest


def in_turn(paths: Iterable[Path], turn: str) -> set[Path]:
    """The files whose turn it is: K of N, by name."""
    asked = re.fullmatch(r"(\d+)/(\d+)", turn)
    whose, of = map(int, asked.groups()) if asked else (0, 0)
    if not 1 <= whose <= of:
        raise pytest.UsageError(f"--turn {turn}: K/N with K from 1 to N is needed. Fix: --turn 1/3")
    return set(sorted(set(paths))[whose - 1 :: of])
