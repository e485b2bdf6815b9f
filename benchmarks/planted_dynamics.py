"""Faults that are planted into running trainings: FAULTS, each on four hosts; parts of them are held back.

A fault changes a host's set-up, or, from update `onset` on, what an update sees. `found` are the monitors that may tell
of it, `cause` the cause that has to be named first (any of several where they say the same).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.monitored import Before
from benchmarks.networks import HOSTS, drawn
from benchmarks.setup import Setup
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.state import Share, TrainData, TrainState
from trainworthy.lifecycle.engine.training.state import whole as every_row
from trainworthy.lifecycle.plan import Plan

HELD_BACK_HOSTS = ("cnn", "unet")
# In the middle of a pass and between two samples.
ONSET = 47
# After more updates than a single batch is held against.
LATER = 167


@dataclass(frozen=True, eq=False)
class Planted:
    """A training with a fault in it, from update `onset` on.

    `hang_seconds` is what the heartbeat waits for at least; None without one.
    """

    subject: Subject
    onset: int
    found: tuple[str, ...]
    cause: tuple[str, ...]
    before: Before | None = None
    hang_seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Fault:
    """`make(host, seed)` gives the training. `held_back` faults were not run while thresholds were chosen.

    `slow` are those that only a trend shows, which needs more than 20 updates. Of several `processes` each calls `make`
    and trains.
    """

    make: Callable[[str, int], Planted]
    held_back: bool
    hosts: tuple[str, ...] = tuple(HOSTS)
    processes: int = 1

    @property
    def slow(self) -> bool:
        if self.processes > 1:
            return False
        trends = {
            "plateau", "overfitting", "memory_growth", "throughput_drop", "data_wait", "vanishing_gradients",
        }  # fmt: skip
        return bool(trends & set(self.make("mlp", 0).found))


Inputs = dict[str, Tensor]


# A run whose compute anybody counts has more updates than the hosts' few passes.
LONGER = 10


def host(name: str, seed: int, **changes: Any) -> Setup:
    base = HOSTS[name](seed)
    return replace(base, **({"epochs": LONGER * base.epochs} | changes))


def once(at: int, do: Callable[[TrainState], None]) -> Before:
    """Does it before update `at`, and never again."""

    def before(state: TrainState, step: int) -> None:
        if step == at:
            do(state)

    return before


def body(model: nn.Module) -> nn.Module:
    """A module through which all of the network's signal goes, with layers before it."""
    for name in ("layers.2", "layers.4", "bottom", "norm"):
        found = dict(model.named_modules()).get(name)
        if isinstance(found, nn.Linear | nn.Conv2d | nn.Sequential | nn.LayerNorm):
            return found
    raise ValueError("no such module")


def rectifier(model: nn.Module) -> nn.Module:
    """A ReLU or GELU in the middle."""
    return [one for one in model.modules() if isinstance(one, nn.ReLU | nn.GELU)][1]


def whole(
    make: Callable[[str, int], tuple[Setup, Before | None, int]], found: Any, cause: Any, held_back: bool
) -> Fault:
    def planted(name: str, seed: int) -> Planted:
        setup, before, onset = make(name, seed)
        return Planted(setup.subject(), onset, found, cause, before)

    return Fault(planted, held_back)


# ---- layers ----------------------------------------------------------------------------------------------------------


def dead_by_bias(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    """What feeds a rectifier is moved far below zero at an update, as one that was too large does."""

    def kill(state: TrainState) -> None:
        layers = list(state.model.modules())
        at = layers.index(rectifier(state.model))
        feeding = next(one for one in reversed(layers[:at]) if isinstance(getattr(one, "bias", None), nn.Parameter))
        with torch.no_grad():
            feeding.bias.fill_(-40.0)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]

    return host(name, seed), once(ONSET, kill), ONSET


def nothing(module: nn.Module, inputs: Any, output: Any) -> Any:
    return output * 0


