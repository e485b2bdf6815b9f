"""Batches as the plan draws them: fair orders pass, weighted ones too; sorted, blocked and repeated ones fail."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.healthy_odd import sorted_rows, with_inputs
from benchmarks.networks import cnn, gpt, mlp, unet
from benchmarks.setup import Setup
from trainworthy.lifecycle.engine.preflight.inputs.batches import repeated_batch, shuffled
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.plan import Plan


class Drawn(Plan):
    """A plan whose epochs are drawn by a function of the epoch, the rows and a generator."""

    order: object

    def batch(self, step: int) -> torch.Tensor:
        epoch, position = divmod(step, self.steps_per_epoch)
        order = self.order(epoch, self.rows)  # pyright: ignore[reportCallIssue]
        return torch.as_tensor(order[position * self.batch_size : (position + 1) * self.batch_size])


def by(setup: Setup, order, **changes) -> Subject:
    """The set-up's subject with rows in this order; `order(epoch, rows)` gives an epoch's row numbers."""
    subject = setup.subject()
    values = subject.plan.model_dump() | changes
    values["steps_per_epoch"] = values["rows"] // values["batch_size"]
    values["horizon_steps"] = values["last_step"] = 6 * values["steps_per_epoch"]
    return replace(subject, plan=Drawn(**values, order=order))


def drawn(epoch: int) -> np.random.Generator:
    return np.random.default_rng(epoch + 5)


def in_order(epoch, rows):
    return np.arange(rows)


def buffered(epoch, rows):
    """A shuffle buffer of 100 rows."""
    return np.concatenate([drawn(epoch).permutation(part) for part in np.array_split(np.arange(rows), rows // 100)])


def blocks(epoch, rows):
    """Blocks of 50 rows in a random order."""
    order = drawn(epoch).permutation(rows // 50)
    return np.concatenate([np.arange(one * 50, one * 50 + 50) for one in order])


def fair(epoch, rows):
    return drawn(epoch).permutation(rows)


def replaced(epoch, rows):
    return drawn(epoch).integers(0, rows, rows)


def by_label(setup: Setup):
    """Positives drawn nine times as often, with replacement."""
    odds = np.where(setup.training.targets.numpy() == 1, 9.0, 1.0)
    return lambda epoch, rows: drawn(epoch).choice(rows, rows, p=odds / odds.sum())


def balanced(setup: Setup):
    """Each batch of 32 with sixteen of each label."""
    labels = setup.training.targets.numpy()

    def order(epoch, rows):
        sides = [drawn(epoch).permutation(np.flatnonzero(labels == label)) for label in (0, 1)]
        count = min(map(len, sides)) // 16 * 16
        return np.concatenate([np.concatenate([one[i : i + 16] for one in sides]) for i in range(0, count, 16)] * 2)[
            :rows
        ]

    return order


def drifting(seed: int) -> Setup:
    """A column that moves slowly through the file, and labels that do not."""

    def move(found):
        x = found["numbers"].clone()
        x[:, 7] += torch.linspace(0, 3, len(x))
        return {"numbers": x}

    return with_inputs(mlp(seed), move)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt, sorted_rows])
def test_shuffled_plans_of_healthy_hosts_pass(host, seed):
    subject = host(seed).subject()
    for look in (shuffled, repeated_batch):
        found = look(subject)
        assert found.status == "pass", found.evidence


@pytest.mark.parametrize(
    "subject",
    [
        by(sorted_rows(0), in_order),
        by(sorted_rows(0), buffered),
        by(sorted_rows(0), blocks),
        by(sorted_rows(0), in_order, batch_size=1),
        by(sorted_rows(0), in_order, batch_size=400),
        by(drifting(0), blocks),
        by(mlp(0), lambda epoch, rows: fair(0, rows)),
        by(mlp(0), in_order),
    ],
    ids=[
        "in_order",
        "buffer",
        "blocks",
        "one_row",
        "large",
        "alike_inputs",
        "same_each_epoch",
        "file_order_each_epoch",
    ],
)
def test_shuffled_unfair_order_fails(subject):
    found = shuffled(subject)
    assert found.status == "fail", found.evidence


@pytest.mark.parametrize(
    "subject",
    [
        by(sorted_rows(0), fair),
        by(sorted_rows(0), replaced),
        by(sorted_rows(0), by_label(sorted_rows(0))),
        by(mlp(0), balanced(mlp(0))),
        by(mlp(0), blocks),
        by(sorted_rows(0), fair, batch_size=1200),
        by(sorted_rows(0), fair, batch_size=1),
        by(sorted_rows(0), fair, batch_size=700),
    ],
    ids=["fair", "replaced", "oversampled", "balanced", "random_file_in_blocks", "whole", "one_row", "two_batches"],
)
def test_shuffled_fair_orders_pass(subject):
    found = shuffled(subject)
    assert found.status == "pass", found.evidence


def test_shuffled_two_hundred_fair_orders_raise_no_alarm():
    base = sorted_rows(0)
    rare = replace(base, training=replace(base.training, targets=(torch.arange(1200) > 1194).float()))
    for seed in range(100):
        for setup in (base, rare):
            subject = setup.subject()
            subject = replace(subject, plan=subject.plan.model_copy(update={"seed": seed}))
            assert shuffled(subject).status == "pass"


def test_shuffled_labels_of_all_rows_are_read_where_the_sample_is_a_part():
    whole = sorted_rows(0)
    subject = by(whole, in_order)
    rows = torch.arange(0, 1200, 3)
    part = replace(
        whole.training, inputs={"numbers": whole.training.inputs["numbers"][rows]}, targets=whole.training.targets[rows]
    )
    sampled = replace(subject, training=part, labels=whole.training.targets.numpy())
    assert "labels differ" in shuffled(sampled).evidence
    # Without them the rows' places and the sample's neighbours are left.
    assert shuffled(replace(sampled, labels=None)).status == "fail"


def same_batch(epoch, rows):
    return np.tile(fair(epoch, rows)[:32], rows // 32 + 1)[:rows]


def echoed(epoch, rows):
    """Two workers that read the same half."""
    half = fair(epoch, rows)[: rows // 2 // 32 * 32]
    return np.concatenate([half, half])


def first_half(epoch, rows):
    return np.tile(drawn(epoch).permutation(rows // 2), 2)


@pytest.mark.parametrize(
    "subject",
    [
        by(mlp(0), same_batch),
        by(mlp(0), echoed),
        by(mlp(0), same_batch, batch_size=1),
        by(mlp(0), lambda epoch, rows: drawn(epoch).integers(0, rows // 2, rows)),
        by(mlp(0), lambda epoch, rows: np.tile(drawn(epoch).permutation(rows - 200), 2)[:rows]),
        by(mlp(0), lambda epoch, rows: drawn(epoch).permutation(np.arange(rows)[:800]), batch_size=800),
    ],
    ids=["one_batch", "workers", "one_row", "first_half", "end_left_out", "first_part"],
)
def test_repeated_batches_or_rows_never_met_fail(subject):
    found = repeated_batch(subject)
    assert found.status == "fail", found.evidence


@pytest.mark.parametrize(
    "subject",
    [
        by(mlp(0), fair),
        by(mlp(0), replaced),
        by(mlp(0), by_label(mlp(0))),
        by(mlp(0), fair, batch_size=1),
        by(mlp(0), fair, batch_size=1200),
        by(mlp(0), fair, batch_size=700),
        by(mlp(0), replaced, batch_size=1),
    ],
    ids=["fair", "replaced", "oversampled", "one_row", "whole", "large_remainder", "one_replaced"],
)
def test_repeated_fair_batches_pass(subject):
    found = repeated_batch(subject)
    assert found.status == "pass", found.evidence
