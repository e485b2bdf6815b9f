"""Does a sequence model see what it is to predict? Positions after a cut get other values; outputs before it must stay.

Also where nothing is claimed: targets that are the inputs of later positions make no sense otherwise. How far ahead a
target lies of the output that is held to it comes from the data (which input position holds the target) and from the
loss (at which output position the target changes the gradient). So a shift may be in the data or in the loss.
"""

from __future__ import annotations

import difflib
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import (
    at_rest,
    few,
    floats,
    forward,
    largest,
    other_rows,
    stirred,
)
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.check import Outcome

# Shifts that are looked for between inputs and targets, and the share of telling positions that must agree.
SHIFTS, AGREE = 4, 0.95
# Share of what the changed positions' own outputs change: 0 in a causal network, since masked weights are exactly 0.
TOLERANCE = 1e-4
# Of all that a target changes of a loss, the share at one position, by which it is held to that position. A loss that
# compares mixtures of positions (features of a picture, whose first dimension is colours) holds it to none.
AT_ONE = 0.5


def causal(subject: Subject) -> Outcome:
    """For each claimed input, and each whose later positions are the targets."""
    data = few(subject)
    unknown = [name for name in subject.claims.causal if name not in data.inputs]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(data.inputs), 1)
        fix = f"name an input of to_tensors in preflight.causal: {', '.join(near or data.inputs)}"
        return Outcome("fail", f"{', '.join(unknown)} is no input", len(unknown), 0, cause="a misspelt claim", fix=fix)
    model = stirred(subject.model())
    ahead = {name: shift for name in data.inputs if (shift := _ahead(subject, model, name)) is not None}
    names = [name for name in data.inputs if name in subject.claims.causal or ahead.get(name, 0) > 0]
    if not names:
        return Outcome("not_applicable", "no input is claimed to be causal, and the targets are no later inputs")
    reports, worst = [], Outcome("pass", "")
    for name in names:
        if ahead.get(name, 1) <= 0:
            evidence = f"the target of a position is the value of {name} that this position is given"
            cause = "inputs and targets are not shifted against each other: the network only has to copy"
            return Outcome("fail", evidence, ahead[name], 1, cause=cause, fix="hold position t to the value of t + 1")
        outcome = _blind(subject, model, data, name, ahead.get(name, 1))
        worst = outcome if _RANK[outcome.status] > _RANK[worst.status] else worst
        reports.append(outcome.evidence)
    return worst if worst.status != "pass" else Outcome("pass", "; ".join(reports), 0.0, TOLERANCE)


_RANK = {"pass": 0, "insufficient": 1, "fail": 2}


def _ahead(subject: Subject, model: nn.Module, name: str) -> int | None:
    """How many positions the input that holds a target lies ahead of the output held to it; None if none holds it.

    0: the output's own position holds it. Of an input that is not claimed to be causal, 0 counts as none, since an
    autoencoder gives back what it was given.
    """
    known = few(subject, 256)
    targets, values = known.targets, known.inputs[name]
    shift = _shift(values, targets)
    if shift is None:
        return None
    held = _held(subject, model, few(subject))
    offset = None if held is None else shift + held
    return offset if name in subject.claims.causal or (offset or 0) > 0 else None


def _shift(values: Tensor, targets: Tensor) -> int | None:
    """The shift k at which targets[:, t] equals values[:, t + k], where no other shift says the same."""
    if values.ndim < 2 or targets.ndim < 2 or values.shape[1] != targets.shape[1] or values.shape[1] <= 2:
        return None
    if values.shape == targets.shape:
        channels = [values]
    elif values.ndim == 3 and targets.ndim == 2 and values.shape[2] <= 64:
        channels = list(values.unbind(2))
    else:
        return None
    for channel in channels:
        for shift in range(min(SHIFTS, values.shape[1] - 2) + 1):
            if _agrees(channel, targets, shift):
                return shift
    return None


def _agrees(values: Tensor, targets: Tensor, shift: int) -> bool:
    """Whether targets are the shifted values, judged where these differ from their neighbours.

    Places without a target (negative ones are left out of most losses) tell nothing; half of all must tell.
    """
    length = values.shape[1] - max(shift, 1)
    here, neighbour = values[:, shift : shift + length], values[:, (shift - 1 if shift else 1) :][:, :length]
    expected = targets[:, :length]
    telling = here != neighbour
    if not expected.is_floating_point():
        telling = telling & (expected >= 0)
    count = int(telling.sum())
    return (
        count >= 0.5 * int((here != neighbour).sum()) > 0 and float((here == expected)[telling].float().mean()) >= AGREE
    )


