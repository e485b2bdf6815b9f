"""Planted faults: from a name to a function of a seed that gives a Subject, and the checks that may tell of it.

Each is a host with one thing changed that raises no exception in the loop by itself, save where it is said. At least
one of the named checks (patterns, `wiring.*`) must fail. These were known while the thresholds were written; those of
planted_held_back.py were not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from benchmarks.networks import mlp
from benchmarks.planted_networks import (
    Detached,
    Hidden,
    MixedRows,
    Unregistered,
    broadcast_targets,
    dead_relu,
    dropout_always,
    exploding_start,
    frozen_by_mistake,
    labels_forgotten,
    no_causal_mask,
    seeded_by_nothing,
    shuffled_labels,
    softmax_over_rows,
    softmax_twice,
    summed_loss,
    thousandfold_rate,
    thousandth_rate,
    weights_not_loaded,
    wrong_sign,
)
from benchmarks.planted_rows import (
    SameBatch,
    Unshuffled,
    black_images,
    classes_from_one,
    half_precision_weights,
    images_flipped_alone,
    interpolated_masks,
    one_class,
    one_nan,
    only_the_head,
    other_plan,
    other_scale_in_validation,
    raw_numbers,
    raw_prices,
    sorted_by_label,
    warmup_beyond_the_run,
    zero_rate_early,
)
from benchmarks.setup import Setup
from trainworthy.lifecycle.engine.preflight.subject import Subject

Inputs = dict[str, Tensor]
Fault = tuple[Callable[[int], Setup], tuple[str, ...]]
Planted = tuple[Callable[[int], Subject], tuple[str, ...]]


def planted(faults: Mapping[str, Fault]) -> dict[str, Planted]:
    """The faults as subjects."""

    def subject_of(make: Callable[[int], Setup]) -> Callable[[int], Subject]:
        return lambda seed: make(seed).subject()

    return {name: (subject_of(make), ids) for name, (make, ids) in faults.items()}


KNOWN: dict[str, Fault] = {
    "zero_rate_early": (zero_rate_early, ("configuration.*",)),
    "warmup_beyond_the_run": (warmup_beyond_the_run, ("configuration.*", "learning_rate.*")),
    "only_the_head": (only_the_head, ("configuration.*", "wiring.gradients", "wiring.frozen")),
    "half_precision_weights": (half_precision_weights, ("configuration.*",)),
    "one_nan": (one_nan, ("inputs.*",)),
    "black_images": (black_images, ("inputs.*",)),
    "raw_numbers": (raw_numbers, ("inputs.*", "start.*")),
    "classes_from_one": (classes_from_one, ("inputs.*",)),
    "one_class": (one_class, ("inputs.*",)),
    "other_scale_in_validation": (other_scale_in_validation, ("inputs.*",)),
    "images_flipped_alone": (images_flipped_alone, ("inputs.*",)),
    "interpolated_masks": (interpolated_masks, ("inputs.*",)),
    "raw_prices": (raw_prices, ("inputs.*", "start.*")),
    "softmax_twice": (softmax_twice, ("wiring.*",)),
    "softmax_over_rows": (softmax_over_rows, ("wiring.*", "start.reduction")),
    "detached": (lambda seed: replace(mlp(seed), network=Detached), ("wiring.*",)),
    "frozen_by_mistake": (frozen_by_mistake, ("configuration.*", "wiring.*")),
    "unregistered": (lambda seed: replace(mlp(seed), network=Unregistered), ("configuration.*", "wiring.*")),
    "mixed_rows": (lambda seed: replace(mlp(seed), network=MixedRows), ("wiring.*", "start.reduction")),
    "no_causal_mask": (no_causal_mask, ("wiring.causal",)),
    "dropout_always": (dropout_always, ("wiring.*",)),
    "labels_forgotten": (labels_forgotten, ("wiring.*",)),
    "broadcast_targets": (broadcast_targets, ("wiring.*", "start.reduction")),
    "exploding_start": (exploding_start, ("start.*",)),
    "dead_relu": (dead_relu, ("start.*", "wiring.*")),
    "summed_loss": (summed_loss, ("start.*", "wiring.rows_apart")),
    "weights_not_loaded": (weights_not_loaded, ("start.*",)),
    "seeded_by_nothing": (seeded_by_nothing, ("determinism.*",)),
    "hidden_state": (lambda seed: replace(mlp(seed), network=Hidden), ("determinism.*", "wiring.*")),
    "thousandfold_rate": (thousandfold_rate, ("learning_rate.*", "overfit.*")),
    "thousandth_rate": (thousandth_rate, ("learning_rate.*", "overfit.*")),
    "wrong_sign": (wrong_sign, ("start.*", "learning_rate.*", "overfit.*", "wiring.*")),
    "shuffled_labels": (shuffled_labels, ("overfit.*",)),
}
PLANTED: dict[str, Planted] = planted(KNOWN) | {
    "same_batch": (other_plan(mlp, SameBatch), ("inputs.*",)),
    "sorted_batches": (other_plan(sorted_by_label, Unshuffled), ("inputs.*",)),
}
