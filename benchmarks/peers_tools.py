"""What is asked of a network, and how each tool is asked: our battery, and three public ones of other people.

Each is used as its own pages say, and where there is a choice, in its favour. torchtest2 gets a batch of at least two
rows, the loss as torch names it where it is one of torch's, the optimizer, the parameters that are said to be frozen,
and `gradcheck` where backward passes are written by hand. torch-audit and torcheck watch the first updates of the
training, every one of them; torch-audit without its hints for hardware, torcheck with the range that a softmax would
have where the loss takes logits. The three are fetched when they are asked, and are no dependency.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.preflight import kind
from trainworthy.lifecycle.engine.preflight.battery import run_checks, same_random_numbers
from trainworthy.lifecycle.engine.preflight.configuration import checks as configuration
from trainworthy.lifecycle.engine.preflight.inputs import checks as inputs
from trainworthy.lifecycle.engine.preflight.run import run_battery
from trainworthy.lifecycle.engine.preflight.start import checks as start
from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.preflight.wiring import checks as wiring
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.trial import Trial

WHEELS = {"torchtest2": "torchtest2==0.1.0", "torch_audit": "torch-audit==0.3.0", "torcheck": "torcheck==1.0.1"}
# Updates that the two which watch a training are shown, and rows that torchtest2 needs to tell rows apart.
UPDATES, FEWEST_ROWS = 20, 2
# torch-audit's hints for the shapes, the memory layout and the precision of a GPU: nothing is wrong with a network.
HARDWARE = {"TA200", "TA201", "TA202", "TA203"}
# It ran into an error of its own.
CRASHED = "TA000"
# How torcheck's sentences end, by what it asks.
SENTENCES = {"should change": "changing", "contains NaN": "nan", "contains inf": "inf", "shouldn't all": "range"}


@dataclass(frozen=True)
class Known:
    """What a user knows of a network and may tell a tool: its loss takes logits; it has backward passes of its own."""

    logits: bool = False
    own_backward: bool = False


@dataclass(frozen=True)
class Said:
    """What a tool told of a network, by the names of its own checks.

    `alarms` say that something is wrong, `warnings` that it may be, `hints` less. `raised` is what ended it.
    """

    alarms: frozenset[str] = frozenset()
    warnings: frozenset[str] = frozenset()
    hints: frozenset[str] = frozenset()
    raised: str = ""
    cpu_seconds: float = 0.0

    @property
    def told(self) -> frozenset[str]:
        return self.alarms | self.warnings


Tool = Callable[[Subject, Known], Said]


def asked(tool: Tool, subject: Subject, known: Known) -> Said:
    """What it says and the processor seconds of that; what it or the training raises is an alarm, as a user sees it."""
    with same_random_numbers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed_everything(subject.recipe.seed)
        began = time.process_time()
        try:
            said = tool(subject, known)
        except Exception as error:
            said = Said(alarms=frozenset({"raised"}), raised=f"{type(error).__name__}: {error}".splitlines()[0])
        took = time.process_time() - began
    return Said(said.alarms, said.warnings, said.hints, said.raised, took)


# ---- ours ------------------------------------------------------------------------------------------------------------


def battery(subject: Subject, known: Known) -> Said:
    """All that preflight asks of a network."""
    return _said(run_battery(subject))


def quick(subject: Subject, known: Known) -> Said:
    """What `trainworthy check --quick` asks of it: preflight/quick.py without the update, which needs a use case."""

    def tried(*checks: Any) -> tuple[Trial, ...]:
        return run_checks(checks, subject, device=subject.device, not_applicable=subject.claims.not_applicable)

    trials = tried(start.FINITE_WEIGHTS)
    if trials[0].status != "fail":
        trials += tried(*configuration.CHECKS, *inputs.CHECKS, *wiring.CHECKS, *start.CHECKS)
    return _said(trials)


def _said(trials: Iterable[Trial]) -> Said:
    found = [(kind(trial), trial.check) for trial in trials]
    alarms, warnings = (frozenset(check for word, check in found if word == level) for level in ("alarm", "warning"))
    return Said(alarms, warnings)


# ---- the others ------------------------------------------------------------------------------------------------------


def fetched(folder: Path) -> None:
    """Install the three into a folder, without what they depend on, and let this process import them from there.

    Raises CalledProcessError if pip cannot fetch them.
    """
    options = ["--quiet", "--disable-pip-version-check", "--retries", "2", "--no-deps", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*command, *WHEELS.values()], check=True)
    sys.path.insert(0, str(folder))


def torchtest2(subject: Subject, known: Known) -> Said:
    """`check_model` on the first batch: FAIL and WARN."""
    state, (rows, targets, weights) = subject.state(), batch(subject, 0, FEWEST_ROWS)

    def forward(model: nn.Module, given: Any, targets: Any = None) -> Any:
        with autocast(subject):
            return model(*given)

    frozen = [
        name
        for name, _ in state.model.named_parameters()
        if any(fnmatch(name, pattern) for pattern in subject.claims.frozen or ())
    ]
    apart = {} if subject.recipe.precision == "fp32" else {"forward_fn": forward, "eval_forward_fn": forward}
    report = import_module("torchtest2").check_model(
        state.model, (rows,), targets, loss_fn=_loss(subject, state.model, rows, targets, weights), frozen=frozen,
        optimizer=state.optimizers[0] if len(state.optimizers) == 1 else None, gradcheck=known.own_backward, **apart,
    )  # fmt: skip
    statuses = [(result.status.name, result.name) for result in report.results]
    alarms, warnings = (frozenset(name for status, name in statuses if status == level) for level in ("FAIL", "WARN"))
    return Said(alarms, warnings)


def torch_audit(subject: Subject, known: Known) -> Said:
    """`audit_dynamic` around the first updates: ERROR and WARN, and INFO as hints."""
    state, audit = subject.state(), import_module("torch_audit")
    first, *others = state.optimizers
    with audit.audit_dynamic(state.model, optimizer=first, every_n_steps=1, ignore_rules=HARDWARE) as auditor:
        for loss in losses(subject, state, auditor.forward):
            auditor.backward(loss)
            clip(subject, state)
            for optimizer in others:
                optimizer.step()
            auditor.optimizer_step()
    found = [(one.severity.value, one.rule_id) for one in auditor.finish(report=False).findings]
    levels = (("ERROR", "FATAL"), ("WARN",), ("INFO",))
    alarms, warnings, hints = (
        frozenset(rule for word, rule in found if word in level and rule != CRASHED) for level in levels
    )
    return Said(alarms, warnings, hints)


def torcheck(subject: Subject, known: Known) -> Said:
    """Every check that it has, in the first updates, which it ends by raising: parameters change, or stay where they
    are frozen, and are finite, as the outputs are."""
    state, registry = subject.state(), import_module("torcheck.registry").Registry()
    state.model.eval()
    with torch.no_grad(), autocast(subject):
        gives_tensor = isinstance(state.model(batch(subject, 0)[0]), Tensor)
    state.model.train()
    held = {id(one) for optimizer in state.optimizers for group in optimizer.param_groups for one in group["params"]}
    try:
        for optimizer in state.optimizers:
            registry.register(optimizer)
        for name, parameter in state.model.named_parameters():
            if parameter.requires_grad or id(parameter) in held:
                registry.add_tensor(parameter, name, changing=parameter.requires_grad, check_nan=True, check_inf=True)
        if gives_tensor:
            around = {"output_range": (0, 1), "negate_range": True} if known.logits else {}
            registry._add_output_check(state.model, check_nan=True, check_inf=True, **around)
        for loss in losses(subject, state, state.model):
            loss.backward()
            clip(subject, state)
            for optimizer in state.optimizers:
                optimizer.step()
    except RuntimeError as error:
        told = {name for sentence, name in SENTENCES.items() if sentence in str(error)}
        if "belong to any optimizer" in str(error):
            told.add("optimizer")
        if not told:
            raise
        return Said(alarms=frozenset(told), raised=str(error).splitlines()[-1])
    return Said()


def batch(subject: Subject, step: int, fewest: int = 1) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
    """Inputs, targets and weights of an update's rows, augmented; of the first rows where the update has too few."""
    rows = subject.plan.batch(step)
    data = subject.training.take(rows if len(rows) >= fewest else torch.arange(16))
    pair = data.inputs, data.targets
    generator = subject.recipe.generator(step)
    if subject.recipe.augment is not None and generator is not None:
        pair = subject.recipe.augment(*pair, generator)
    return *pair, data.weights


