"""What is connected to what: rows, time, gradients, labels, inputs, outputs, modes; by gradients and changed values.

The looks lie by subject in dependence.py, causal.py, gradients.py, reach.py, logits.py and modes.py.
"""

from __future__ import annotations

from typing import Any

from lifecycle.preflight.check import Check
from lifecycle.preflight.wiring.causal import causal
from lifecycle.preflight.wiring.dependence import rows_apart
from lifecycle.preflight.wiring.gradients import frozen, gradients
from lifecycle.preflight.wiring.logits import logits
from lifecycle.preflight.wiring.modes import evaluation_changes_nothing, evaluation_repeats, modes
from lifecycle.preflight.wiring.padding import padding
from lifecycle.preflight.wiring.predictions import predictions
from lifecycle.preflight.wiring.reach import uses_inputs, uses_labels

CHECKS: tuple[Check[Any], ...] = (
    Check(
        "wiring.gradients",
        question="Does every trainable parameter get a gradient and move?",
        symptom="the loss falls slowly or stops early; parts of the network keep their start values",
        cause="a layer that forward does not use, a detach or no_grad on the way, or a path that is always zero",
        fix="use the layer in forward or remove it; take detach, no_grad, .data and .item() off the path to the loss",
        look=gradients,
    ),
    Check(
        "wiring.frozen",
        question="Do the parameters that are claimed to be frozen stay?",
        symptom="fine-tuning forgets what the frozen part knew",
        cause="requires_grad is still True, or an optimizer moves the parameters by its own rule",
        fix="requires_grad_(False) before the optimizer is made, and give it only what trains",
        look=frozen,
    ),
    Check(
        "wiring.uses_labels",
        question="Does the loss depend on the labels?",
        symptom="the loss falls, and the predictions are no better than before",
        cause="the loss compares the outputs with something else than the targets",
        fix="compare outputs with targets in loss_fn; if no labels are needed: preflight.labels: unused",
        look=uses_labels,
    ),
    Check(
        "wiring.uses_inputs",
        question="Do the outputs depend on each input?",
        symptom="the network learns the base rate, or gains nothing from an input",
        cause="forward does not use the input, or multiplies it away",
        fix="use the input in forward, or take it out of to_tensors",
        look=uses_inputs,
    ),
    Check(
        "wiring.rows_apart",
        question="Does a row's loss depend on its own row alone?",
        symptom="training looks well, and single rows in use get other answers than in a batch",
        cause="softmax, mean, cumsum or norm over dimension 0, a reshape that swaps rows, or broadcasting in the loss",
        fix="name the dimension and keep the first one; if rows belong together by design: preflight.rows: together",
        look=rows_apart,
    ),
    Check(
        "wiring.causal",
        question="Are outputs blind to the positions that they predict?",
        symptom="a training loss that is too good, and useless predictions when it generates",
        cause="the attention mask is missing or off by one, a convolution is centred, or a layer reads backwards",
        fix="mask with torch.tril(ones(T, T)), pad convolutions on the left only, and use one direction",
        look=causal,
    ),
    Check(
        "wiring.padding",
        question="Do places beyond a row's end stay out of its loss?",
        symptom="a loss that falls fast and stays low, and a model that foresees the ends of documents",
        cause="targets below 0 are made to a class (clamp, abs), or the loss is told another ignore_index",
        fix="cross_entropy(outputs.transpose(1, 2), targets, reduction='none') leaves out targets of -100; divide "
        "the sum over a row by (targets >= 0).sum(dim=1)",
        look=padding,
    ),
    Check(
        "wiring.logits",
        question="Can outputs and predictions go where the loss wants them?",
        symptom="the loss stops at a floor far above zero; predicted probabilities stay in a narrow range",
        cause="sigmoid, softmax, ReLU or tanh as last layer, and the loss or predict squashes again",
        fix="give raw outputs to a loss with logits, and squash once, in predict; let the range cover the targets",
        look=logits,
    ),
    Check(
        "wiring.predictions",
        question="Do predict and the loss mean the same by an output?",
        symptom="the loss falls, and metrics and served probabilities are bad; or all rows get nearly the same one",
        cause="predict squashes what is squashed already, takes a softmax over one output, or another sign or class",
        fix="let predict fit loss_fn: torch.sigmoid for a loss with logits, softmax(dim=1) for classes, and of numbers "
        "what loss_fn compares with the labels",
        look=predictions,
    ),
    Check(
        "wiring.modes",
        question="Do training and evaluation mode do what they should?",
        symptom="validation is noisy, or much worse than training from the first epoch on",
        cause="dropout that ignores it (functional.dropout without training=self.training), layers in plain lists",
        fix="pass training=self.training, register the layers; where it is meant, preflight.evaluation: stochastic",
        look=modes,
    ),
    Check(
        "wiring.evaluation_repeats",
        question="Do equal rows give equal answers when they are evaluated again, or alone?",
        symptom="the metrics of one checkpoint differ from run to run; a served row differs from the validated one",
        cause="a state that forward keeps between calls",
        fix="compute outputs from inputs and weights alone, or claim preflight.evaluation: stochastic",
        look=evaluation_repeats,
    ),
    Check(
        "wiring.evaluation_changes_nothing",
        question="Does an evaluation leave weights, buffers, gradients and modes alone?",
        symptom="training goes differently, depending on how often it is validated",
        cause="forward updates statistics or a memory in evaluation mode as well",
        fix="update buffers only if self.training",
        look=evaluation_changes_nothing,
    ),
)  # fmt: skip
