"""A training of a Subject, with its monitors: the findings of each update, in the order in which they were told."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lifecycle.preflight.start.constant import constant_losses
from lifecycle.preflight.subject import Subject, spread_rows
from lifecycle.training.loop import TrainData, TrainState, Update, train_step
from lifecycle.training.monitors.monitor import CurveMonitor, Finding, Monitor
from lifecycle.training.monitors.signals import SAMPLE_EVERY, Layer, Sample, Signals
from lifecycle.training.monitors.updates import update_ratio
from lifecycle.training.plan import Plan
from lifecycle.training.watching.progressive import Progressive

# Called before an update, which a planted fault of that update may change.
Before = Callable[[TrainState, int], None]


@dataclass
class Seen:
    """All that a training showed to its monitors, and what they found."""

    signals: list[Signals] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    update_ratio: float | None = None


def monitored(subject: Subject, monitors: Sequence[Monitor] = (), before: Before | None = None) -> Seen:
    """Train for the whole plan. An update that is not finite is not applied, and is shown as the loop shows it."""
    state, seen = subject.state(), Seen()
    progressive = Progressive(subject.plan, subject.training, subject.recipe, 0, subject.held_out)
    torch.manual_seed(subject.recipe.seed)
    state.model.train()
    last = time.perf_counter()
    for batch, rows in subject.training.batches(subject.plan, 0):
        waited = time.perf_counter() - last
        rate = subject.recipe.learning_rate(state.step)
        for optimizer in state.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["lr_scale"]
        if before is not None:
            before(state, state.step)
        closer = Closer(state) if state.step % SAMPLE_EVERY == 0 else None
        with closer.watching() if closer else _nothing():
            update = train_step(state, batch, rows, subject.recipe)
        now = time.perf_counter()
        signals = _signals(state.step, update, rows, rate, now - last, waited)
        last = now
        seen.signals.append(signals)
        seen.findings += [found for one in monitors if (found := one.after_backward(signals))]
        if closer is not None:
            sample = closer.sample(batch.take(rows))
            seen.samples.append(sample)
            seen.update_ratio = update_ratio(sample, signals.grad_norms)
            seen.findings += [found for one in monitors if (found := one.after_sample(sample))]
        state.step += 1
        seen.findings += _curve(state, signals, subject.plan, progressive, monitors)
    return seen


def _curve(
    state: TrainState, seen: Signals, plan: Plan, progressive: Progressive, monitors: Sequence[Monitor]
) -> list[Finding]:
    """What the windows of the curve show, the reserve beside them."""
    if not abs(seen.loss) < float("inf"):
        return []
    windows = len(state.curve.points)
    state.curve.add(
        state.step, seen.rows, seen.loss, seen.squared, seen.learning_rate, plan.window, plan.steps_per_epoch
    )
    closed = state.curve.points[-1] if len(state.curve.points) > windows else None
    points = progressive.after_step(state, closed)
    if closed is None:
        return []
    curves = [one for one in monitors if isinstance(one, CurveMonitor)]
    return [found for one in curves if (found := one.after_points((closed, *points)))]


def _signals(step: int, update: Update, rows: Tensor, rate: float, seconds: float, waited: float) -> Signals:
    batch = zlib.crc32(rows.numpy().tobytes())
    return Signals(
        step, update.loss, update.squared, len(rows), rate, update.grad_norm, update.grad_norms, seconds, waited, batch
    )


@contextmanager
def _nothing() -> Iterator[None]:
    yield


class Closer:
    """Looks at one update: the leaf modules' outputs by hooks, the parameters before and after it."""

    def __init__(self, state: TrainState) -> None:
        self.state, self.layers, self.outputs = state, {}, []
        self.before = [parameter.detach().clone() for parameter in state.parameters]

    @contextmanager
    def watching(self) -> Iterator[None]:
        leaves = {name: one for name, one in self.state.model.named_modules() if not any(one.children())}
        hooks = [one.register_forward_hook(self._hook(name)) for name, one in leaves.items()]
        hooks.append(self.state.model.register_forward_hook(lambda _m, _i, out: self.outputs.append(_tensor(out))))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, name: str) -> Callable[..., None]:
        def look(_module: nn.Module, _inputs: object, output: object) -> None:
            found = _tensor(output)
            if found is not None and found.numel() and name not in self.layers:
                self.layers[name] = _layer(name, found.detach().float())

        return look

    def sample(self, data: TrainData) -> Sample:
        names = tuple(name for name, _ in self.state.model.named_parameters())
        moved = {
            id(p) for optimizer in self.state.optimizers for group in optimizer.param_groups for p in group["params"]
        }
        parameters = self.state.parameters
        return Sample(
            step=self.state.step, names=names, trainable=tuple(p.requires_grad for p in parameters),
            norms=tuple(float(p.detach().float().norm()) for p in parameters),
            changes=tuple(float((p.detach().float() - b.float()).norm()) for p, b in zip(parameters, self.before, strict=True)),
            unchanged=tuple(_unchanged(p, b) for p, b in zip(parameters, self.before, strict=True)),
            layers=tuple(self.layers.values()), spread=_spread(self.outputs[0] if self.outputs else None),
            memory_bytes=_resident(),
            left_out=tuple(n for n, p in self.state.model.named_parameters() if p.requires_grad and id(p) not in moved), content=_content(data),
            targets_vary=bool((data.targets != data.targets[:1]).any()),
        )  # fmt: skip


