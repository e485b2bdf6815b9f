"""What enters the network: finite, scaled, shuffled, alike in training and validation; augmentation."""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check

CHECKS: tuple[Check[Any], ...] = ()
