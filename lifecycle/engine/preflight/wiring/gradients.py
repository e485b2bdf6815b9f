"""Does every trainable parameter get a gradient and move, and does a frozen one stay?

Weights that begin at zero and keep each other there: the gradient of a product of zeros is zero for ever.

One factor of zeros is healthy (LoRA's B, a last layer, a gate): its gradient is the other factor's. Layers that wait
behind one another begin after an update each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainworthy.lifecycle.engine.outputs.autograd_graph import leaves_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.ema_teacher import ROWS, UPDATES, held_by, teachers, updates
from trainworthy.lifecycle.engine.preflight.wiring.one_answer import one_answer
from trainworthy.lifecycle.engine.preflight.wiring.passes import FEW_ROWS, few, largest, losses, stirred
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.gates.check import Outcome

# Stirring of each look, and whether it is in training mode. In evaluation mode no path is dropped; stirred by twice its
# own size a router of experts sends rows elsewhere.
LOOKS = ((0.1, True), (0.1, False), (2.0, True), (2.0, False), (2.0, True))
# An update below this share of the largest weight may be lost in float32.
FLOAT32 = 1e-6


def gradients(subject: Subject) -> Outcome:
    """Gradients of a stirred network, over several looks; then two updates of the one that will be trained."""
    model = subject.model()
    frozen = claimed_frozen(subject, model)
    quiet = _undeclared(model, frozen)
    copies = teachers(subject, quiet)
    undeclared = [name for name in quiet if name not in copies]
    if undeclared:
        evidence = f"{_named(undeclared)} {_have(undeclared)} requires_grad = False, and no claim says so"
        fix = "declare them in preflight.frozen, or let them train: requires_grad_(True)"
        cause = "parameters were frozen by accident, or the freezing is not declared"
        return Outcome("fail", evidence, len(undeclared), 0, cause=cause, fix=fix)
    trainable = [name for name, p in model.named_parameters() if p.requires_grad and name not in frozen]
    if not trainable:
        return Outcome("fail", "no parameter is trainable", 0, 1, cause="all parameters are frozen")
    missing, strangers = _without_gradient(subject, trainable)
    if strangers:
        evidence = f"{len(strangers)} tensors of shapes {_shapes(strangers)} get a gradient and are in no optimizer"
        cause = "layers in a plain list, dict or attribute: model.parameters() does not give them"
        return Outcome(
            "fail", evidence, len(strangers), 0, cause=cause, fix="use nn.ModuleList, nn.ModuleDict or nn.Parameter"
        )
    if missing:
        evidence = f"{_named(missing)} {_get(missing)} no gradient, of {len(trainable)} trainable parameters"
        why = one_answer(subject)
        return (
            replace(why, evidence=f"{why.evidence}: {evidence}") if why else Outcome("fail", evidence, len(missing), 0)
        )
    unmoved = _unmoved(subject, trainable)
    if unmoved is None:
        return Outcome("insufficient", "loss or gradient is not finite, so that no update was made", required=True)
    still, zeros = unmoved
    if zeros:
        evidence = f"{_named(zeros)} are zero and got gradients of exactly zero in {UPDATES + 1} updates"
        cause = "both factors of a product begin at zero: each one's gradient is the other, for ever"
        return Outcome(
            "fail", evidence, len(zeros), 0, cause=cause, fix="begin with one of the factors at zero, not both"
        )
    if still:
        evidence = f"{_named(still)} {_get(still)} a gradient and stay{'s' * (len(still) == 1)} as before"
        cause = "in no optimizer, or in a group whose learning rate is 0 or too small for the precision of its weights"
        fix = "give every trainable parameter to an optimizer, at a rate that moves it"
        return Outcome("fail", f"{evidence} after {UPDATES} updates", len(still), 0, cause=cause, fix=fix)
    noted = f"; {len(copies)} more are kept by the network itself, as a teacher's are" if copies else ""
    return Outcome("pass", f"all {len(trainable)} trainable parameters get a gradient and move{noted}", len(trainable))


def claimed_frozen(subject: Subject, model: nn.Module) -> set[str]:
    """Names of the parameters that the claims call frozen."""
    names = [name for name, _ in model.named_parameters()]
    return {name for name in names if any(fnmatchcase(name, pattern) for pattern in subject.claims.frozen)}


def _undeclared(model: nn.Module, frozen: set[str]) -> list[str]:
    """Weights that do not train, of torch's own layers, or of a layer whose like does train elsewhere.

    A constant that an own layer keeps as a parameter is healthy: a table of positions, for example.
    """
    all_of = [
        (path, module, name, p)
        for path, module in model.named_modules()
        for name, p in module.named_parameters(recurse=False)
    ]
    trained = {(type(module), name) for _, module, name, p in all_of if p.requires_grad}
    return [
        f"{path}.{name}".lstrip(".") for path, module, name, p in all_of
        if not p.requires_grad and f"{path}.{name}".lstrip(".") not in frozen
        and (type(module).__module__.startswith("torch.nn") or (type(module), name) in trained)
    ]  # fmt: skip


def _without_gradient(subject: Subject, trainable: list[str]) -> tuple[list[str], list[Tensor]]:
    """Parameters that no look gives a gradient, and trained tensors that neither model nor optimizers have."""
    missing, first = set(trainable), True
    strangers: list[Tensor] = []
    for seed, (share, training) in enumerate(LOOKS):
        if training and subject.batch_rows() == 1:
            continue
        model = stirred(subject.model(), share, seed).train(training)
        data = few(subject, max(FEW_ROWS, min(ROWS, subject.batch_rows())))
        row_losses = losses(model, data, subject.recipe.loss_fn, seed).losses
        if not row_losses.requires_grad:
            continue
        if first:
            strangers, first = _strangers(subject, model, row_losses), False
        row_losses.mean().backward()
        missing -= _reached(model)
        if not missing:
            break
    return [name for name in trainable if name in missing], strangers


def _reached(model: nn.Module) -> set[str]:
    """Parameters with a gradient that is not all zero, under all their names.

    Zeros are no fault where another parameter of the layer is reached: a bias before a normalisation has none. Of
    torch's own layers none at all is none either: a last bias drops out where the derivative is the output.
    """
    reached = set[str]()
    for path, module in model.named_modules():
        own = {f"{path}.{name}".lstrip("."): p for name, p in module.named_parameters(recurse=False)}
        known = {name: p.grad for name, p in own.items() if p.grad is not None}
        if any(_any(gradient) for gradient in known.values()):
            reached |= set(own) if type(module).__module__.startswith("torch.nn") else set(known)
    return reached


def _any(gradient: Tensor) -> bool:
    return bool(((gradient.coalesce().values() if gradient.is_sparse else gradient) != 0).any())


def _strangers(subject: Subject, model: nn.Module, row_losses: Tensor) -> list[Tensor]:
    """Leaves that the loss has a gradient at, and that neither the model nor an optimizer holds.

    Of plain tensors only those that a module keeps: an input whose derivative is a part of the loss is made anew.
    """
    # In lists and dicts too, which is where they are forgotten.
    kept_ids = {id(value) for module in model.modules() for value in tree_leaves(vars(module))}
    known = {id(parameter) for parameter in model.parameters()}
    held = {
        id(parameter)
        for optimizer in subject.optimizers(model) for group in optimizer.param_groups for parameter in group["params"]
    }  # fmt: skip
    leaves = (leaf for leaf in leaves_of(row_losses) if id(leaf) not in known | held)
    return [leaf for leaf in leaves if isinstance(leaf, nn.Parameter) or id(leaf) in kept_ids]


def _unmoved(subject: Subject, trainable: Iterable[str]) -> tuple[list[str], list[str]] | None:
    """Trainable parameters that two updates with a gradient leave as they were, bit for bit; None without updates.

    And those that begin at zero and keep each other there.
    """
    state = subject.state()
    known = dict(state.model.named_parameters())
    before = {name: known[name].detach().clone() for name in trainable}
    rates = {id(p): group["lr"] for o in state.optimizers for group in o.param_groups for p in group["params"]}
    pulled, zeros = set[str](), silent({name: known[name] for name in before})
    for finite in updates(subject, state):
        if not finite:
            return None
        zeros = without_pull(known, zeros)
        for name in before:
            gradient = known[name].grad
            if gradient is None or not _any(gradient):
                continue
            pull = rates.get(id(known[name]), 0.0) * largest(gradient.to_dense())
            if pull == 0 or pull > FLOAT32 * largest(before[name]):
                pulled.add(name)
    still = [name for name in before if name in pulled and known[name].equal(before[name])]
    return still, keep_each_other(subject, state, zeros)


def frozen(subject: Subject) -> Outcome:
    """Two updates; what the claims call frozen stays, bit for bit. Running statistics may move, and are told, and so
    may a teacher, which no optimizer moves."""
    if not subject.claims.frozen:
        return Outcome("not_applicable", "no parameter is claimed to be frozen")
    state = subject.state()
    names = [name for name, _ in state.model.named_parameters()]
    unmatched = [pattern for pattern in subject.claims.frozen if not any(fnmatchcase(name, pattern) for name in names)]
    if unmatched:
        evidence = f"no parameter is named {', '.join(unmatched)}; there are {', '.join(names[:5])}"
        fix = "write preflight.frozen as patterns of names in model.named_parameters(): backbone.*"
        return Outcome("fail", evidence, len(unmatched), 0, cause="a misspelt pattern in preflight.frozen", fix=fix)
    claimed = claimed_frozen(subject, state.model)
    before = {name: p.detach().clone() for name, p in state.model.named_parameters() if name in claimed}
    layers = [module for module in state.model.modules() if _all_frozen(module, state.model, claimed)]
    statistics = [(buffer, buffer.detach().clone()) for module in layers for buffer in module.buffers(recurse=False)]
    if not all(updates(subject, state)):
        return Outcome("insufficient", "loss or gradient is not finite, so that no update was made", required=True)
    moved = [name for name, p in state.model.named_parameters() if name in claimed and not p.equal(before[name])]
    known, held = dict(state.model.named_parameters()), held_by(state)
    by_optimizer = [name for name in moved if known[name].requires_grad or id(known[name]) in held]
    if by_optimizer:
        return Outcome("fail", f"{_named(by_optimizer)} moved in {UPDATES} updates", len(by_optimizer), 0)
    changing = sum(not buffer.equal(value) for buffer, value in statistics)
    noted = f"; {changing} buffers of theirs change in training" if changing else ""
    noted += f"; {_named(moved)} moved, and by no optimizer" if moved else ""
    stayed = len(claimed) - len(moved)
    return Outcome("pass", f"{stayed} frozen parameters stayed in {UPDATES} updates{noted}", 0, 0)


def _all_frozen(module: torch.nn.Module, model: torch.nn.Module, claimed: set[str]) -> bool:
    held = {id(parameter) for name, parameter in model.named_parameters() if name in claimed}
    own = list(module.parameters(recurse=False))
    return bool(own) and all(id(parameter) in held for parameter in own)


def _named(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _have(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _get(names: list[str]) -> str:
    return "gets" if len(names) == 1 else "get"


def _shapes(tensors: list[Tensor]) -> str:
    return ", ".join(dict.fromkeys("×".join(map(str, tensor.shape)) or "1" for tensor in tensors[:4]))


MOST_TRIED = 8


def silent(parameters: dict[str, nn.Parameter]) -> set[str]:
    """Weights of at least two dimensions that are all zero."""
    return {name for name, p in parameters.items() if p.ndim > 1 and p.numel() and not bool((p != 0).any())}


def without_pull(parameters: dict[str, nn.Parameter], names: set[str]) -> set[str]:
    """Those whose last gradient is there and all zero."""
    gradients = {name: parameters[name].grad for name in names}
    return {
        name
        for name, gradient in gradients.items()
        if gradient is not None and not bool((gradient.to_dense() != 0).any())
    }


def keep_each_other(subject: Subject, state: TrainState, names: set[str]) -> list[str]:
    """Those of the silent weights of which one gets a gradient as soon as another is not zero; after one more update.

    A weight that is silent for another reason, such as an expert that no row chose, is not reached that way.
    """
    known = dict(state.model.named_parameters())
    if len(names) < 2 or not all(updates(subject, state, 1)):
        return []
    names = without_pull(known, names) & silent({name: known[name] for name in names})
    linked = set[str]()
    for name in sorted(names)[:MOST_TRIED] if len(names) > 1 else ():
        reached = _reached_from(subject, state.model, known[name], {other: known[other] for other in names - {name}})
        linked |= {name, *reached} if reached else set()
    return [name for name in known if name in linked]


def _reached_from(subject: Subject, model: nn.Module, stirred: Tensor, parameters: dict[str, nn.Parameter]) -> set[str]:
    noise = torch.randn(stirred.shape, generator=torch.Generator().manual_seed(0)) * 0.1
    model.zero_grad(set_to_none=True)
    stirred.data.copy_(noise)
    row_losses = losses(model, few(subject, min(ROWS, subject.batch_rows())), subject.recipe.loss_fn).losses
    if row_losses.requires_grad:
        row_losses.mean().backward()
    stirred.data.zero_()
    return (
        parameters.keys()
        - without_pull(parameters, set(parameters))
        - {n for n, p in parameters.items() if p.grad is None}
    )
