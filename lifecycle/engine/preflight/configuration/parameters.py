"""Which parameters the optimizers hold, against those that the model trains; and in which precision."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch import nn

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.ema_teacher import teachers
from trainworthy.lifecycle.engine.training.loop import DENSE, SPARSE_PROBLEM, backward, sparse_gradients
from trainworthy.lifecycle.engine.training.state import Recipe
from trainworthy.lifecycle.errors import did_you_mean
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.spec.training import Precision

Parameters = dict[str, nn.Parameter]

# bf16 or fp16 may cost this much more than fp32, and a minute over all updates, before it is called slow.
SLOW, WORTH_SECONDS, TIMED_ROWS = 2.0, 60.0, 64


def optimizers_hold_the_parameters(subject: Subject) -> Outcome:
    """Trainable parameters are each in one optimizer once; frozen ones are those that are claimed."""
    state = subject.state()
    named = dict(state.model.named_parameters())
    held = Counter(id(p) for optimizer in state.optimizers for group in optimizer.param_groups for p in group["params"])
    foreign = set(held) - {id(parameter) for parameter in named.values()}
    trainable = {name: p for name, p in named.items() if p.requires_grad}
    left_out = [name for name, p in trainable.items() if id(p) not in held]
    frozen = subject.claims.frozen
    missed = [name for name in left_out if not matches(name, frozen)]
    updated = [name for name in trainable if name not in left_out]
    twice = [name for name, p in trainable.items() if held[id(p)] > 1]
    wrong = [
        _statement("in no optimizer", missed, f"{_BUILD}, or {claim_of(missed, updated, frozen)}"),
        _statement("in more than one place of the optimizers", twice, f"{_TWICE}: {', '.join(twice)}"),
        *_claims(named, updated, frozen),
    ]
    if unregistered := _unregistered(state.model, subject):
        problems = (
            f"{unregistered} tensors of modules in a list, a tuple or a dict learn nothing: no parameters of the model"
        )
        wrong.append((problems, "use nn.ModuleList, nn.ModuleDict or nn.ParameterList"))
    if not trainable:
        wrong.append(("no parameter of the model trains", "let requires_grad be True for what is to learn"))
    if foreign and left_out:
        wrong.append((f"the optimizers hold {len(foreign)} parameters that are not this model's", _OTHER))
    problems = [item for item in wrong if item is not None]
    if problems:
        return Outcome(
            "fail", "; ".join(text for text, _ in problems), len(problems), fix="; ".join(fix for _, fix in problems)
        )
    if foreign:
        evidence = f"the optimizers hold {len(foreign)} parameters that are not the model's: no checkpoint holds them"
        return Outcome("insufficient", evidence, len(foreign), fix="make them parameters of the model")
    one_backward(subject, state.model, subject.recipe)
    if sparse := sparse_gradients(state.model):
        return Outcome(
            "fail",
            f"{', '.join(sparse)}: {SPARSE_PROBLEM}",
            len(sparse),
            0,
            cause="layers with sparse=True",
            fix=DENSE,
        )
    return _unclaimed(named, len(trainable), subject)


def _unregistered(model: nn.Module, subject: Subject) -> int:
    """Tensors in plain containers that get a gradient and are no parameters of the model.

    A copy that the loss does not reach, such as a moving average, gets none.
    """
    known = {id(parameter) for parameter in model.parameters()}
    attributes = (
        value for module in model.modules() for name, value in vars(module).items() if not name.startswith("_")
    )
    items = (item for value in attributes for item in _items(value))
    tensors = [p for item in items for p in (item.parameters() if isinstance(item, nn.Module) else (item,))]
    hidden = {id(p): p for p in tensors if isinstance(p, nn.Parameter) and p.requires_grad and id(p) not in known}
    if hidden:
        one_backward(subject, model, subject.recipe)
    return sum(parameter.grad is not None for parameter in hidden.values())


def _items(value: object) -> Iterable[object]:
    """What a plain container holds."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()


_BUILD = "give every trainable parameter to an optimizer in build_optimizers"
_TWICE = "give each parameter to one optimizer only"
_OTHER = "build the optimizers from the model that build_optimizers is given, after it is whole"
_STANDARD = "torch.nn.modules."


def _claims(named: Parameters, updated: Sequence[str], frozen: Sequence[str]) -> Iterator[tuple[str, str] | None]:
    """What preflight.frozen says and the model does not do."""
    broken = [pattern for pattern in frozen if any(fnmatchcase(name, pattern) for name in updated)]
    fix = f"set requires_grad to False in build_model, or take out of preflight.frozen: {', '.join(broken)}"
    yield _statement(
        "claimed frozen and trained all the same", [name for name in updated if matches(name, frozen)], fix
    )
    for pattern in frozen:
        if not any(fnmatchcase(name, pattern) for name in named):
            yield f"preflight.frozen: {pattern!r} matches no parameter", did_you_mean(pattern, list(named)[:20])


