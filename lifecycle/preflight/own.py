"""A use case's own checks: the functions of model.py that are named check_<something>."""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check

CHECKS: tuple[Check[Any], ...] = ()
