"""Planted faults that nobody looked at while the checks' thresholds were written. Keep it so: fix a check by its
mechanism, and then plant others here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from benchmarks.networks import (
    cnn,
    gpt,
    mlp,
)
from benchmarks.planted import Fault, Planted, planted
from benchmarks.planted_held_back_networks import (
    ByPlace,
    Counting,
    Gated,
    MeanOfSequence,
    NoGrad,
    OwnNorm,
    WrongWay,
    asks_for_what_it_sees,
    both_thin_matrices_zero,
    cut_off_answers,
    evaluation_as_training,
    input_forgotten,
    mask_off_by_one,
    masks_broadcast,
    sigmoid_twice,
    thawed_backbone,
)
from benchmarks.planted_held_back_rows import (
    CentredBy,
    all_but_one_block,
    another_vocabulary,
    averaged_away,
    clipped_to_nothing,
    columns_in_another_order,
    cosine_in_degrees,
    decay_per_update,
    equal_weights,
    gradients_pile_up,
    hundredfold_rate_of_descent,
    images_of_other_rows,
    inf_in_validation,
    masks_moved_alone,
    nan_targets,
    one_image_for_all,
    other_models_optimizer,
    padded_away,
    percentages_for_answers,
    sum_over_the_batch,
    sure_from_the_start,
    unseeded_augmentation,
    vanishing,
    weight_decay_of_everything,
)
from benchmarks.setup import Setup


def on(base: Callable[[int], Setup], network: Callable[[], nn.Module]) -> Callable[[int], Setup]:
    return lambda seed: replace(base(seed), network=network)


FAULTS: dict[str, Fault] = {
    "decay_per_update": (decay_per_update, ("configuration.*", "learning_rate.*")),
    "cosine_in_degrees": (cosine_in_degrees, ("configuration.*", "learning_rate.*")),
    "other_models_optimizer": (other_models_optimizer, ("configuration.*", "wiring.*")),
    "all_but_one_block": (all_but_one_block, ("configuration.*", "wiring.*")),
    "gradients_pile_up": (gradients_pile_up, ("wiring.*", "start.*", "determinism.*", "learning_rate.*", "overfit.*")),
    "clipped_to_nothing": (clipped_to_nothing, ("configuration.*", "learning_rate.*", "overfit.*")),
    "hundredfold_rate_of_descent": (hundredfold_rate_of_descent, ("learning_rate.*", "overfit.*")),
    "weight_decay_of_everything": (weight_decay_of_everything, ("configuration.*", "learning_rate.*", "overfit.*")),
    "inf_in_validation": (inf_in_validation, ("inputs.*",)),
    "columns_in_another_order": (columns_in_another_order, ("inputs.*",)),
    "another_vocabulary": (another_vocabulary, ("inputs.*", "overfit.held_out")),
    "padded_away": (padded_away, ("inputs.*",)),
    "nan_targets": (nan_targets, ("inputs.*",)),
    "percentages_for_answers": (percentages_for_answers, ("inputs.*",)),
    "masks_moved_alone": (masks_moved_alone, ("inputs.*",)),
    "one_image_for_all": (one_image_for_all, ("inputs.*", "wiring.*")),
    "sigmoid_twice": (sigmoid_twice, ("wiring.*",)),
    "cut_off_answers": (cut_off_answers, ("wiring.*",)),
    "rows_as_times": (on(cnn, WrongWay), ("wiring.*", "start.reduction")),
    "standardised_by_batch": (on(mlp, OwnNorm), ("wiring.*", "start.reduction")),
    "code_of_place_in_batch": (on(mlp, ByPlace), ("wiring.*", "start.reduction")),
    "mask_off_by_one": (mask_off_by_one, ("wiring.causal",)),
    "mean_of_sequence": (on(gpt, MeanOfSequence), ("wiring.causal",)),
    "asks_for_what_it_sees": (asks_for_what_it_sees, ("inputs.*", "wiring.causal", "overfit.*")),
    "rounded_in_the_middle": (on(mlp, Gated), ("wiring.*",)),
    "no_grad_in_forward": (on(cnn, NoGrad), ("wiring.*",)),
    "input_forgotten": (input_forgotten, ("wiring.*",)),
    "evaluation_as_training": (evaluation_as_training, ("wiring.*",)),
    "counts_in_evaluation": (on(mlp, Counting), ("wiring.*",)),
    "thawed_backbone": (thawed_backbone, ("wiring.*", "configuration.*")),
    "both_thin_matrices_zero": (both_thin_matrices_zero, ("wiring.*", "start.*", "configuration.*")),
    "masks_broadcast": (masks_broadcast, ("wiring.*", "start.reduction")),
    "equal_weights": (equal_weights, ("start.*", "wiring.*")),
    "sure_from_the_start": (sure_from_the_start, ("start.*",)),
    "vanishing": (vanishing, ("start.*", "wiring.*")),
    "sum_over_the_batch": (sum_over_the_batch, ("start.*",)),
    "unseeded_augmentation": (unseeded_augmentation, ("determinism.*", "inputs.*")),
    "counts_its_passes": (on(mlp, CentredBy), ("determinism.*", "wiring.*")),
    "images_of_other_rows": (images_of_other_rows, ("overfit.*",)),
    "averaged_away": (averaged_away, ("start.*", "wiring.*", "overfit.*")),
}
HELD_BACK: dict[str, Planted] = planted(FAULTS)
