"""What is done to trainings of unprepared.py from an update on: DAMAGE by name, and DAMAGED, which host has which."""

from __future__ import annotations

import torch

from benchmarks.unprepared import Damage, Now


def damaged_batch(now: Now, since: int, random: torch.Generator) -> None:
    """Inputs of one batch in another unit."""
    if now.step == since:
        now.inputs = 1000 * now.inputs


def other_unit(now: Now, since: int, random: torch.Generator) -> None:
    now.inputs = 50 * now.inputs


def rate_thousandfold(now: Now, since: int, random: torch.Generator) -> None:
    now.rate *= 1000


def rate_grows(now: Now, since: int, random: torch.Generator) -> None:
    """By a twentieth at every update."""
    now.rate *= min(1e6, 1.05 ** (now.step - since))


def labels_of_others(now: Now, since: int, random: torch.Generator) -> None:
    """Rows have the targets of rows that are drawn anew."""
    now.targets = now.others


def half_the_labels(now: Now, since: int, random: torch.Generator) -> None:
    """Every other update has the targets of other rows."""
    if now.step % 2:
        now.targets = now.others


def targets_in_another_unit(now: Now, since: int, random: torch.Generator) -> None:
    now.targets = 100 * now.targets


def forgotten_squares(now: Now, since: int, random: torch.Generator) -> None:
    """The optimizer comes back with its step and its means, and squares of zero."""
    if now.step == since:
        for state in now.optimizer.state.values():
            if "exp_avg_sq" in state:
                state["exp_avg_sq"].zero_()


def other_weights(now: Now, since: int, random: torch.Generator) -> None:
    """Weights come back with noise of three times their size."""
    if now.step == since:
        with torch.no_grad():
            for one in now.model.parameters():
                one.add_(3 * one.std(correction=0) * torch.randn(one.shape, generator=random))


DAMAGE: dict[str, Damage] = {
    one.__name__: one
    for one in (
        damaged_batch, other_unit, rate_thousandfold, rate_grows, labels_of_others, half_the_labels,
        targets_in_another_unit, forgotten_squares, other_weights,
    )
}  # fmt: skip
HOSTS = ("digits", "digits, one row", "rare, 32 rows", "rare, one row", "t of 3, 32 rows", "lognormal, 32 rows")
# Classes have no unit.
DAMAGED = tuple(
    (host, damage)
    for host in HOSTS
    for damage in DAMAGE
    if damage != "targets_in_another_unit" or host.startswith(("t ", "lognormal"))
)
