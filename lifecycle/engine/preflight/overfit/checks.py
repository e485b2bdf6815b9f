"""Overfit ten small batches: a network that cannot learn a handful of rows by heart will learn nothing.

The losses to compare with are of the same rows and loss (reference_losses.py): the best output that is the same for
all rows, a line, and the lowest loss of any outputs. Half of the way from the first to the last is memorising. A small
network need not memorise noise, but has to come near to a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.learning_rate import ASCENDS, direction_of
from trainworthy.lifecycle.engine.preflight.overfit.fit import (
    BATCH_ROWS,
    CPU_SECONDS,
    MOST_WORK,
    WARM_UP,
    Fit,
    against_itself,
    batch_statistics,
    by_a_game,
    fit,
    full_batches,
    judged,
    outputs_of,
    planned_updates,
)
from trainworthy.lifecycle.engine.preflight.overfit.held_out import learns_for_unseen_rows
from trainworthy.lifecycle.engine.preflight.overfit.patience import Patience
from trainworthy.lifecycle.engine.preflight.overfit.reference_losses import (
    Yardsticks,
    loss_uses_labels,
    measure_yardsticks,
)
from trainworthy.lifecycle.engine.preflight.overfit.substituted_outputs import Outputs, measuring
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.best import of_places
from trainworthy.lifecycle.engine.preflight.wiring.passes import fewer_of_places
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Outcome

BATCHES = 10
# Near to the line is enough: a linear network under AdamW ended 0.3 % of the way short of it, a slow rate 1.3 %.
SHARE, OF_LINE, LEAST = 0.5, 0.9, 0.005
# Updates that a network must have had to be judged by what they brought: a picture network of 3.5e11 operations an
# update has one within the work that is tried.
FEWEST_UPDATES = 100
# What gets this share of the way to the target learns, but slowly: neither a pass nor a fault that is shown.
BETWEEN = 0.5
# Whether the planned updates suffice is what a stage shows, on more rows and unseen ones.
GO_ON = "go on: the stages' check references tells whether the planned updates suffice; a larger rate would tell sooner"
# Of the first loss: free outputs below it fall without end.
ENDLESS = -100.0
# Share of right pairs below which predictions go the wrong way round; by chance it is a half.
WRONG_WAY = 0.35
# Pairs of so many pixels are compared, a few million.
MOST_RANKED = 2_000
NO_ROWS = Outcome("not_applicable", "no output has a part of each row, so that there is no loss of the best outputs")


def overfits(subject: Subject) -> Outcome:
    """Train on ten batches until the target is met, or as long as that is waited for (patience.py)."""
    data, batches = _ten_batches(subject)
    start = _start(subject, data, batches)
    if not start.free:
        return NO_ROWS
    if not loss_uses_labels(subject, data, batches):
        return _falls(subject, data, batches, float(start.losses().mean()))
    measured = measuring(subject, start)
    marks = measure_yardsticks(measured, data, batches)
    if not marks.bounded:
        evidence = "the loss of one output for all rows falls without end: it has no lowest value"
        return Outcome("fail" if _backwards(subject, data, batches) else "insufficient", evidence, cause=_SIGN[0], 
                       fix=_SIGN[1], required=True)  # fmt: skip
    target = _target(marks)
    if not target < marks.constant:
        return Outcome(
            "insufficient", f"one output for all of the {start.rows} rows is as good as any: {marks.floor:.4f}"
        )
    begun = float(start.losses().mean())
    patience = Patience(begun, target, marks.constant, planned_updates(subject))
    fitted = _fitted(subject, data, batches, patience, measured)
    if _wrong_way(subject, fitted, data, batches):
        evidence = f"after {fitted.updates} updates, rows of the higher label have the lower answers"
        return Outcome("fail", evidence, cause=_SIGN[0], fix=_SIGN[1])
    evidence = (
        f"{start.rows} rows: loss {fitted.loss:.4f} after {_updates(fitted, patience)}, wanted {target:.4f}; the best "
        f"output that is the same for all rows has {marks.constant:.4f}, a line {marks.line:.4f}, any outputs "
        f"{marks.floor:.4f}"
    )
    learned = marks.constant - fitted.loss >= BETWEEN * (marks.constant - target)
    result = _outcome(evidence, fitted, patience, target, begun, learned)
    moved = abs(fitted.loss - begun) > LEAST * (marks.constant - marks.floor)
    if result.status == "fail" and moved:
        return against_itself(subject, fitted, result.evidence) or _of_an_ascent(subject, data, batches, result)
    return result


def _fitted(subject: Subject, data: TrainData, batches: list[Tensor], patience: Patience, measured: Subject) -> Fit:
    """The fit that is waited for; where longer steps than declared threw it off, as it was before them."""
    fitted = fit(subject, data, batches, patience, measured=measured, times=lambda done: patience.times)
    if not patience.jumped:
        return fitted
    good = patience.last_good
    return fit(subject, data, batches, lambda loss, done: done >= good, good, measured, times=patience.times_of)


def _of_an_ascent(subject: Subject, data: TrainData, batches: list[Tensor], failed: Outcome) -> Outcome:
    """The failure, with its cause where the optimizer's own first update goes to where the loss rises."""
    if not direction_of(subject, data.take(torch.cat(batches))).gain < 0:
        return failed
    return replace(failed, cause=ASCENDS[0], fix=ASCENDS[1])


