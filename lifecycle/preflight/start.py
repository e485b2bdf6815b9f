"""The untrained network: its first loss, its activations, its reductions."""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check

CHECKS: tuple[Check[Any], ...] = ()
