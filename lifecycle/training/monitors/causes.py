"""The likely cause of an alarm and what to do, by monitor."""

from __future__ import annotations

_ROWS = "look in these rows for values that are not finite or not scaled, then at the learning rate"
_CAUSES = {
    "non_finite_loss": (
        "a value of the batch that is not finite, a logarithm or a division at its limit, or weights that have grown "
        "too large",
        _ROWS,
    ),
    "non_finite_gradient": (
        "an operation whose derivative is infinite where its value is not: a root or a power at 0, a norm of zeros",
        f"{_ROWS}; add a small constant inside roots and norms",
    ),
    "non_finite_parameter": (
        "the optimizer made it from a finite gradient: a division by a second moment of 0, or a step that overflows",
        "look at build_optimizers: its epsilon, its learning rate, and what it divides by",
    ),
    "non_finite_activation": (
        "an operation at its limit whose output the loss does not use, or a mask of minus infinity",
        "if it is no mask, mend the operation: its value reaches the loss sooner or later",
    ),
    "outlier_batch": (
        "rows that are unlike all others: wrong labels, values in another unit, a damaged record",
        "look at these rows; training.monitors.outlier_batch: skip_batch leaves such a batch out",
    ),
    "loss_spike": (
        "a learning rate that is too high for where the weights are, or rows of another kind from here on",
        "lower the learning rate or clip_norm, or lengthen the warm-up; then look at these rows",
    ),
    "gradient_spike": (
        "a region where the loss is steep: a learning rate that is too high, or rows of another kind from here on",
        "lower the learning rate or clip_norm, or lengthen the warm-up; then look at these rows",
    ),
    "exploding_gradients": (
        "weights that grow from update to update: a learning rate above what the network bears, or a deep or recurrent "
        "path without normalisation",
        "lower the learning rate, add weight decay, or normalise between the named layers",
    ),
    "vanishing_gradients": (
        "units that saturate, or a path in which each layer makes the gradient smaller",
        "look at the activations behind the named parameters; use ReLU-like units, normalisation or skip connections",
    ),
    "hang": (
        "a call that waits for what never comes: a lock, another process, a network, a disk",
        "the stacks name the line where each thread is",
    ),
}


def cause_and_fix(monitor: str) -> tuple[str, str]:
    """Both in words."""
    return _CAUSES.get(monitor, ("", ""))
