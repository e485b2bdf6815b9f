"""The untrained network: its first loss, its activations, its reductions."""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check
from lifecycle.preflight.start.activations import activations
from lifecycle.preflight.start.initial_loss import initial_loss
from lifecycle.preflight.start.reductions import micro_batches, reduction

CHECKS: tuple[Check[Any], ...] = (
    Check(
        "start.initial_loss",
        question="Does the untrained network start near what a constant output gets?",
        symptom="the loss falls steeply at first and then goes on as if nothing had been won, or starts too good",
        cause="a last layer with large weights, inputs that are not scaled, or a loss that does not fit the outputs",
        fix="scale the inputs, start the last layer near zero, give the loss what it takes: logits or probabilities",
        look=initial_loss,
    ),
    Check(
        "start.activations",
        question="Do the untrained network's layers pass on what tells rows apart, at a sensible scale?",
        symptom="the loss stays where it starts, or is not a number after a few updates",
        cause="initial weights that do not fit the depth, without normalisation or skip connections",
        fix="use an initialisation for the activation function (He for ReLU), a normalisation, or skip connections",
        look=activations,
    ),
    Check(
        "start.reduction",
        question="Is a row's loss the same, whichever rows are beside it?",
        symptom="another batch size needs another learning rate, and losses can't be compared",
        cause="a sum or a mean over the batch inside loss_fn",
        fix='give one loss a row (reduction="none"); if rows belong together, declare preflight: {rows: together}',
        look=reduction,
    ),
    Check(
        "start.micro_batches",
        question="Do k parts of a batch give the gradient of the whole?",
        symptom="training with accumulation ends worse than with the large batch that it stands for",
        cause="a statistic of the batch in the network or the loss, or gradients that are changed between the parts",
        fix="let a row's output and loss depend on that row only, and leave zero_grad to the loop",
        look=micro_batches,
    ),
)