def _resident() -> float:
    with open("/proc/self/statm", "rb") as file:
        return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _tensor(output: object) -> Tensor | None:
    if isinstance(output, (tuple, list)):
        output = output[0] if output else None
    if isinstance(output, dict):
        output = next(iter(output.values()), None)
    return output if isinstance(output, Tensor) else None


def _layer(name: str, output: Tensor) -> Layer:
    flat = output.flatten(1) if output.dim() > 1 else output[:, None]
    return Layer(
        name, rms=float(flat.square().mean().sqrt()), largest=float(flat.abs().max()),
        zero_rows=float((flat == 0).all(0).float().mean()), equal_rows=bool((flat == flat[:1]).all()),
        finite=bool(torch.isfinite(flat).all()),
    )  # fmt: skip


def _unchanged(parameter: Tensor, before: Tensor) -> float:
    if parameter.grad is None:
        return 0.0
    wanted = parameter.grad != 0
    count = int(wanted.sum())
    return float(((parameter.detach() == before) & wanted).sum()) / count if count else 0.0


def _spread(outputs: Tensor | None) -> float:
    if outputs is None or len(outputs) < 2:
        return 0.0
    flat = outputs.detach().float().flatten(1) if outputs.dim() > 1 else outputs.detach().float()[:, None]
    size = float(flat.square().mean().sqrt())
    return float((flat - flat.mean(0)).square().mean().sqrt()) / size if size else 0.0


def _content(data: TrainData) -> int:
    """Of each row's values a sum, sorted: rows in another order give the same."""
    sums = [
        tensor.double().flatten(1).sum(1) if tensor.dim() > 1 else tensor.double() for tensor in data.inputs.values()
    ]
    rows = torch.stack(
        [*sums, data.targets.double().flatten(1).sum(1) if data.targets.dim() > 1 else data.targets.double()]
    )
    return zlib.crc32(rows.sum(0).sort().values.numpy().tobytes())


def prior_loss(subject: Subject) -> float | None:
    """Loss on training rows of the best answer that looks at no input; None where the loss has none."""
    some = subject.training.take(spread_rows(subject.training, 1000))
    with torch.no_grad():
        outputs = subject.model().eval()(some.inputs)
    best = constant_losses(subject.recipe.loss_fn, outputs, some.targets).best
    return best if abs(best) < float("inf") else None
