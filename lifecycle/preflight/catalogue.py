"""Every check of the battery, in the order in which they run: cheap ones first.

Use cases add their own (own.py), which only the worker knows.
"""

from __future__ import annotations

from typing import Any

from lifecycle.preflight import determinism, learning_rate
from lifecycle.preflight.check import Check
from lifecycle.preflight.configuration import checks as configuration
from lifecycle.preflight.inputs import checks as inputs
from lifecycle.preflight.one_batch import checks as one_batch
from lifecycle.preflight.overfit import checks as overfit
from lifecycle.preflight.start import checks as start
from lifecycle.preflight.throughput import checks as throughput
from lifecycle.preflight.wiring import checks as wiring
from lifecycle.trainers import checks as trainer

HOST_CHECKS, AFTER_CHECKS = configuration.HOST_CHECKS, configuration.AFTER_CHECKS
# Those of SUBJECT_CHECKS see the subject alone; the others in the worker see the job and its sample.
SUBJECT_CHECKS: tuple[Check[Any], ...] = (
    *configuration.CHECKS, *inputs.CHECKS, *wiring.CHECKS, *start.CHECKS, *determinism.CHECKS, *learning_rate.CHECKS,
    *throughput.CHECKS,
)  # fmt: skip
WORKER_CHECKS: tuple[Check[Any], ...] = (
    configuration.KERNELS, *one_batch.CHECKS, *configuration.JOB_CHECKS, *SUBJECT_CHECKS, *overfit.CHECKS,
)  # fmt: skip
# Only where a use case trains by a script of its own; they see its trial.
TRAINER_CHECKS = trainer.CHECKS
CATALOGUE: tuple[Check[Any], ...] = (*HOST_CHECKS, *WORKER_CHECKS, *TRAINER_CHECKS, *AFTER_CHECKS)
