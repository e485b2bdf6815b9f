"""Does what a network learns from the labels hold for unseen rows?

The statistic survives a shifting base rate: the rise of the loss when labels are permuted, within their groups where
rows are split by time. It is taken on held-out rows after a short training, and again after the same training with
shuffled labels: a random direction correlates a little with anything, so that a significant rise alone says little.

Labels that belong to a row nearby: a join that is off by one, a lag that was taken on one side only.

Such labels look like shuffled ones, and one look at the neighbours tells them apart. Only for rows in the order of
their source: of a sample of many more rows, neighbours are seldom in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.outputs.free_outputs import lowest_loss
from trainworthy.lifecycle.engine.preflight.overfit.fit import (
    batch_statistics,
    fit,
    full_batches,
    judged,
    mean_loss,
    outputs_of,
    planned_updates,
)
from trainworthy.lifecycle.engine.preflight.overfit.linear_probe import line_basis
from trainworthy.lifecycle.engine.preflight.overfit.patience import LONGER, PARTS, longer_steps
from trainworthy.lifecycle.engine.preflight.overfit.reference_losses import loss_uses_labels
from trainworthy.lifecycle.engine.preflight.overfit.substituted_outputs import Outputs, linked_outputs, measuring
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import fewer_of_places
from trainworthy.lifecycle.engine.training.judging.rise import (
    PERMUTATIONS,
    groups_to_permute,
    mostly_within,
    permutations_within,
)
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS, mean_estimate


@dataclass(frozen=True, eq=False)
class HeldOutGroups:
    """Of each held-out row its group and the one within which it is permuted (groups_to_permute), `(N,)`."""

    of_rows: np.ndarray
    permuted: np.ndarray

    @property
    def where(self) -> str:
        return "within their groups" if mostly_within(self.permuted) else "among all"


@dataclass(frozen=True)
class Rise:
    """Mean rise of the loss by permutation, and how many standard errors, by group, it lies above 0."""

    value: float
    errors: float

    def above(self, other: Rise) -> float:
        """By how many standard errors this one lies above another."""
        standard_errors = [rise.value / rise.errors if rise.errors else 0.0 for rise in (self, other)]
        return (self.value - other.value) / max((standard_errors[0] ** 2 + standard_errors[1] ** 2) ** 0.5, 1e-12)

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.errors:.1f} standard errors)"


def rise_of(outputs: Outputs, groups: HeldOutGroups, values: dict[int, Tensor] | None = None) -> Rise:
    """Rise of the rows' losses when their targets are permuted within groups, the mean of a few permutations."""
    targets, size = torch.cat(outputs.targets), len(outputs.targets[0])
    loss = outputs.losses(values).double()
    rise = torch.zeros_like(loss)
    for order in permutations_within(groups.permuted, seed=0):
        permuted = targets[torch.from_numpy(order).to(targets.device)]
        rise += (outputs.losses(values, permuted.split(size)).double() - loss) / PERMUTATIONS
    rises = rise.cpu().numpy()
    if not np.isfinite(rises).all():
        return Rise(0.0, 0.0)
    return Rise(float(rises.mean()), float(rises.mean()) / max(_standard_error(rises, groups.of_rows), 1e-12))


def _standard_error(values: np.ndarray, groups: np.ndarray) -> float:
    """Of the mean; by group where these are enough for it."""
    if len(np.unique(groups)) >= MINIMUM_GROUPS:
        return mean_estimate(values, groups).standard_error
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("inf")


def line_rise(subject: Subject, data: TrainData, rows: list[Tensor], groups: HeldOutGroups) -> Rise:
    """The rise of a line over the inputs, each half of the data's groups by a fit on the other half."""
    outputs = linked_outputs(subject, data, rows)
    basis = line_basis(data, outputs, rows)
    first = torch.from_numpy(np.unique(groups.of_rows, return_inverse=True)[1] % 2 == 0).to(basis.device)
    halves = [(scored, _line(outputs, basis, ~scored)) for scored in (first, ~first)]
    values = {place: torch.zeros_like(outputs.whole(place)) for place in outputs.free}
    for scored, line in halves:
        for place, value in line.items():
            values[place][scored] = value[scored]
    return rise_of(outputs, groups, values)


