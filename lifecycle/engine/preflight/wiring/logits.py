"""Can the outputs go where the loss wants them, and can predictions? A squashed output that is squashed again can not.

The last layers are blown up by factors of thousands: an output that does not follow is confined, and its reach is what
was seen. Then each row's loss is minimised over the outputs themselves, within that reach and freely. No parameter is
trained. A loss function that squashes what it is given is asked first, by outputs that are free (loss_floor.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from trainworthy.lifecycle.engine.outputs.pytree import row_places
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.loss_floor import (
    LossOf,
    cut_logits,
    endless,
    held_losses,
    loss_of_outputs,
    lowest_loss_within,
    other_axis,
    without_logarithm,
)
from trainworthy.lifecycle.engine.preflight.wiring.output_range import (
    SHRUNK,
    Box,
    last_layers,
    pushed_outputs,
    reach_of,
    traced,
    widened,
)
from trainworthy.lifecycle.engine.preflight.wiring.passes import FEW_ROWS, few, stirred
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.sampling import evenly_spaced

# Rows among which different targets are looked for.
SEARCHED = 1024
# Share of the loss's room that the reach costs. Measured: sigmoid or softmax twice 0.5 to 1, a clamp at 10 0.0001.
TOO_FAR, WITHIN = 0.1, 0.02
# A row's lowest loss against the one at outputs of 0, where the loss has an upper end. Measured: twice squashed 0.45 to
# 0.75, a Brier score 0, losses that know of a tenth of wrong labels 0.15.
ALL_IN_VAIN, MAYBE_MEANT = 0.4, 0.3


def logits(subject: Subject) -> Outcome:
    """Loss at the best outputs within reach against the best of all, and the ends that predictions reach."""
    if subject.claims.rows == "together":
        return Outcome(
            "not_applicable", "declared: the loss compares rows, so that no row has a best output of its own"
        )
    model, data = stirred(subject.model()).eval(), _different_rows(subject)
    base, ended = traced(model, data)
    places = row_places(tree_leaves(base), len(data.targets))
    if not places:
        return Outcome(
            "not_applicable", "no output has a part of each row, so that no row has a best output of its own"
        )
    own, loss_of = _chosen(base, places), loss_of_outputs(subject, base, places, data.targets)
    wrong = _held_by_the_loss(loss_of, own) or without_logarithm(loss_of, own, data.targets)
    wrong = wrong or other_axis(loss_of, own, data.targets)
    if wrong is not None:
        return wrong
    layers = last_layers(ended, own)
    pushed = pushed_outputs(model, data, layers)
    box = reach_of([[_chosen(outputs, places) for outputs in some] for some in pushed])
    if all(not bool(low.isfinite().any() | high.isfinite().any()) for low, high in box):
        return Outcome("pass", "outputs are not confined: they follow the last layers' size without bound", "none")
    met = [base, *pushed_outputs(model, data, layers, SHRUNK)[0]]
    box = widened(box, [_chosen(outputs, places) for outputs in met])
    reach = f"outputs stay within {_bounds(box)}"
    blocked = _predictions(subject, [*pushed, met])
    if blocked is not None:
        evidence = f"{reach}, so that predictions stay within {blocked[0]:.3g} and {blocked[1]:.3g}"
        return Outcome("fail", evidence, blocked[1], 1.0)
    given = [[_chosen(outputs, places) for outputs in some] for some in pushed]
    cut = cut_logits(loss_of, own, box, given)
    return cut or _judged(loss_of, own, box, reach)


def _judged(loss_of: LossOf, outputs: list[Tensor], box: Box, reach: str) -> Outcome:
    """Whether the loss within reach comes near to its own minimum."""
    start = [output.detach().float().cpu() for output in outputs]
    try:
        now = float(loss_of(start).detach().mean())
        lowest = [lowest_loss_within(loss_of, start, bounds) for bounds in (box, endless(start))]
    except (RuntimeError, ValueError):
        return Outcome("pass", f"{reach}, and the loss takes no others")
    within, free = (None if losses is None else float(losses.mean()) for losses in lowest)
    if within is None or free is None or free < min(0.0, within) - 0.01:
        return Outcome("pass", f"{reach}, and the loss needs it: without, it has no lower bound")
    share = (within - free) / max(now - free, 1e-6)
    evidence = f"{reach}: the loss of {len(start[0])} rows can't fall below {within:.4g}; its own minimum is {free:.4g}"
    if share > TOO_FAR:
        return Outcome("fail", evidence, share, TOO_FAR)
    if share > WITHIN:
        return Outcome("insufficient", f"{evidence}, which may be meant", share, WITHIN)
    return Outcome("pass", f"{reach}, which lets the loss fall to {within:.4g} of at least {free:.4g}", share, TOO_FAR)


def _held_by_the_loss(loss_of: LossOf, outputs: list[Tensor]) -> Outcome | None:
    """What is wrong if the loss itself is held between two ends, for any outputs, and the lower one is high."""
    start = [output.detach().float().cpu() for output in outputs]
    try:
        ends = held_losses(loss_of, start)
    except (RuntimeError, ValueError, IndexError):
        # A loss that takes no such outputs; those that the network gives are asked below.
        return None
    if ends is None or not bool((ends[1] > 0).all()):
        return None
    # Of the row that has it best: targets that are mixed, or out of reach, hold some rows' losses up.
    share = float((ends[0] / ends[1]).min())
    if not share > MAYBE_MEANT:
        return None
    lowest, neutral, highest = (float(end.mean()) for end in ends)
    evidence = (
        f"for any outputs the loss of {len(ends[0])} rows stays between {lowest:.4g} and {highest:.4g}; "
        f"for outputs of 0 it is {neutral:.4g}"
    )
    cause = "loss_fn squashes the outputs (sigmoid, softmax, tanh) and gives them to a loss that squashes them again"
    status = "fail" if share > ALL_IN_VAIN else "insufficient"
    return Outcome(status, evidence, share, ALL_IN_VAIN, cause, "give the raw outputs to a loss with logits in loss_fn")


def _different_rows(subject: Subject) -> TrainData:
    """A few rows, of as many different targets as there are."""
    known = few(subject, SEARCHED)
    targets = known.targets
    keys = targets.flatten(1).double().mean(1) if targets.ndim > 1 else targets.double()
    values, first = keys.cpu().unique(return_inverse=True)
    order = first.argsort(stable=True)
    starts = torch.from_numpy(evenly_spaced(len(order), FEW_ROWS))
    rows = order[starts]
    if 1 < len(values) <= FEW_ROWS // 2:
        # Of a rare label, too.
        rows[: len(values)] = torch.stack([(first == value).int().argmax() for value in range(len(values))])
    return known.take(rows.to(targets.device))


def _chosen(outputs: Any, places: list[int]) -> list[Tensor]:
    leaves = tree_leaves(outputs)
    return [leaves[at] for at in places]


def _predictions(subject: Subject, pushed: list[list[Any]]) -> tuple[float, float] | None:
    """Lowest and highest predicted probability over all pushes, if they leave out an end."""
    if subject.predict is None or (subject.kind is not None and not subject.kind.classes):
        return None
    with torch.no_grad():
        probabilities = torch.cat([subject.predict(outputs).reshape(-1).float() for some in pushed for outputs in some])
    low, high = float(probabilities.min()), float(probabilities.max())
    return (low, high) if low > TOO_FAR or high < 1 - TOO_FAR else None


def _bounds(box: Box) -> str:
    low, high = min(float(low.min()) for low, _ in box), max(float(high.max()) for _, high in box)
    return f"{low:.4g} and {high:.4g}"