def _outcome(
    evidence: str, fitted: Fit, patience: Patience, target: float, begun: float, learned: bool = False
) -> Outcome:
    """Passed at the target; failed if the updates show that all planned ones do not come there; else nothing is shown.

    What is not shown stops no step. `learned`: of the way to the target, as much was learned as needs an input.
    """
    if fitted.loss <= target:
        return Outcome("pass", evidence, fitted.loss, target)
    if learned or patience.cut_off:
        slowly = f"{evidence}: it learns, but slowly{patience.more(fitted.loss)}"
        return Outcome("insufficient", slowly, fitted.loss, target, fix=GO_ON, answered_by="references")
    if not fitted.ended:
        return Outcome("fail", evidence, fitted.loss, target)
    return _of_few(evidence, fitted, patience, target, begun)


def _of_few(evidence: str, fitted: Fit, patience: Patience, target: float, begun: float) -> Outcome:
    """Of updates of so much work that few were tried: failed if as many as are planned would not come there either."""
    counted = fitted.ended == "work"
    limit = f"{MOST_WORK:.0e} operations" if counted else f"{CPU_SECONDS:.0f} s of processor time on this machine"
    evidence += f": an update is so much work that no more fit into {limit}"
    if counted and fitted.updates >= FEWEST_UPDATES and not patience.may_reach(begun - fitted.loss):
        return Outcome(
            "fail", f"{evidence}, and what these brought is too little for all planned ones", fitted.loss, target
        )
    fix = (
        "try a smaller size of the network once, whose updates are less work: what is wrong with its parts shows there"
    )
    return Outcome("insufficient", evidence, fitted.loss, target, fix=fix, answered_by="references")


def _updates(fitted: Fit, patience: Patience) -> str:
    """How many were made, and how far they went if that is further."""
    far = patience.covered > 1.01 * fitted.updates
    return f"{fitted.updates} updates{f' that go as far as {patience.covered:,.0f} at the declared rate' * far}"


def _target(marks: Yardsticks) -> float:
    """Half of the way to the lowest loss, or most of the way to the line's, whichever is easier; never nothing."""
    whole = marks.constant - marks.floor
    easier = min(SHARE * whole, OF_LINE * (marks.constant - marks.line))
    return marks.constant - max(easier, LEAST * whole)