def line_rise_from_training(subject: Subject, rows: list[Tensor], groups: HeldOutGroups) -> Rise:
    """The held-out rows' rise of a line that is fitted on as many training rows; all rows share its columns' scales."""
    training = full_batches(subject, subject.training, len(rows), len(rows[0]), seed=4)
    if len(training[0]) != len(rows[0]):
        return Rise(0.0, 0.0)
    known, held_out = subject.training.take(torch.cat(training)), subject.held_out.take(torch.cat(rows))
    both = TrainData(
        {name: torch.cat([tensor, held_out.inputs[name]]) for name, tensor in known.inputs.items()},
        torch.cat([known.targets, held_out.targets]),
    )
    places = torch.arange(len(both.targets), device=both.targets.device)
    batches, fitted = list(places.split(len(rows[0]))), places < len(known.targets)
    outputs = linked_outputs(subject, both, batches)
    line = _line(outputs, line_basis(both, outputs, batches), fitted)
    scored = {place: value[~fitted] for place, value in line.items()}
    return rise_of(linked_outputs(subject, subject.held_out, rows), groups, scored)


def _line(outputs: Outputs, basis: Tensor, fitted: Tensor) -> dict[int, Tensor]:
    """What a line with the least loss of the fitted rows gives for all, by the leaf's place."""
    start = {
        place: torch.zeros(basis.shape[1], *outputs.whole(place).shape[1:], device=basis.device)
        for place in outputs.free
    }

    def mean(parameters: dict[int, Tensor]) -> Tensor:
        return outputs.losses(outputs.spread(basis, parameters))[fitted].mean()

    _, parameters = lowest_loss(start, mean)
    return {place: value.detach() for place, value in outputs.spread(basis, parameters).items()}


# Few updates are enough where the rise is then plain.
FEW_UPDATES, UPDATES, BATCH_ROWS, HELD_OUT_ROWS = 40, 200, 128, 4096
# Standard errors above 0 that show a rise; for a line on the held-out rows themselves, and below which none is seen.
SHOWN, LINE_SHOWN, NOT_SEEN = 3.0, 5.0, 1.5
# Measured on flights: 0.044 to 0.104 nats after a pilot, and -0.003 to 0.007 after one with shuffled labels.
TIMES_SHUFFLED, CLEARLY = 2.0, 6.0
# Between NOT_SEEN and SHOWN: how many trainings with shuffled labels a rise has to lie CLEARLY above.
CHANCE_DRAWS = 4
# Of a line's rise: updates that moved the loss by more are no small ones. In how many batches they are looked at.
SMALL, LOOKED_AT = 0.5, 10
# Share of what held-out rows find of themselves that sound training rows find of them. Measured: 1.1 where a network
# is at fault, at most 0.14 of columns or labels that are exchanged.
LEAST_OF_OWN = 0.5
# Names the failure of a network whose rows are sound.
NETWORK = "learns_less_than_a_line"
# With fewer held-out rows a correlation of 0.2 stays below SHOWN standard errors.
FEWEST_ROWS = 225


