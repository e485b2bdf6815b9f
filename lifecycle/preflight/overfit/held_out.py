"""Does what a network learns from the labels hold for unseen rows?

The statistic survives a shifting base rate: the rise of the loss when labels are permuted within their groups. It is
taken on held-out rows after a short training, and again after the same training with shuffled labels: a random
direction correlates a little with anything, so that a significant rise alone says little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lifecycle.preflight.check import Found
from lifecycle.preflight.free_outputs import lowest_loss
from lifecycle.preflight.overfit.fit import batch_statistics, fit, full_batches, judged, outputs_of
from lifecycle.preflight.overfit.line import line_basis
from lifecycle.preflight.overfit.replaced import Outputs, linked_outputs
from lifecycle.preflight.overfit.yardsticks import loss_uses_labels
from lifecycle.preflight.subject import Subject
from lifecycle.training.judging.learned import PERMUTATIONS, permutations_within
from lifecycle.training.loop import TrainData

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

# Few updates are enough where the rise is then plain.
FEW_UPDATES, UPDATES, BATCH_ROWS, HELD_OUT_ROWS = 40, 200, 128, 4096
# Standard errors above 0 that show a rise; for a line on the held-out rows themselves, and below which none is seen.
SHOWN, LINE_SHOWN, NOT_SEEN = 3.0, 5.0, 1.5
# Measured on flights: 0.044 to 0.104 nats after a pilot, and -0.003 to 0.007 after one with shuffled labels.
TIMES_SHUFFLED, CLEARLY = 2.0, 6.0
# With fewer held-out rows a correlation of 0.2 stays below SHOWN standard errors.
FEWEST_ROWS = 225


@dataclass(frozen=True)
class Rise:
    """Mean rise of the loss by permutation, and how many standard errors, by group, it lies above 0."""

    value: float
    errors: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.errors:.1f} standard errors)"


def learns_for_unseen_rows(subject: Subject) -> Found:
    """The rise after training on the labels, on shuffled ones, at the start, and of a line."""
    rows, groups = _held_out(subject)
    if not loss_uses_labels(subject, subject.held_out, rows):
        unused = subject.claims.labels == "unused"
        return Found("not_applicable" if unused else "insufficient", "the loss is the same for any labels")
    data = TrainData(subject.training.inputs, subject.training.targets)
    batches = full_batches(subject, data, UPDATES, BATCH_ROWS, seed=2)
    real, updates = _after(subject, data, batches, rows, groups, FEW_UPDATES)
    if real.errors < 2 * SHOWN:
        real, updates = _after(subject, data, batches, rows, groups, UPDATES)
    shuffled = [_after(subject, _shuffled(data, 1), batches, rows, groups, updates)[0]]
    if TIMES_SHUFFLED <= real.value / max(abs(shuffled[0].value), 1e-12) < CLEARLY:
        # A rise of this size may be chance; with a second draw it seldom is.
        shuffled.append(_after(subject, _shuffled(data, 2), batches, rows, groups, updates)[0])
    start = rise_of(_outputs(subject, subject.model(), rows), groups)
    chance = max(abs(one.value) for one in shuffled)
    evidence = (
        f"{len(groups)} held-out rows, permuted within their groups: the loss rises by {real} after {updates} updates, "
        f"by {shuffled[0]} after as many with shuffled labels"
    )
    if real.errors >= SHOWN and (real.value >= TIMES_SHUFFLED * chance or start.value >= real.value / 2):
        return Found("pass", evidence, real.value, TIMES_SHUFFLED * chance)
    return _not_shown(evidence, real, chance, _line(subject, rows, groups), len(groups))


def _not_shown(evidence: str, real: Rise, chance: float, line: Rise, rows: int) -> Found:
    evidence += f"; a line over the held-out rows themselves finds {line}"
    if line.errors >= LINE_SHOWN and (real.errors < NOT_SEEN or real.value < chance):
        return Found("fail", evidence, real.value, TIMES_SHUFFLED * chance)
    if rows < FEWEST_ROWS and line.errors < SHOWN:
        return Found("not_applicable", f"{evidence}; so few rows cannot tell a weak signal from none")
    why = "a signal that is weak or hard to find, or labels that do not belong to the rows"
    return Found("insufficient", f"{evidence}: {why}", real.value, TIMES_SHUFFLED * chance)


def _after(
    subject: Subject, data: TrainData, batches: list[Tensor], rows: list[Tensor], groups: np.ndarray, updates: int
) -> tuple[Rise, int]:
    """The rise after so many updates, or those that there was time for."""
    found = fit(subject, data, batches, lambda loss, done: done >= updates, every=updates, judge=False)
    return rise_of(_outputs(subject, found.state.model, rows), groups), found.updates


def _shuffled(data: TrainData, seed: int) -> TrainData:
    import torch

    order = torch.randperm(len(data.targets), generator=torch.Generator().manual_seed(seed))
    return TrainData(data.inputs, data.targets[order.to(data.targets.device)])


def _held_out(subject: Subject) -> tuple[list[Tensor], np.ndarray]:
    """Batches of at most HELD_OUT_ROWS rows, and the rows' groups in this order."""
    import numpy as np
    import torch

    batches = full_batches(subject, subject.held_out, HELD_OUT_ROWS // BATCH_ROWS, BATCH_ROWS, seed=3)
    rows = torch.cat(batches).cpu().numpy()
    return batches, rows if subject.groups is None else np.asarray(subject.groups)[rows]


def _outputs(subject: Subject, model: nn.Module, rows: list[Tensor]) -> Outputs:
    """Outputs for the held-out rows in evaluation mode, or with the batches' own statistics if the loss is lower."""
    found = judged(subject, model, subject.held_out, rows)
    if not any(True for _ in model.buffers()):
        return found
    with batch_statistics(model):
        other = outputs_of(subject, model, subject.held_out, rows)
    return other if float(other.losses().mean()) < float(found.losses().mean()) else found


def rise_of(outputs: Outputs, groups: np.ndarray, values: dict[int, Tensor] | None = None) -> Rise:
    """Rise of the rows' losses when their targets are permuted within groups, the mean of a few permutations."""
    import numpy as np
    import torch

    targets, size = torch.cat(outputs.targets), len(outputs.targets[0])
    loss = outputs.losses(values).double()
    rise = torch.zeros_like(loss)
    for order in permutations_within(groups, seed=0):
        permuted = targets[torch.from_numpy(order).to(targets.device)]
        rise += (outputs.losses(values, permuted.split(size)).double() - loss) / PERMUTATIONS
    rises = rise.cpu().numpy()
    if not np.isfinite(rises).all():
        return Rise(0.0, 0.0)
    return Rise(float(rises.mean()), float(rises.mean()) / max(_standard_error(rises, groups), 1e-12))


def _standard_error(values: np.ndarray, groups: np.ndarray) -> float:
    """Of the mean; by group where these are enough for it."""
    import numpy as np

    from lifecycle.evaluation.interval import MINIMUM_GROUPS, mean_estimate

    if len(np.unique(groups)) >= MINIMUM_GROUPS:
        return mean_estimate(values, groups).standard_error
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("inf")


def _line(subject: Subject, rows: list[Tensor], groups: np.ndarray) -> Rise:
    """The rise of a line over the inputs, each half of the held-out groups by a fit on the other half.

    Fitted on the training rows it would be fooled by whatever is wrong with their labels.
    """
    import numpy as np
    import torch

    outputs = linked_outputs(subject, subject.held_out, rows)
    device = outputs.targets[0].device
    basis = line_basis(subject.held_out, outputs, rows)
    first = torch.from_numpy(np.unique(groups, return_inverse=True)[1] % 2 == 0).to(device)
    values = {place: torch.zeros_like(outputs.whole(place)) for place in outputs.free}
    for scored in (first, ~first):
        start = {n: torch.zeros(basis.shape[1], *value.shape[1:], device=device) for n, value in values.items()}

        def mean(parameters: dict[int, Tensor], fitted: Tensor = ~scored) -> Tensor:
            return outputs.losses(outputs.spread(basis, parameters))[fitted].mean()

        _, parameters = lowest_loss(start, mean)
        for place, value in outputs.spread(basis, parameters).items():
            values[place][scored] = value[scored].detach()
    return rise_of(outputs, groups, values)
