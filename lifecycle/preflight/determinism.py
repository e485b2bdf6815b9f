"""The same seed twice, and an interrupted run against an uninterrupted one."""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check

CHECKS: tuple[Check[Any], ...] = ()
