"""What is connected to what, by autograd."""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check

CHECKS: tuple[Check[Any], ...] = ()
