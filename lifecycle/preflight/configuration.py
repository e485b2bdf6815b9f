"""What is declared, before anything is built: the schedule walked, the sums, room and reach of the stores."""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check

CHECKS: tuple[Check[Any], ...] = ()
