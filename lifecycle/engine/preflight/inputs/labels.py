"""Do the labels fit the loss and the head?

The loss itself is asked, on the CPU, since a class beyond the head ends a CUDA process: it is given the rows with the
extreme labels, and outputs that no healthy loss rewards without bound.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.inputs.loss_probe import (
    LossProbe,
    ask,
    class_count,
    extreme_rows,
    is_used,
    rows_of,
    shown,
)
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.output_range import is_confined
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Outcome

FEWEST_ROWS = 20
# Outputs as confident as logits get, or probabilities, and less so; a loss that falls from one to the other, to below
# UNBOUNDED, has no lower bound.
FURTHER = ((-50.0, -100.0), (50.0, 100.0), (1e-3, 1e-6), (1 - 1e-3, 1 - 1e-6))
UNBOUNDED = -5.0
# Of all labels, for a class that the loss ignores to be a real one.
MANY = 0.02


# Of numbers there is no class for a head to lack.
_NOT_FINITE = (
    "a logarithm, root or division in the loss of outputs that may be zero or below, or labels that are missing",
    "give the loss what it reads: raw outputs for one that takes logits or logarithms (log_input=True), else outputs "
    "that are bounded; leave out rows without a label",
)


def labels_in_range(subject: Subject) -> Outcome:
    """More than one label, each within the head and the loss's range."""
    values = subject.training.targets.flatten().cpu()
    if subject.claims.labels == "unused":
        return Outcome("not_applicable", "declared: the loss needs no labels")
    few = Outcome("insufficient", f"{len(subject.training.targets)} rows say nothing about the labels")
    beyond = _beyond_head(subject)
    if beyond is not None:
        return beyond
    probe = ask(subject)
    if not bool(probe.losses.isfinite().all()):
        rows = int((~probe.losses.isfinite()).sum())
        evidence = f"the fresh network's loss is not finite on {rows} of {len(probe.losses)} rows"
        cause, fix = _NOT_FINITE if _are_numbers(subject) else ("", "")
        return Outcome("fail", f"{shown(subject, values.unique())}: {evidence}", cause=cause, fix=fix)
    unbounded = _unbounded(probe)
    if unbounded is not None:
        return unbounded
    counted = _counted(probe, values)
    if len(counted) > 1:
        return (
            _one_sided(probe, counted) or _ignored(probe) or Outcome("pass", f"{shown(subject, counted)} fit the loss")
        )
    if not _reads_labels(probe):
        return Outcome("pass", "the loss is the same for other labels")
    if len(subject.training.targets) < FEWEST_ROWS:
        return few
    only = shown(subject, counted) if len(counted) else "an ignored label"
    cause = "rows cut from one end of sorted data, a label column that was overwritten, or a wrong positive class"
    return Outcome("fail", f"all of {len(values):,} labels are {only}", len(counted), 2, cause=cause)


def _are_numbers(subject: Subject) -> bool:
    targets = subject.training.targets
    is_known = subject.kind is not None and not subject.kind.classes
    return is_known and targets.is_floating_point()


def _beyond_head(subject: Subject) -> Outcome | None:
    """Class numbers beyond the head that the loss refuses, or takes for another class; None if there is none.

    A loss that takes one for what it is has more labels than outputs: ordinal ranks have a threshold less.
    """
    seed_torch(0)
    inputs, targets = rows_of(subject.training, extreme_rows(subject), "cpu")
    with torch.no_grad():
        outputs = subject.build().eval()(inputs)
    classes = class_count(subject, outputs, targets)
    every = subject.training.targets
    if classes < 2 or bool(((every >= 0) & (every < classes)).all()):
        return None
    outside = every[(every < 0) | (every >= classes)].unique().cpu()
    used = [int(value) for value in outside[:20] if _mistaken(subject, outputs.float(), targets, float(value), classes)]
    if not used:
        return None
    fix = f"map the labels to 0 … {classes - 1}, or give the head {int(every.max()) + 1} outputs"
    if int(every.min()) == 1 and int(every.max()) == classes:
        fix = "the labels start at 1: subtract 1, so that they run from 0"
    evidence = f"the head has {classes} classes, and labels run from {int(every.min())} to {int(every.max())}"
    return Outcome("fail", f"{evidence}; the loss refuses labels {used[:5]} or takes them for others", used[-1],
                   classes - 1, fix=fix)  # fmt: skip