def learns_for_unseen_rows(subject: Subject) -> Outcome:
    """The rise after training on the labels, on shuffled ones, at the start, and of a line."""
    rows, groups = _held_out(subject)
    if not loss_uses_labels(subject, subject.held_out, rows):
        unused = subject.claims.labels == "unused"
        return Outcome("not_applicable" if unused else "insufficient", "the loss is the same for any labels")
    data = TrainData(subject.training.inputs, subject.training.targets)
    batches = full_batches(subject, data, UPDATES, fewer_of_places(subject, BATCH_ROWS), seed=2)
    planned = FEW_UPDATES
    real, updates = _after(subject, data, batches, rows, groups, planned)
    if real.errors < 2 * SHOWN:
        planned = UPDATES
        real, updates = _after(subject, data, batches, rows, groups, planned)
    shuffled = [_after(subject, _shuffled(data, 1), batches, rows, groups, updates)[0]]
    if TIMES_SHUFFLED <= real.value / max(abs(shuffled[0].value), 1e-12) < CLEARLY:
        # A rise of this size may be chance; with a second draw it seldom is.
        shuffled.append(_after(subject, _shuffled(data, 2), batches, rows, groups, updates)[0])
    if NOT_SEEN <= real.errors < SHOWN:
        # Few groups that differ make a plain rise uncertain in size (flights in September: 0.133, 2.5 standard errors
        # over 14 days). Whether it is there at all, trainings tell that can have learned nothing.
        seeds = range(len(shuffled) + 1, CHANCE_DRAWS + 1)
        shuffled += [_after(subject, _shuffled(data, seed), batches, rows, groups, updates)[0] for seed in seeds]
    begun = _outputs(subject, subject.model(), rows)
    start, measured = rise_of(begun, groups), measuring(subject, begun)
    chance = max(abs(rise.value) for rise in shuffled)
    evidence = (
        f"{len(groups.of_rows)} held-out rows, permuted {groups.where}: the loss rises by {real} after {updates} "
        f"updates, by {shuffled[0]} after as many with shuffled labels"
    )
    shown = real.errors >= SHOWN and (real.value >= TIMES_SHUFFLED * chance or start.value >= real.value / 2)
    if shown or (len(shuffled) == CHANCE_DRAWS and real.value >= CLEARLY * chance):
        return Outcome("pass", evidence, real.value, TIMES_SHUFFLED * chance)
    line = line_rise(measured, subject.held_out, rows, groups)
    neighbours = labels_of_neighbours(measured, evidence, real, line)
    if neighbours is None and updates < planned:
        why = f"an update takes so long that no more than {updates} of {planned} were tried"
        told = f"{evidence}: {why}"
        # The stages make all updates, and permute in the same way.
        return Outcome("insufficient", told, real.value, TIMES_SHUFFLED * chance, answered_by="references")
    result = neighbours or _not_shown(evidence, real, chance, line, len(groups.of_rows))
    # That labels are those of other rows is proven: no second look is to be luckier.
    if neighbours is None and result.status == "fail":
        longer = _by_longer_steps(subject, data, batches, rows, groups, updates, line)
        return longer or _where(result, real, line, line_rise_from_training(measured, rows, groups))
    return result


def _where(failed: Outcome, real: Rise, own: Rise, trained: Rise) -> Outcome:
    """The failure with its cause: what a line over training rows tells of held-out ones, a sound network learns, too.

    `own` is that of a line over the held-out rows. Of losses that are not finite, whose rise is 0, nothing is known.
    """
    evidence = f"{failed.evidence}, and one over as many training rows {trained}"
    if trained.errors < SHOWN or trained.value < LEAST_OF_OWN * own.value or real.errors == 0:
        return replace(failed, evidence=evidence)
    return replace(
        failed, evidence=evidence, code=NETWORK,
        cause="the network or its recipe: rows and labels are sound, since a line over training rows tells unseen ones",
        fix="look at what the network makes of its inputs, at its start and at its learning rate: trainworthy diagnose "
        "exchanges one after the other",
    )  # fmt: skip


