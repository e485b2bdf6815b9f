"""What is declared, held against network, optimizers and device; gates/host.py asks what needs no worker."""

from __future__ import annotations

from trainworthy.lifecycle.engine.preflight.configuration.activation_checkpointing import recomputes_the_same
from trainworthy.lifecycle.engine.preflight.configuration.compilation import compiles
from trainworthy.lifecycle.engine.preflight.configuration.disk_space import checkpoints_have_room
from trainworthy.lifecycle.engine.preflight.configuration.focal import loss_is_a_log_likelihood
from trainworthy.lifecycle.engine.preflight.configuration.kernels import runs_in_declared_precision
from trainworthy.lifecycle.engine.preflight.configuration.parameters import (
    optimizers_hold_the_parameters,
    precision_fits,
)
from trainworthy.lifecycle.engine.preflight.configuration.processes import processes_train_as_one
from trainworthy.lifecycle.engine.preflight.configuration.schedule import schedule_fits
from trainworthy.lifecycle.engine.preflight.sample import Sample
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check
from trainworthy.lifecycle.protocol.jobs import PreflightJob

# Before one batch and all else that runs the network: it would fail for the same cause.
KERNELS: Check[Subject] = check_of("configuration.kernels", runs_in_declared_precision)

CHECKS: tuple[Check[Subject], ...] = (
    check_of("configuration.learning_rate_schedule", schedule_fits),
    check_of("configuration.optimizer_parameters", optimizers_hold_the_parameters),
    check_of("configuration.precision", precision_fits),
    check_of("configuration.activation_checkpointing", recomputes_the_same),
    check_of("configuration.focal_loss", loss_is_a_log_likelihood),
    check_of("configuration.compile", compiles),
    check_of("configuration.processes", processes_train_as_one),
)

# These see the job and its sample.
JOB_CHECKS: tuple[Check[tuple[PreflightJob, Sample]], ...] = (
    check_of("configuration.checkpoint_space", checkpoints_have_room),
)