def _mistaken(subject: Subject, outputs: Tensor, targets: Tensor, value: float, classes: int) -> bool:
    """Whether the loss refuses this label, or uses it and gives it the same as a class of the head."""
    probe = LossProbe(subject, targets, outputs, outputs)

    def with_label(label: float) -> Tensor | None:
        # In half of a row's points: a mean over those that are not ignored needs some.
        given = targets.clamp(0, classes - 1)
        given[(slice(None), slice(0, (given.shape[1] + 1) // 2)) if given.ndim > 1 else ...] = label
        return probe.loss_at(outputs, given)

    loss = with_label(value)
    if loss is None or not bool(loss.isfinite().all()):
        return True
    if not is_used(subject, outputs, targets, value):
        return False
    return any((other := with_label(number)) is not None and other.equal(loss) for number in range(classes))


def _ignored(probe: LossProbe) -> Outcome | None:
    """A frequent class of the head that pulls at no output while others do: an ignore_index that is a real class.

    Of one class a row that is a fault. Points may be left out on purpose; padding, at rows' ends, always is.
    """
    every = probe.subject.training.targets
    classes = class_count(probe.subject, probe.outputs, probe.targets)
    if classes < 2:
        return None
    labels, counts = every.unique(return_counts=True)
    frequent = [float(v) for v, n in zip(labels, counts, strict=True) if 0 <= v < classes and n >= MANY * every.numel()]
    unused = [v for v in frequent if not is_used(probe.subject, probe.outputs, probe.targets, v)]
    unused = [v for v in unused if not _is_padding(every, v)]
    if not unused or len(unused) == len(frequent):
        return None
    share = sum(float((every == value).float().mean()) for value in unused)
    evidence = f"labels {[int(v) for v in unused[:5]]}, {share:.0%} of all, get no gradient, and lie within the head"
    cause = "ignore_index or a class weight of 0 leaves out a real class"
    fix = "take a number beyond the head as ignore_index, or give the class its weight"
    severity = "error" if every.ndim == 1 else "warning"
    return Outcome("fail", evidence, len(unused), 0, cause, fix, severity=severity)


def _is_padding(every: Tensor, value: float) -> bool:
    """Whether a label of sequences (N, T) stands in one run at the rows' ends, or at their beginnings, alone."""
    if every.ndim != 2:
        return False
    padded = every == value
    after, before = padded[:, 1:], padded[:, :-1]
    return bool((after | ~before).all()) or bool((before | ~after).all())


def _unbounded(probe: LossProbe) -> Outcome | None:
    """Labels that a two-class loss rewards without bound, found by asking for the same with labels of 0 and 1.

    Outputs that never come so far, as directions and a tanh do not, are not asked for.
    """
    outputs, targets = probe.outputs, probe.targets
    if not isinstance(outputs, torch.Tensor) or outputs.numel() != targets.numel():
        return None
    within = (targets > 0.5).to(targets.dtype)
    for near, far in FURTHER:
        given = [probe.loss_at(outputs * 0 + value, targets) for value in (near, far)]
        bounded = probe.loss_at(outputs * 0 + far, within)
        if given[0] is None or given[1] is None or bounded is None:
            continue
        # Ever lower, and not only low: a Poisson loss is below zero at its least.
        falls = (given[1] < UNBOUNDED) & (given[1] < given[0] - 1)
        if bool(falls.any()) and float(bounded.min()) > UNBOUNDED / 10 and not is_confined(probe.subject):
            labels = shown(probe.subject, probe.subject.training.targets.unique())
            fix = "make the labels 0 and 1: a loss for two classes has no lower bound for others"
            return Outcome("fail", f"{labels}, and the loss falls on and on, at outputs of {far:.3g} too", fix=fix)
    return None


def _one_sided(probe: LossProbe, counted: Tensor) -> Outcome | None:
    """Two labels on one side of 1/2 for a loss between two classes, such as a mask of 0 and 1 divided by 255."""
    same_side = len(counted) == 2 and (float(counted[1]) < 0.5 or 0.5 < float(counted[0]) < 1)
    outputs = probe.outputs
    if not same_side or float(counted[0]) < 0 or not isinstance(outputs, torch.Tensor):
        return None
    if outputs.numel() != probe.targets.numel():
        return None
    # Of a loss between two classes the sum for 0 and 1 is the logit's size; a squared error's grows with its square.
    sums = [
        probe.loss_at(outputs * 0 + value, probe.targets * 0 + label) for value in (50.0, 100.0) for label in (0.0, 1.0)
    ]
    if any(loss is None for loss in sums):
        return None
    half, whole = (float(sums[i].mean() + sums[i + 1].mean()) for i in (0, 2))  # type: ignore[union-attr]
    if not 1.5 < whole / max(half, 1e-9) < 2.5:
        return None
    evidence = f"{shown(probe.subject, counted)}, both on one side of 1/2"
    return Outcome("fail", evidence, fix="make the labels 0 and 1")


def _counted(probe: LossProbe, values: Tensor) -> Tensor:
    """The different labels that the loss does not ignore, ascending."""
    labels = values[values.isfinite()].unique() if values.is_floating_point() else values.unique()
    if not isinstance(probe.outputs, torch.Tensor) or len(labels) > 50 or labels.dtype == torch.bool:
        return labels
    classes = class_count(probe.subject, probe.outputs, probe.targets)
    if classes < 2:
        return labels
    valid = [0 <= float(v) < classes or is_used(probe.subject, probe.outputs, probe.targets, float(v)) for v in labels]
    return labels[torch.tensor(valid)]


def _reads_labels(probe: LossProbe) -> bool:
    """Whether another label changes the loss; a loss that refuses it has read it."""
    targets = probe.targets
    other = ~targets if targets.dtype == torch.bool else torch.where(targets == 0, targets + 1, targets * 0)
    losses = probe.loss_at(probe.outputs, other)
    return losses is None or not torch.equal(losses, probe.losses.detach())


CHECKS = (check_of("inputs.labels_in_range", labels_in_range),)