def _held(subject: Subject, model: nn.Module, data: TrainData) -> int | None:
    """Where the target of a position meets the outputs, as target position minus output position; None if unclear.

    Unclear is also where it changes the loss at one position no more than at all others together.
    """
    length, place = data.targets.shape[1], data.targets.shape[1] // 2
    with torch.no_grad():
        outputs = forward(model.eval(), data.inputs)
    main = _by_position(outputs, length)
    if main is None:
        return None
    leaf = main.detach().requires_grad_()
    changed = data.targets.clone()
    changed[:, place] = other_rows(subject, len(changed)).targets[:, (place + 1) % length]
    if changed.equal(data.targets):
        return None
    gradients = []
    for targets in (data.targets, changed):
        with same_random_numbers():
            loss = subject.recipe.loss_fn(_as_given(outputs, leaf), targets).mean()
        gradients.append(torch.autograd.grad(loss, leaf)[0])
    moved = (gradients[1] - gradients[0]).abs().flatten(2).sum((0, 2)) if leaf.ndim > 2 else (
        gradients[1] - gradients[0]
    ).abs().sum(0)  # fmt: skip
    return place - int(moved.argmax()) if moved.max() > AT_ONE * moved.sum() else None


def _as_given(outputs: Any, leaf: Tensor) -> Any:
    """The outputs as the network gave them, with the leaf by position in the first one's place."""
    leaves, structure = tree_flatten(outputs)
    at = next(at for at, output in enumerate(leaves) if isinstance(output, torch.Tensor) and output.is_floating_point())
    given = leaves[at]
    length = leaf.shape[1]
    dim = _position_dim(given, length)
    assert dim is not None
    leaves[at] = leaf.movedim(1, dim)
    return tree_unflatten(leaves, structure)


def _by_position(outputs: Any, length: int) -> Tensor | None:
    """The first output as (N, T, ...), T being `length` or one less; None if it has no such dimension."""
    output = next(iter(floats(outputs)), None)
    if output is None:
        return None
    dim = _position_dim(output, length)
    return None if dim is None else output.movedim(dim, 1)


def _position_dim(output: Tensor, length: int) -> int | None:
    dims = [dim for size in (length, length - 1) for dim in range(1, output.ndim) if output.shape[dim] == size]
    return dims[0] if dims else None


def _blind(subject: Subject, model: nn.Module, data: TrainData, name: str, ahead: int) -> Outcome:
    """Whether outputs up to a position stay when the input changes from `ahead` positions later on."""
    values = data.inputs[name]
    if values.ndim < 2 or values.shape[1] <= ahead:
        return Outcome("insufficient", f"{name} has no positions to tell apart: {tuple(values.shape)}", required=True)
    length, worst = values.shape[1], (0.0, "", 0)
    strangers = other_rows(subject, len(values)).inputs[name].flip(1)
    for mode in ("evaluation", "training") if subject.batch_rows() > 1 else ("evaluation",):
        model.train(mode == "training")
        with torch.no_grad(), at_rest(model, data, subject.recipe.loss_fn):
            plain = _by_position(forward(model, data.inputs), length)
            if plain is None:
                return Outcome(
                    "insufficient", f"no dimension of the outputs has the {length} positions of {name}", required=True
                )
            for cut in sorted({0, length // 2, length - 1 - ahead}):
                changed = values.clone()
                changed[:, cut + ahead :] = strangers[:, cut + ahead :]
                other = _by_position(forward(model, {**data.inputs, name: changed}), length)
                assert other is not None
                difference = (other - plain).float()
                before, after = largest(difference[:, : cut + 1]), largest(difference[:, cut + 1 :])
                scale = max(after, 1e-5 * largest(plain), 1e-12)
                worst = max(worst, (before / scale, mode, cut))
    share, mode, cut = worst
    if share > TOLERANCE:
        evidence = f"in {mode} mode outputs up to position {cut} change with {name} from position {cut + ahead} on"
        return Outcome("fail", f"{evidence}: by {share:.2g} times what later outputs change", share, TOLERANCE)
    return Outcome("pass", f"outputs do not change with later positions of {name}")