def masked_out(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    """A mask that is zero everywhere, from the start."""
    base = host(name, seed)

    def network() -> nn.Module:
        model = base.network()
        rectifier(model).register_forward_hook(nothing)
        return model

    return replace(base, network=network), None, 0


def detached_body(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    base = host(name, seed)

    def network() -> nn.Module:
        model = base.network()
        body(model).register_forward_hook(lambda module, inputs, output: output.detach())
        return model

    return replace(base, network=network), None, 0


def detached_on_the_way(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    """A branch for evaluation is taken from an update on."""

    def cut(state: TrainState) -> None:
        body(state.model).register_forward_hook(lambda module, inputs, output: output.detach())

    return host(name, seed), once(ONSET, cut), ONSET


def rounded_answer(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    """A layer's answer is rounded to yes and no: it has a gradient of zero."""
    base = host(name, seed)

    def network() -> nn.Module:
        model = base.network()
        rectifier(model).register_forward_hook(lambda module, inputs, output: output.sign() + 0 * output)
        return model

    return replace(base, network=network), None, 0


def group_of_rate_zero(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    """Half of the parameters are in a group whose rate is zero."""

    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        every = list(model.parameters())
        half = len(every) // 2
        groups = [{"params": every[:half], "lr": 0.0}, {"params": every[half:]}]
        return [torch.optim.AdamW(groups, lr=HOSTS[name](seed).learning_rate, weight_decay=0.0)]

    return host(name, seed, build_optimizers=optimizers), None, 0


def head_alone(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    """The optimizer is given the last parameters."""
    rate = HOSTS[name](seed).learning_rate
    optimizers = lambda model: [torch.optim.AdamW(list(model.parameters())[-2:], lr=rate)]
    return host(name, seed, build_optimizers=optimizers), None, 0


def made_anew(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    """Parameters are replaced by equal ones that the optimizer does not know, as load_state_dict(assign=True) does."""

    def load(state: TrainState) -> None:
        state.model.load_state_dict({key: one.clone() for key, one in state.model.state_dict().items()}, assign=True)
        # What walks the modules sees the new ones; the loop's gradients go where the model is.
        state.__dict__.pop("parameters", None)
        state.__dict__.pop("with_gradients", None)
        state.__dict__.pop("buffers", None)

    return host(name, seed), once(ONSET, load), ONSET


# ---- updates ---------------------------------------------------------------------------------------------------------


def rate_times(factor: float, at: int = 0) -> Callable[[str, int], tuple[Setup, Before | None, int]]:
    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        base = host(name, seed)
        peak = base.learning_rate

        def schedule(step: int, steps: int) -> float:
            share = min(1.0, (step + 1) / (0.1 * steps)) * 0.5 * (1 + math.cos(math.pi * step / steps))
            return peak * share * (factor if step >= at else 1.0)

        return replace(base, schedule=schedule), None, at

    return make


def layer_at(scale: float) -> Callable[[str, int], tuple[Setup, Before | None, int]]:
    """A third of the parameters is trained at another rate."""

    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
            every = list(model.parameters())
            third = len(every) // 3
            groups = [
                {"params": every[:third], "lr": scale * HOSTS[name](seed).learning_rate},
                {"params": every[third:]},
            ]
            return [torch.optim.AdamW(groups, lr=HOSTS[name](seed).learning_rate, weight_decay=0.0)]

        return host(name, seed, build_optimizers=optimizers), None, 0

    return make


class Low(nn.Module):
    """A network whose weights are of a lower precision."""

    def __init__(self, model: nn.Module, kind: torch.dtype) -> None:
        super().__init__()
        self.model, self.kind = model.to(kind), kind

    def forward(self, inputs: Inputs) -> Tensor:
        cast = {name: one.to(self.kind) if one.is_floating_point() else one for name, one in inputs.items()}
        return self.model(cast).float()


def low_precision(kind: torch.dtype, share: float) -> Callable[[str, int], tuple[Setup, Before | None, int]]:
    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        base = host(name, seed)
        return (
            replace(base, network=lambda: Low(base.network(), kind), learning_rate=base.learning_rate * share),
            None,
            0,
        )

    return make


# ---- gradients -------------------------------------------------------------------------------------------------------


def hooked(of: Callable[[list[nn.Parameter]], list[nn.Parameter]], make_hook: Callable[[], Any], at: int) -> Any:
    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        def hook(state: TrainState) -> None:
            for one in of(list(state.model.parameters())):
                one.register_hook(make_hook())

        return host(name, seed), once(at, hook), at

    return make


def kept_gradient() -> Callable[[Tensor], Tensor]:
    """Gives back the first gradient it saw."""
    first: list[Tensor] = []

    def hook(gradient: Tensor) -> Tensor:
        first.append(gradient.clone())
        return first[0].clone()

    return hook


def added_gradient() -> Callable[[Tensor], Tensor]:
    """Gives back the sum of all it saw."""
    total: list[Tensor] = []

    def hook(gradient: Tensor) -> Tensor:
        total[:] = [gradient.clone() if not total else total[0] + gradient]
        return total[0].clone()

    return hook


# ---- rows ------------------------------------------------------------------------------------------------------------


class SameBatch(Plan):
    def batch(self, step: int) -> Tensor:
        return super().batch(step if step < ONSET else ONSET)


class InCircles(Plan):
    """Three batches, again and again."""

    def batch(self, step: int) -> Tensor:
        return super().batch(step % 3)


class Twice(Plan):
    """Each batch is handed out twice, one after the other."""

    def batch(self, step: int) -> Tensor:
        return super().batch(step // 2)


def with_plan(plan: type[Plan], onset: int, held_back: bool) -> Fault:
    def planted(name: str, seed: int) -> Planted:
        found = host(name, seed).subject()
        subject = replace(found, plan=plan(**found.plan.model_dump()))
        return Planted(subject, onset, ("repeated_batches",), ("batch_repeats",))

    return Fault(planted, held_back)


class SameRows(TrainData):
    """Whatever rows are asked for, the loader gives those of its cache."""

    def batches(self, plan: Plan, first_step: int, share: Share = every_row) -> Generator[tuple[TrainData, Tensor]]:
        cached = self.take(plan.batch(0))
        for step in range(first_step, plan.last_step):
            yield cached, share(torch.arange(plan.batch_size) + 0 * step)


class Slow(TrainData):
    """A file that takes some time, from an update on."""

    onset, seconds = 0, 0.06

    def batches(self, plan: Plan, first_step: int, share: Share = every_row) -> Generator[tuple[TrainData, Tensor]]:
        for step in range(first_step, plan.last_step):
            if step >= self.onset:
                time.sleep(self.seconds)
            yield self, share(plan.batch(step))


class SlowLater(Slow):
    onset = ONSET


def with_data(kind: type[TrainData], onset: int, found: str, cause: str, held_back: bool) -> Fault:
    def planted(name: str, seed: int) -> Planted:
        subject = host(name, seed).subject()
        data = kind(subject.training.inputs, subject.training.targets, subject.training.weights)
        return Planted(replace(subject, training=data), onset, (found,), (cause,))

    return Fault(planted, held_back)


def slower_forward(growing: bool) -> Callable[[str, int], tuple[Setup, Before | None, int]]:
    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        def before(state: TrainState, step: int) -> None:
            if step >= ONSET:
                time.sleep(0.003 * (step - ONSET) if growing else 0.15)

        return host(name, seed), before, ONSET

    return make


def leak(growing_graph: bool) -> Callable[[str, int], tuple[Setup, Before | None, int]]:
    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        kept: list[Tensor] = []

        def before(state: TrainState, step: int) -> None:
            kept.append(torch.ones(2**19 if growing_graph else 2**20))

        return host(name, seed), before, 0

    return make


# ---- the curve -------------------------------------------------------------------------------------------------------


def shuffled_targets(name: str, seed: int) -> tuple[Setup, Before | None, int]:
    base = host(name, seed)
    order = torch.randperm(len(base.training.targets), generator=drawn(seed + 9))
    return replace(base, training=replace(base.training, targets=base.training.targets[order])), None, 0


def from_onset(change: Callable[[Inputs, Tensor], tuple[Inputs, Tensor]], at: int = ONSET) -> Callable[[str, int], Any]:
    """Rows are changed from an update on."""

    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        now = [0]

        def augment(inputs: Inputs, targets: Tensor, generator: torch.Generator) -> tuple[Inputs, Tensor]:
            return change(inputs, targets) if now[0] >= at else (inputs, targets)

        def before(state: TrainState, step: int) -> None:
            now[0] = step

        return host(name, seed, augment=augment), before, at

    return make


def other_targets(inputs: Inputs, targets: Tensor) -> tuple[Inputs, Tensor]:
    """Labels of another coding: 0 and 1 exchanged, classes moved on by one."""
    return inputs, (1 - targets) if targets.is_floating_point() else (targets + 1) % (int(targets.max()) + 1)


def same_inputs(inputs: Inputs, targets: Tensor) -> tuple[Inputs, Tensor]:
    """Each row of the batch has the inputs of its first."""
    return {name: one[:1].expand_as(one).contiguous() for name, one in inputs.items()}, targets


def few_rows(weight_decay: float, noisy: bool) -> Callable[[str, int], tuple[Setup, Before | None, int]]:
    def make(name: str, seed: int) -> tuple[Setup, Before | None, int]:
        base = host(name, seed)
        some = base.training.take(torch.arange(96))
        if noisy:
            swapped = torch.rand(96, generator=drawn(seed)) < 0.4
            order = torch.randperm(96, generator=drawn(seed + 1))
            shape = (-1, *[1] * (some.targets.dim() - 1))
            some = replace(some, targets=torch.where(swapped.view(shape), some.targets[order], some.targets))
        return replace(base, training=some, epochs=100, weight_decay=weight_decay), None, 0

    return make


DEAD = ("dead_layer", "zero_gradient", "constant_predictions")
RATE = ("update_ratio", "exploding_gradients", "loss_spike", "gradient_spike", "outlier_batch", "rise_above_best")
EVERY, HALF = (lambda of: of), (lambda of: of[: max(2, len(of) // 2)])
FAULTS: dict[str, Fault] = {
    "dead_by_bias": whole(dead_by_bias, DEAD, ("dead_units",), False),
    "masked_out": whole(masked_out, DEAD, ("dead_units",), True),
    "detached_body": whole(detached_body, ("no_gradient",), ("detached_layer",), False),
    "detached_on_the_way": whole(detached_on_the_way, ("no_gradient",), ("detached_layer",), True),
    "rounded_answer": whole(
        rounded_answer, ("zero_gradient", "no_gradient"), ("gradient_blocked", "detached_layer"), True
    ),
    "group_of_rate_zero": whole(group_of_rate_zero, ("unchanged_layer",), ("frozen_layer",), False),
    "head_alone": whole(head_alone, ("not_in_optimizer",), ("not_in_optimizer",), False),
    "made_anew": whole(made_anew, ("not_in_optimizer",), ("not_in_optimizer",), True),
    "rate_thousandfold": whole(rate_times(1000), RATE, ("learning_rate_too_high",), False),
    "rate_hundredfold_later": whole(rate_times(100, LATER), RATE, ("learning_rate_too_high",), False),
    "rate_tenthousandth": whole(rate_times(1e-4), ("plateau",), ("learning_rate_too_low",), False),
    "layer_rate_tiny": whole(
        layer_at(1e-6), ("layer_left_behind", "unchanged_layer"), ("layer_rate", "frozen_layer"), False
    ),
    "layer_rate_huge": whole(
        layer_at(1e3), ("layer_updates_too_large", *RATE), ("layer_rate", "learning_rate_too_high"), True
    ),
    "bf16_weights": whole(
        low_precision(torch.bfloat16, 0.003), ("rounded_updates",), ("updates_rounded_away",), False
    ),
    "bf16_weights_fine": whole(
        low_precision(torch.bfloat16, 0.0005), ("rounded_updates", "unchanged_layer"), ("updates_rounded_away",), True
    ),
    "gradient_kept": whole(hooked(EVERY, kept_gradient, ONSET), ("stale_gradients",), ("stale_gradients",), False),
    "gradient_kept_in_part": whole(hooked(HALF, kept_gradient, 0), ("stale_gradients",), ("stale_gradients",), True),
    "gradient_added": whole(
        hooked(EVERY, added_gradient, 0), ("gradients_not_zeroed",), ("gradients_not_zeroed",), False
    ),
    "gradient_added_in_part": whole(
        hooked(HALF, added_gradient, 0), ("gradients_not_zeroed",), ("gradients_not_zeroed",), True
    ),
    "same_batch": with_plan(SameBatch, ONSET, False),
    "batches_in_circles": with_plan(InCircles, 0, False),
    "batches_twice": with_plan(Twice, 0, True),
    "same_rows_from_a_cache": with_data(SameRows, 0, "repeated_batches", "batch_repeats", True),
    "slow_files": with_data(Slow, 0, "data_wait", "loaders_too_slow", False),
    "slow_files_later": with_data(SlowLater, ONSET, "data_wait", "loaders_too_slow", True),
    "slower_updates": whole(slower_forward(False), ("throughput_drop",), ("slower",), False),
    "ever_slower_updates": whole(slower_forward(True), ("throughput_drop",), ("slower",), True),
    "leak": whole(leak(False), ("memory_growth",), ("memory_leak",), False),
    "leak_of_graphs": whole(leak(True), ("memory_growth",), ("memory_leak",), True),
    # A network that is large enough learns such labels by heart in a long run.
    "shuffled_targets": whole(
        shuffled_targets, ("plateau", "overfitting"), ("labels_without_signal", "overfitting"), False
    ),
    "other_targets": whole(
        # Before anything is learned, other labels are as good as these.
        from_onset(other_targets, 3 * LATER), ("rise_above_best", "loss_spike", "outlier_batch", "gradient_spike"),
        ("rows_of_another_kind", "these_rows", "learning_rate_too_high"), True,
    ),
    "same_inputs": whole(from_onset(same_inputs), ("constant_predictions",), ("collapsed_answers",), False),
    # Not on the CNN: it learns 96 rows by heart and answers others no worse, 0.263 at update 87 and 0.259 at 283.
    "few_rows": replace(
        whole(few_rows(0.0, False), ("overfitting",), ("overfitting",), False), hosts=("mlp", "unet", "gpt")
    ),
    "noisy_labels": whole(few_rows(0.0, True), ("overfitting",), ("overfitting",), True),
}  # fmt: skip
