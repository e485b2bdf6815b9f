"""What looks for each check of gates/catalogue.toml that the worker tries, in the same order: cheap ones first.

Use cases add their own (own.py), which only the worker knows.
"""

from __future__ import annotations

from typing import Any

from trainworthy.lifecycle.engine.preflight import determinism, learning_rate, other_process
from trainworthy.lifecycle.engine.preflight.configuration import checks as configuration
from trainworthy.lifecycle.engine.preflight.inputs import checks as inputs
from trainworthy.lifecycle.engine.preflight.one_batch import checks as one_batch
from trainworthy.lifecycle.engine.preflight.overfit import checks as overfit
from trainworthy.lifecycle.engine.preflight.start import checks as start
from trainworthy.lifecycle.engine.preflight.throughput import checks as throughput
from trainworthy.lifecycle.engine.preflight.wiring import checks as wiring
from trainworthy.lifecycle.engine.trainers import checks as trainer
from trainworthy.lifecycle.gates.check import Check

# Those of SUBJECT_CHECKS see the subject alone; the others in the worker see the job and its sample.
SUBJECT_CHECKS: tuple[Check[Any], ...] = (
    *configuration.CHECKS, *inputs.CHECKS, *wiring.CHECKS, *start.CHECKS, *determinism.CHECKS, *learning_rate.CHECKS,
    *throughput.CHECKS,
)  # fmt: skip
WORKER_CHECKS: tuple[Check[Any], ...] = (
    start.FINITE_WEIGHTS, configuration.KERNELS, *one_batch.CHECKS, *other_process.CHECKS, *configuration.JOB_CHECKS,
    *SUBJECT_CHECKS, *overfit.CHECKS,
)  # fmt: skip
# Only where a use case trains by a script of its own; they see its trial.
TRAINER_CHECKS = trainer.CHECKS
