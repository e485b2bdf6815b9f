"""What may be the matter with a training, with cause and fix: one table, in the order in which rules are tried."""

from __future__ import annotations

from trainworthy.lifecycle.engine.training.monitors.told import JUST_BEFORE, Rule

# Change over norm below which a training at its full rate goes nowhere: 138 healthy ones reached 0.0005 or more.
TINY_RATIO = 3e-5
NOT_FINITE = ("non_finite_loss", "non_finite_gradient", "non_finite_parameter", "non_finite_activation")
SPIKES = ("loss_spike", "gradient_spike", "outlier_batch")
LARGE = ("update_ratio", "exploding_gradients")
STUCK = ("plateau", "constant_predictions", "zero_gradient", "vanishing_gradients")

RULES: tuple[Rule, ...] = (
    # ---- what is wrong whatever the network does ----
    Rule(
        "processes_apart", None,
        "processes that should train one model train several: gradients are not averaged over all of them, or buffers "
        "and initial weights differ",
        "wrap the model before the optimizer is made (DistributedDataParallel), seed all processes alike, and let each "
        "of them make the same updates",
        ("replicas_apart",),
    ),
    Rule(
        "batch_repeats", None,
        "the same rows are handed out again and again: a loader that is made anew for each update, a sampler that is "
        "never advanced or shuffled, or an iterator whose first item is taken each time",
        "look at what makes batches; each row should come once in a pass",
        ("repeated_batches", "overfitting"),
    ),
    Rule(
        "not_in_optimizer", None,
        "the optimizer was made for other parameters: of a part of the model, or before a layer was replaced, moved or "
        "loaded",
        "make the optimizer after the model has its final parameters, from model.parameters(); declare what shall not "
        "train by requires_grad=False",
        ("not_in_optimizer", "unchanged_layer", "plateau"),
    ),
    Rule(
        "gradients_not_zeroed", None,
        "gradients are added to those of all updates before: nothing sets them to zero",
        "call optimizer.zero_grad() once an update, before backward; with accumulation, once all parts are done",
        ("gradients_not_zeroed", "exploding_gradients", "gradient_spike", "update_ratio", "rise_above_best", "plateau",
         "loss_spike"),
    ),
    Rule(
        "stale_gradients", None,
        "gradients are not those of the newest rows: backward is not called, is called on an old loss, or a hook gives "
        "back what it stored",
        "look at where the loss of a batch becomes its gradient; remove hooks that keep gradients",
        ("stale_gradients", "rise_above_best", "plateau", "gradient_spike", "loss_spike"),
    ),
    Rule(
        "learning_rate_too_high",
        lambda told: (
            told.context.rate_jumped
            and not told.context.bad_inputs
            and told.any(*NOT_FINITE, *SPIKES, *LARGE, "rise_above_best")
        ),
        "the schedule made the learning rate jump from one update to the next, just before",
        "look at the schedule where the alarm began: a restart, a unit that is mistaken, a stage that starts anew; "
        "lengthen the warm-up",
        (*NOT_FINITE, *SPIKES, *LARGE, "rise_above_best", "constant_predictions", "dead_layer", "zero_gradient",
         "layer_updates_too_large", "plateau"),
    ),
    # ---- NaN loss ----
    Rule(
        "rows_not_finite", lambda told: told.context.bad_inputs,
        "rows of this batch hold values that are not finite",
        "mend or leave out these rows, and let the contract forbid such values",
        NOT_FINITE + SPIKES,
    ),
    Rule(
        "overflow_of_half_precision",
        lambda told: told.context.precision == "fp16" and told.any(*NOT_FINITE),
        "numbers above 65504, which float16 cannot hold",
        "use bf16, or keep a GradScaler and do logarithms, exponentials and sums in float32",
        NOT_FINITE + SPIKES,
    ),
    Rule(
        "learning_rate_too_high",
        lambda told: told.any(*NOT_FINITE) and told.before((*LARGE, "rise_above_best"), NOT_FINITE),
        "the learning rate is too high: updates grew before the values overflowed",
        "lower the learning rate by a factor of 3 to 10, lengthen the warm-up, clip gradients",
        (*NOT_FINITE, *SPIKES, *LARGE, "rise_above_best", "constant_predictions", "dead_layer", "zero_gradient",
         "plateau"),
    ),
    Rule(
        "these_rows",
        lambda told: told.any(*NOT_FINITE) and told.before(SPIKES, NOT_FINITE, JUST_BEFORE),
        "rows of the batch at which the loss or the gradient jumped, just before it was no longer finite",
        "look at these rows: wrong labels, another unit, a damaged record; then at the learning rate",
        NOT_FINITE + SPIKES,
    ),
    Rule(
        "derivative_not_defined",
        lambda told: told.any("non_finite_gradient") and not told.any("non_finite_loss", "non_finite_parameter"),
        "an operation whose value is finite and whose derivative is not: a root, norm, power or standard deviation at "
        "0, or a branch of torch.where that is not taken",
        "add a small constant inside the root, clamp before log and division, and mask the input, not the result",
        ("non_finite_gradient", "non_finite_activation"),
    ),
    Rule(
        "optimizer_makes_it", lambda told: told.any("non_finite_parameter") and not told.any("non_finite_loss"),
        "the optimizer makes a value that is not finite of finite gradients: a second moment of 0, or an overflow",
        "look at build_optimizers: epsilon, learning rate, and what it divides by",
        NOT_FINITE,
    ),
    Rule(
        "value_not_defined", lambda told: told.any(*NOT_FINITE),
        "an operation at its limit: a logarithm or a division at 0, an exponential that overflows, or a mask of minus "
        "infinity over a whole row",
        "`trainworthy replay` names the operation: clamp before its log or division; a loss of probabilities has a "
        "form that takes logits (cross_entropy, binary_cross_entropy_with_logits, logsumexp)",
        NOT_FINITE,
    ),
    # ---- it does not learn ----
    Rule(
        "learning_rate_too_high",
        lambda told: told.any("update_ratio")
        or (told.any("exploding_gradients") and told.any("rise_above_best", "loss_spike")),
        "the learning rate is too high: updates are large beside the weights",
        "lower the learning rate by a factor of 3 to 10, lengthen the warm-up, clip gradients",
        (*LARGE, *SPIKES, "rise_above_best", "dead_layer", "layer_updates_too_large", *STUCK),
    ),
    Rule(
        "updates_rounded_away", None,
        "weights of low precision: an update smaller than half a unit of their last digit changes nothing",
        "keep the weights in float32 and compute in bf16 (precision: bf16), or round stochastically",
        ("rounded_updates", "unchanged_layer", "layer_left_behind", "plateau"),
    ),
    Rule(
        # Weights that have blown up shrink as well.
        "weights_decay_away", lambda told: told.any("weights_shrink") and not told.any("loss_spike", *LARGE),
        "at every update weights lose more than gradients give back: a weight decay, or a penalty in the loss, of "
        "another order, often one that is multiplied by a learning rate, or is not",
        "lower the weight decay; decoupled ones, as AdamW's, take its product with the learning rate at every update",
        ("weights_shrink", "constant_predictions", "vanishing_gradients", "zero_gradient", "plateau",
         "rise_above_best", "loss_spike"),
    ),
    Rule(
        "schedule_at_zero",
        lambda told: told.any("unchanged_layer") and told.context.learning_rate <= 1e-6 * told.context.largest_rate,
        "the learning rate is zero: the schedule ends before the training does, or never starts",
        "give the schedule the planned number of updates",
        ("unchanged_layer", "plateau"),
    ),
    Rule(
        "dead_units", None,
        "units that are zero for every row, so that no gradient reaches what lies before them: a bias far below zero, "
        "inputs of another scale, a mask or a dropout of everything, or an update that was too large",
        "standardise the inputs, lower the learning rate or lengthen its warm-up, use GELU or LeakyReLU, look at masks",
        ("dead_layer", "zero_gradient", "constant_predictions", "vanishing_gradients", "plateau", "rise_above_best",
         "loss_spike"),
    ),
    Rule(
        "detached_layer", lambda told: told.any("no_gradient"),
        "these parameters take no part in the loss: .detach(), torch.no_grad() or .item() on the way, a rounding, or a "
        "layer that is made and not used",
        "follow the named layers' output to the loss; declare what shall not train by requires_grad=False",
        ("no_gradient", "zero_gradient", "constant_predictions", "plateau"),
    ),
    Rule(
        "gradient_blocked", lambda told: told.any("zero_gradient"),
        "what follows these parameters lets no gradient through: saturated units, a factor of zero, a clamp, a "
        "rounding",
        "look at the layer behind the named parameters: its activations, masks, weights of zero",
        ("zero_gradient", "vanishing_gradients", "constant_predictions", "plateau"),
    ),
    Rule(
        "frozen_layer", lambda told: told.any("unchanged_layer"),
        "parameters have a gradient and are in an optimizer, which does not change them: their group's rate is zero, "
        "or updates are below their precision",
        "look at the parameter groups: lr_scale and the schedule of each",
        ("unchanged_layer", "plateau"),
    ),
    Rule(
        "collapsed_answers", lambda told: told.any("constant_predictions"),
        "the inputs no longer reach the outputs: inputs that are all the same, a normalisation over the wrong axis, "
        "saturated units, or a loss that constant answers make smallest",
        "look at one batch of inputs and at each layer's outputs; for losses without labels add what keeps answers "
        "apart",
        ("constant_predictions", "plateau", "vanishing_gradients", "rise_above_best", "loss_spike"),
    ),
    Rule(
        "layer_rate", lambda told: told.any("layer_left_behind", "layer_updates_too_large"),
        "some parameters are trained at a rate of another order than the others: a parameter group's lr_scale, or "
        "gradients of another scale under SGD",
        "look at the parameter groups; use AdamW, or normalise the layers",
        ("layer_left_behind", "layer_updates_too_large", "vanishing_gradients", "plateau"),
    ),
    Rule(
        "vanishing_gradients", lambda told: told.any("vanishing_gradients"),
        "gradients shrink on their way: saturating units, or a deep path without normalisation",
        "use ReLU-like units, normalisation and skip connections, and an initialisation of the right scale",
        ("vanishing_gradients", "plateau"),
    ),
    Rule(
        "learning_rate_too_low",
        lambda told: told.any("plateau")
        and told.context.update_ratio is not None
        and told.context.update_ratio < TINY_RATIO,
        "the learning rate is too low: updates are tiny beside the weights",
        "raise the learning rate tenfold; look at the warm-up's length and at the unit of the schedule's steps",
        ("plateau",),
    ),
    # ---- it gets worse ----
    Rule(
        "these_rows", lambda told: told.any("outlier_batch") and not told.any("rise_above_best", "gradient_spike"),
        "rows that are unlike all others: wrong labels, another unit, a damaged record",
        "look at these rows; skip_batch leaves such a batch out",
        ("outlier_batch", "loss_spike"),
    ),
    Rule(
        "a_game", lambda told: told.context.game and told.any("loss_spike", "gradient_spike", "rise_above_best"),
        "networks that work against each other, so that the loss goes up and down and tells no progress",
        "judge such a training by what it is for, as samples or a held-out score; if no game is meant, look for a "
        "gradient that is turned round",
        ("loss_spike", "gradient_spike", "rise_above_best"),
    ),
    Rule(
        "rows_of_another_kind",
        lambda told: told.any("rise_above_best") and not told.any("gradient_spike", "exploding_gradients"),
        "the rows or their targets changed: another file, order, unit or labelling from here on; or the learning rate "
        "is too high",
        "hold the rows from the onset on against those before; if they are alike, lower the learning rate",
        ("rise_above_best", "loss_spike", "outlier_batch"),
    ),
    Rule(
        "learning_rate_too_high", lambda told: told.any("gradient_spike", "loss_spike", "exploding_gradients"),
        "a learning rate that is too high for where the weights are, or rows of another kind from here on",
        "lower the learning rate, lengthen the warm-up, clip gradients; then look at the rows of the onset",
        ("gradient_spike", "loss_spike", "exploding_gradients", "rise_above_best", "outlier_batch"),
    ),
    Rule(
        "overfitting", None,
        "the network learns its training rows by heart",
        "train shorter (early stopping), with more rows, augmentation, weight decay or dropout, or a smaller network",
        ("overfitting",),
    ),
    Rule(
        "labels_without_signal", None,
        "the inputs say nothing of the targets as they reach the network: labels shuffled against their rows, an input "
        "that is lost on the way, a loss that does not see the outputs; or a long plateau, or a rate far off",
        "hold ten rows against their targets by eye, try to overfit one batch (preflight does), then try other rates",
        ("plateau",),
    ),
    # ---- it is slow, or ends ----
    Rule(
        "memory_leak", None,
        "something is kept from update to update: a loss that is added up without .item(), outputs in a list, a cache "
        "without an end, a graph that is retained",
        "keep numbers in the place of tensors (.item(), .detach()), and bound what is cached",
        ("memory_growth", "throughput_drop"),
    ),
    Rule(
        "loaders_too_slow", lambda told: told.any("data_wait"),
        "rows are made more slowly than the network takes them",
        "more loaders (compute.loaders), less work for each row, prepared features, a faster disk",
        ("data_wait", "gpu_idle", "throughput_drop"),
    ),
    Rule(
        "hang", None,
        "a call that waits for what never comes: a lock, another process, a network, a disk",
        "the stacks name the line where each thread is",
        ("hang",),
    ),
    Rule(
        "gpu_waits", lambda told: told.any("gpu_idle"),
        "the GPU waits for the processor: batches that are too small, many small operations, or a value that is read "
        "at every update",
        "larger batches, fewer .item() and .cpu(), torch.compile",
        ("gpu_idle", "throughput_drop"),
    ),
    Rule(
        "slower", None,
        "each update has more to do than before, or the machine has less to give: a graph or a list that grows, longer "
        "rows, a neighbour, a clock that was lowered by heat",
        "look at memory beside it, at the rows' sizes, and at what else runs on the machine",
        ("throughput_drop",),
    ),
)  # fmt: skip