def claim_of(names: Sequence[str], excluded: Sequence[str], frozen: Sequence[str]) -> str:
    """The line of use_case.yaml that claims all these names beside what is claimed, and none of the others."""
    patterns, left = list(frozen), list(names)
    while left:
        parts = left[0].split(".")
        modules = (".".join([*parts[:count], "*"]) for count in range(1, len(parts)))
        several = (m for m in modules if sum(fnmatchcase(n, m) for n in left) > 1)
        pattern = next((m for m in several if not any(fnmatchcase(name, m) for name in excluded)), left[0])
        patterns.append(pattern)
        left = [name for name in left[1:] if not fnmatchcase(name, pattern)]
    quoted = (pattern if pattern[:1].isalpha() else f'"{pattern}"' for pattern in patterns)
    return f"claim it: preflight: {{frozen: [{', '.join(quoted)}]}}"


def _unclaimed(named: Parameters, trained: int, subject: Subject) -> Outcome:
    """Frozen parameters that nobody claimed: of a standard layer it is a fault, a module's own may be a constant."""
    quiet = [n for n, p in named.items() if not p.requires_grad and not matches(n, subject.claims.frozen)]
    copies = teachers(subject, quiet)
    quiet = [name for name in quiet if name not in copies]
    if not quiet:
        summary = f"{trained} trainable tensors, each in one optimizer; {len(named) - trained} frozen"
        return Outcome(
            "pass", summary + (f", {len(copies)} of them kept by the network itself" if copies else ""), trained
        )
    owners = dict(subject.build().named_modules())
    layers = [name for name in quiet if type(owners[name.rpartition(".")[0]]).__module__.startswith(_STANDARD)]
    trains = [name for name, p in named.items() if p.requires_grad]
    fix = f"if it is meant, {claim_of(quiet, trains, subject.claims.frozen)}; else let them train"
    evidence, _ = _statement("frozen, which nobody claims", layers or quiet, fix) or ("", "")
    return Outcome(
        "fail" if layers and subject.claims.start == "scratch" else "insufficient", evidence, len(quiet), 0, fix=fix
    )


def matches(name: str, patterns: Sequence[str]) -> bool:
    """True if the parameter is declared by one of the patterns of preflight.frozen."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _statement(what: str, names: Sequence[str], fix: str) -> tuple[str, str] | None:
    """A sentence about these parameters and its fix, None if there are none."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (f"{', '.join(names[:3])}{more}: {what}", fix) if names else None


def precision_fits(subject: Subject) -> Outcome:
    """Half precision where it is safe, and where the device has it."""
    halves = [n for n, p in subject.build().named_parameters() if p.requires_grad and p.dtype.itemsize < 4]
    if halves:
        evidence, _ = _statement(
            "trained in less than 32 bits, so that small updates are rounded away", halves, ""
        ) or ("", "")
        fix = "keep the parameters in float32 and set training.precision: bf16; forward and loss then run in bfloat16"
        return Outcome("fail", evidence, len(halves), 0, fix=fix)
    if subject.recipe.precision == "fp32":
        return Outcome("pass", f"fp32 on {subject.device}")
    if subject.device.startswith("cuda") and subject.recipe.precision == "fp16":
        return Outcome("pass", f"fp16 on {subject.device}, with a loss scale")
    if subject.device.startswith("cuda"):
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        name = torch.cuda.get_device_name(subject.device)
        return Outcome("pass" if native else "fail", f"{name} {'has' if native else 'only emulates'} bfloat16", native)
    return _timed(subject)


def _timed(subject: Subject) -> Outcome:
    """Forward and backward on the CPU in both precisions; what a short run loses is not worth a word."""
    declared = subject.recipe.precision
    fp32, half = (min(_seconds(subject, precision) for _ in range(3)) for precision in ("fp32", declared))
    rows = timed_rows(subject)
    lost = (half - fp32) * subject.plan.horizon_steps * subject.plan.batch_size / rows
    evidence = f"{rows} rows take {half:.3f} s of processor time in {declared} on this CPU, {fp32:.3f} s in fp32: "
    evidence += f"{max(0, lost):.0f} s over the run"
    slow = half > SLOW * fp32 and lost > WORTH_SECONDS
    return Outcome("fail" if slow else "pass", evidence, round(half / max(fp32, 1e-9), 2), SLOW)


def _seconds(subject: Subject, precision: Precision) -> float:
    model, recipe = subject.model(), replace(subject.recipe, precision=precision)
    # Processor time: another job takes none of it away from one precision and not the other.
    started = time.process_time()
    one_backward(subject, model, recipe)
    return time.process_time() - started


def one_backward(subject: Subject, model: nn.Module, recipe: Recipe) -> None:
    """Forward and backward of a part of a batch, as the loop makes it."""
    model.train()
    size = timed_rows(subject)
    rows = torch.arange(size, device=subject.device)
    backward(model, subject.training, rows, recipe, torch.Generator().manual_seed(0), size)


def timed_rows(subject: Subject) -> int:
    """Rows of the forward passes here, at most TIMED_ROWS."""
    return min(TIMED_ROWS, subject.batch_rows(), len(subject.training.targets))
