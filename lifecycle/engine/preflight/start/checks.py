"""The untrained network: its weights, its first loss, its activations, its reductions."""

from __future__ import annotations

from typing import Any

from trainworthy.lifecycle.engine.preflight.start.activations import activations
from trainworthy.lifecycle.engine.preflight.start.finite_weights import weights_are_finite
from trainworthy.lifecycle.engine.preflight.start.initial_loss import initial_loss
from trainworthy.lifecycle.engine.preflight.start.reductions import micro_batches, reduction
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check

# Before all that runs the network: what follows from a NaN in it tells nothing.
FINITE_WEIGHTS: Check[Subject] = check_of("start.finite_weights", weights_are_finite)

CHECKS: tuple[Check[Any], ...] = (
    check_of("start.initial_loss", initial_loss),
    check_of("start.activations", activations),
    check_of("start.reduction", reduction),
    check_of("start.micro_batches", micro_batches),
)
