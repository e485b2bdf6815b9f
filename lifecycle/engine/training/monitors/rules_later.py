"""What may be the matter with a training that learned and gets worse, is slow, or ends; tried after rules.py's."""

from __future__ import annotations

from lifecycle.engine.training.monitors.told import Rule

LATER: tuple[Rule, ...] = (
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