def _falls(subject: Subject, data: TrainData, batches: list[Tensor], before: float) -> Outcome:
    """A loss without labels has no yardstick but its start: does it fall?"""
    floor = measure_yardsticks(subject, data, batches).floor
    # Of a loss that the network gives itself, nothing tells how low it can go.
    way = before - min(floor, before) if floor > ENDLESS * max(1.0, abs(before)) else abs(before)
    target = before - 0.1 * way
    patience = Patience(before, target, before, planned_updates(subject))
    fitted = _fitted(subject, data, batches, patience, subject)
    evidence = (
        f"{sum(map(len, batches))} rows, a loss without labels: from {before:.4f} to {fitted.loss:.4f} after "
        f"{_updates(fitted, patience)}, wanted {target:.4f}"
    )
    if fitted.loss <= target and fitted.loss < before:
        return Outcome("pass", evidence, fitted.loss, target)
    if subject.claims.start == "trained" and fitted.loss <= before:
        return Outcome("pass", f"{evidence}; it starts trained, and is no worse", fitted.loss, target)
    game = by_a_game(subject, fitted, data.take(batches[0]), before, LEAST * way, evidence)
    # How low it can go nobody knows: an autoencoder of noise gains little, and what it gains is learned.
    learned = before - fitted.loss >= BETWEEN * (before - target)
    return game or _outcome(evidence, fitted, patience, target, before, learned)


def _ten_batches(subject: Subject) -> tuple[TrainData, list[Tensor]]:
    """The rows count alike: the yardsticks know no weights."""
    data = TrainData(subject.training.inputs, subject.training.targets)
    return data, full_batches(subject, data, BATCHES, fewer_of_places(subject, BATCH_ROWS))


def _start(subject: Subject, data: TrainData, batches: list[Tensor]) -> Outputs:
    return outputs_of(subject, subject.model().eval(), data, batches)


def _backwards(subject: Subject, data: TrainData, batches: list[Tensor]) -> bool:
    """After few updates: later all probabilities are 0 or 1, and ranks are ties."""
    fitted = fit(subject, data, batches, lambda loss, done: done >= WARM_UP, every=WARM_UP)
    return _wrong_way(subject, fitted, data, batches)


def _wrong_way(subject: Subject, fitted: Fit, data: TrainData, batches: list[Tensor]) -> bool:
    """Do answers rank the learned rows the wrong way round, in either mode?"""
    targets = torch.cat([data.targets[rows] for rows in batches])
    two_values = targets.dim() == 1 and set(targets.unique().tolist()) == {0.0, 1.0}
    if subject.predict is None or not (subject.kind is not None or two_values):
        return False
    axis = 1 if subject.kind is None else subject.kind.class_axis
    ranked = [right_pairs(subject.predict, judged(subject, fitted.state.model, data, batches), axis)]
    with batch_statistics(fitted.state.model):
        ranked.append(right_pairs(subject.predict, outputs_of(subject, fitted.state.model, data, batches), axis))
    return max(ranked) < WRONG_WAY


def right_pairs(predict: Callable[[Tensor], Tensor], outputs: Outputs, axis: int = 1) -> float:
    """Share of pairs of rows with different labels of which the one with the higher label has the higher answer.

    Of classes, the mean over classes of the share of pairs of which the row of that class has it more probable, a pixel
    or byte taken for a row (`axis` has the classes of the answers); of several labels a row, the mean over labels.
    """
    targets = torch.cat(outputs.targets)
    answers = torch.cat([predict(tree).float() for tree in outputs.trees()])
    if answers.ndim == 2 and answers.shape == targets.shape:
        return sum(_right(*columns) for columns in zip(answers.T, targets.T, strict=True)) / targets.shape[1]
    if answers.ndim == targets.ndim + 1 and not targets.is_floating_point():
        answers, targets = of_places(answers, targets, MOST_RANKED, axis)
        places = targets.unique().tolist()
        return sum(_right(answers[:, place], (targets == place).int()) for place in places) / len(places)
    return _right(answers.reshape(len(targets), -1).mean(dim=1), targets)


def _right(answers: Tensor, targets: Tensor) -> float:
    """Of answers (N,) and targets (N,); 1 where all targets are equal."""
    higher = targets[:, None] > targets[None, :]
    differences = (answers[:, None] - answers[None, :])[higher]
    return float((differences.sign().nan_to_num() + 1).mean() / 2) if len(differences) else 1.0


_SIGN = (
    "the loss has the wrong sign, or rewards the other label",
    "minimise the loss: minus the log-likelihood, minus a similarity; look for labels that are swapped",
)

CHECKS = (
    check_of("overfit.ten_batches", overfits),
    check_of("overfit.held_out", learns_for_unseen_rows),
)
