"""What is connected to what: rows, time, gradients, labels, inputs, outputs, modes; by gradients and changed values.

The looks lie by subject in dependence.py, causal.py, gradients.py, true_gradient.py, reach.py, logits.py and
modes.py.
"""

from __future__ import annotations

from typing import Any

from trainworthy.lifecycle.engine.preflight.wiring.causal import causal
from trainworthy.lifecycle.engine.preflight.wiring.dependence import rows_apart
from trainworthy.lifecycle.engine.preflight.wiring.gradients import frozen, gradients
from trainworthy.lifecycle.engine.preflight.wiring.logits import logits
from trainworthy.lifecycle.engine.preflight.wiring.modes import evaluation_changes_nothing, evaluation_repeats, modes
from trainworthy.lifecycle.engine.preflight.wiring.padding import padding
from trainworthy.lifecycle.engine.preflight.wiring.predictions import predictions
from trainworthy.lifecycle.engine.preflight.wiring.reach import uses_inputs, uses_labels
from trainworthy.lifecycle.engine.preflight.wiring.true_gradient import gradient_is_slope
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check

CHECKS: tuple[Check[Any], ...] = (
    check_of("wiring.gradients", gradients),
    check_of("wiring.gradient_is_slope", gradient_is_slope),
    check_of("wiring.frozen", frozen),
    check_of("wiring.uses_labels", uses_labels),
    check_of("wiring.uses_inputs", uses_inputs),
    check_of("wiring.rows_apart", rows_apart),
    check_of("wiring.causal", causal),
    check_of("wiring.padding", padding),
    check_of("wiring.logits", logits),
    check_of("wiring.predictions", predictions),
    check_of("wiring.modes", modes),
    check_of("wiring.evaluation_repeats", evaluation_repeats),
    check_of("wiring.evaluation_changes_nothing", evaluation_changes_nothing),
)  # fmt: skip
