"""Every check of the battery, in the order in which they run: cheap ones first.

Use cases add their own (own.py), which only the worker knows.
"""

from __future__ import annotations

from typing import Any

from lifecycle.preflight import (
    configuration,
    determinism,
    inputs,
    learning_rate,
    one_batch,
    overfit,
    start,
    throughput,
    wiring,
)
from lifecycle.preflight.check import Check

HOST_CHECKS, AFTER_CHECKS = configuration.HOST_CHECKS, configuration.AFTER_CHECKS
# Those of SUBJECT_CHECKS see the subject alone; the others in the worker see the job and its sample.
SUBJECT_CHECKS: tuple[Check[Any], ...] = (
    *configuration.CHECKS, *inputs.CHECKS, *wiring.CHECKS, *start.CHECKS, *determinism.CHECKS, *learning_rate.CHECKS,
    *throughput.CHECKS,
)  # fmt: skip
WORKER_CHECKS: tuple[Check[Any], ...] = (
    *one_batch.CHECKS, *configuration.JOB_CHECKS, *SUBJECT_CHECKS, *overfit.CHECKS,
)  # fmt: skip
CATALOGUE: tuple[Check[Any], ...] = (*HOST_CHECKS, *WORKER_CHECKS, *AFTER_CHECKS)