def _by_longer_steps(
    subject: Subject,
    data: TrainData,
    batches: list[Tensor],
    rows: list[Tensor],
    groups: HeldOutGroups,
    updates: int,
    line: Rise,
) -> Outcome | None:
    """What small steps that go further, as all planned ones do, show where so many did not; None where they do not.

    Small steps alone: longer ones stay within the plan, and the updates that were tried moved the loss by less than
    half of what a line finds. A second look would be luckier with shuffled labels, too. So to pass it asks for more
    than the first: a rise CLEARLY above that of each of CHANCE_DRAWS trainings with shuffled labels. One that is
    TIMES_SHUFFLED theirs is left to the stages, which make all updates.
    """
    times, far = longer_steps(updates, planned_updates(subject))
    if times(updates) < LONGER ** (PARTS - 1) or _moved(subject, data, batches, updates) > SMALL * line.value:
        return None
    real = _after(subject, data, batches, rows, groups, updates, times)[0]
    if real.errors < SHOWN:
        return None
    chance = 0.0
    for seed in range(1, CHANCE_DRAWS + 1):
        shuffled = _after(subject, _shuffled(data, seed), batches, rows, groups, updates, times)[0]
        chance = max(chance, abs(shuffled.value))
        if not real.value >= TIMES_SHUFFLED * chance:
            return None
    evidence = (
        f"{len(groups.of_rows)} held-out rows, permuted {groups.where}: the loss rises by {real} after {updates} "
        f"updates that go as far as {far:,.0f} at the declared rate, by {chance:.4f} at most after as many with "
        f"shuffled labels, {CHANCE_DRAWS} times"
    )
    if real.value >= CLEARLY * chance:
        return Outcome("pass", evidence, real.value, CLEARLY * chance)
    why = "something is learned, in steps too small to show here that it is more than chance"
    return Outcome("insufficient", f"{evidence}: {why}", real.value, CLEARLY * chance, answered_by="references")


def _moved(subject: Subject, data: TrainData, batches: list[Tensor], updates: int) -> float:
    """By how much so many updates at the declared rate change the loss of a few batches that they train on."""
    some = batches[:LOOKED_AT]
    measured = measuring(subject, outputs_of(subject, subject.model().eval(), data, some))
    fitted = fit(subject, data, batches, lambda loss, done: done >= updates, every=updates)
    return abs(mean_loss(measured, fitted.state.model, data, some) - mean_loss(measured, subject.model(), data, some))


def _not_shown(evidence: str, real: Rise, chance: float, line: Rise, rows: int) -> Outcome:
    evidence += f"; a line over the held-out rows themselves finds {line}"
    if line.errors >= LINE_SHOWN and (real.errors < NOT_SEEN or real.value < chance):
        return Outcome("fail", evidence, real.value, TIMES_SHUFFLED * chance)
    if rows < FEWEST_ROWS and line.errors < SHOWN:
        return Outcome("not_applicable", f"{evidence}; so few rows cannot tell a weak signal from none")
    why = "a signal that is weak or hard to find, or labels that do not belong to the rows"
    # The stages train on more rows and permute in the same way.
    return Outcome("insufficient", f"{evidence}: {why}", real.value, TIMES_SHUFFLED * chance, answered_by="references")


def _after(
    subject: Subject,
    data: TrainData,
    batches: list[Tensor],
    rows: list[Tensor],
    groups: HeldOutGroups,
    updates: int,
    times: Callable[[int], float] = lambda done: 1.0,
) -> tuple[Rise, int]:
    """The rise after so many updates, or those that there was time for; `times` is as of fit."""
    fitted = fit(subject, data, batches, lambda loss, done: done >= updates, every=updates, times=times)
    return rise_of(_outputs(subject, fitted.state.model, rows), groups), fitted.updates


def _shuffled(data: TrainData, seed: int) -> TrainData:
    order = torch.randperm(len(data.targets), generator=torch.Generator().manual_seed(seed))
    return TrainData(data.inputs, data.targets[order.to(data.targets.device)])


