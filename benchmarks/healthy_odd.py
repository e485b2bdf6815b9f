"""More healthy trainings that look odd; part of HEALTHY in healthy.py."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.setup import Setup

ODD: dict[str, Callable[[int], Setup]] = {}