def losses(subject: Subject, state: TrainState, forward: Callable[[Any], Any]) -> Iterator[Tensor]:
    """Of each of the first updates the mean loss, with gradients at zero and the rate as the training has them."""
    for step in range(min(UPDATES, subject.plan.last_step)):
        rows, targets, weights = batch(subject, step)
        for optimizer in state.optimizers:
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = subject.recipe.learning_rate(step) * group["lr_scale"]
        with autocast(subject):
            yield _mean(subject.recipe.loss_fn(forward(rows), targets), weights)


def clip(subject: Subject, state: TrainState) -> None:
    nn.utils.clip_grad_norm_(state.model.parameters(), subject.recipe.clip_norm)


def _mean(each: Tensor, weights: Tensor | None) -> Tensor:
    return (each if weights is None else each * weights).mean()


def _loss(
    subject: Subject, model: nn.Module, rows: dict[str, Tensor], targets: Tensor, weights: Tensor | None
) -> Callable[[Any, Any], Tensor]:
    """A scalar loss: torch's cross-entropy itself where the training's is that, since torchtest2 knows it by name."""

    def loss(outputs: Any, targets: Any) -> Tensor:
        return _mean(subject.recipe.loss_fn(outputs, targets), weights)

    try:
        with torch.no_grad():
            outputs = model(rows)
            same = torch.isclose(functional.cross_entropy(outputs, targets), loss(outputs, targets)).item()
    except (RuntimeError, TypeError, IndexError, ValueError):
        return loss
    return functional.cross_entropy if same and targets.dtype == torch.long and outputs.ndim == 2 else loss


OURS: dict[str, Tool] = {"ours": battery, "ours --quick": quick}
OTHERS: dict[str, Tool] = {"torchtest2": torchtest2, "torch-audit": torch_audit, "torcheck": torcheck}