def _held_out(subject: Subject) -> tuple[list[Tensor], HeldOutGroups]:
    """Batches of at most HELD_OUT_ROWS rows, and the rows' groups in this order."""
    batches = full_batches(
        subject, subject.held_out, HELD_OUT_ROWS // BATCH_ROWS, fewer_of_places(subject, BATCH_ROWS), seed=3
    )
    rows = torch.cat(batches).cpu().numpy()
    of_rows = rows if subject.groups is None else np.asarray(subject.groups)[rows]
    labels = subject.held_out.targets[torch.cat(batches)].cpu().numpy()
    return batches, HeldOutGroups(of_rows, groups_to_permute(of_rows, labels, within=subject.split_by_time))


def _outputs(subject: Subject, model: nn.Module, rows: list[Tensor]) -> Outputs:
    """Outputs for the held-out rows in evaluation mode, or with the batches' own statistics if the loss is lower."""
    outputs = judged(subject, model, subject.held_out, rows)
    if not any(True for _ in model.buffers()):
        return outputs
    with batch_statistics(model):
        other = outputs_of(subject, model, subject.held_out, rows)
    return other if float(other.losses().mean()) < float(outputs.losses().mean()) else outputs


SHIFTED_ROWS, SHIFTED_BATCH_ROWS, SHIFTS = 4096, 64, (1, -1, 2, -2)
# Standard errors of a line with the neighbours' labels; as many times what it finds with the rows' own.
PLAIN, TIMES = 6.0, 4.0
# Standard errors that a line over the held-out rows finds with their own labels, so that theirs are right.
SHIFT_SHOWN, SHIFT_NOT_SEEN = 3.0, 1.5
# Standard errors between what it finds in the two parts.
SHIFT_ABOVE = 4.0


def labels_of_neighbours(subject: Subject, evidence: str, real: Rise, held_out: Rise) -> Outcome | None:
    """What is wrong if the training rows' inputs tell the labels of the rows beside them, or none, and not their own.

    Where the held-out rows' inputs do not tell their own either, it may be a forecast of what cannot be told.
    """
    size = min(SHIFTED_BATCH_ROWS, len(subject.training.targets))
    count = min(len(subject.training.targets), SHIFTED_ROWS) // size * size
    rows = list(torch.arange(count, device=subject.device).split(size))
    blocks = np.arange(count) // (size // 2 or 1)
    groups = HeldOutGroups(blocks, blocks)

    def rise_at(shift: int) -> Rise:
        moved = TrainData(subject.training.inputs, subject.training.targets.roll(shift, 0))
        return line_rise(subject, moved, rows, groups)

    own, (best, shift) = (
        rise_at(0),
        max(((rise_at(shift), shift) for shift in SHIFTS), key=lambda rise_and_shift: rise_and_shift[0].errors),
    )
    statement = f"{evidence}; a line over {count} training rows finds {own} with their own labels"
    if best.errors >= PLAIN and best.value >= TIMES * abs(own.value):
        where = f"{abs(shift)} row{'s' * (abs(shift) > 1)} {'before' if shift > 0 else 'after'}"
        cause = "the labels were moved against the rows: a join or a shift that is off by so many rows"
        fix = "join labels to rows by a key, and compare a few rows with their labels at the source"
        status = "fail" if held_out.errors >= SHIFT_SHOWN else "insufficient"
        if status == "insufficient" and shift > 0:
            # Of a series the inputs may well hold the label before: that fits, and tells nothing of the next one.
            cause += f"; or an input holds the label of {where}, as a lag does, and their own are hard to tell"
            fix += "; of a lag nothing is wrong with the rows: inputs that tell the next label are what is missing"
        return Outcome(status, f"{statement}, and {best} with those of {where}", real.value, None, cause, fix)
    if held_out.errors >= SHIFT_SHOWN and own.errors < SHIFT_NOT_SEEN and held_out.above(own) >= SHIFT_ABOVE:
        return Outcome("fail", f"{statement}, and over the held-out rows {held_out}", real.value, None)
    return None
