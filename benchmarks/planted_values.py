"""More planted faults: values that are not finite, jumps, trends and collapses, on the hosts where they have an effect.

As those of planted_dynamics.py: VALUES, each a fault on up to four hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.planted_dynamics import LATER, RATE, Fault, Planted, body, host, rectifier
from benchmarks.setup import Setup, with_inputs
from trainworthy.lifecycle.engine.training.state import TrainState

NOT_FINITE = ("non_finite_loss", "non_finite_gradient", "non_finite_parameter")
SPIKES = ("outlier_batch", "loss_spike", "gradient_spike", "rise_above_best")
ALL, FLOATS = ("mlp", "cnn", "unet", "gpt"), ("mlp", "cnn", "unet")
Change = Callable[[Setup, list[int]], Setup]
Move = Callable[[TrainState], None]


def from_(at: int, found: Any, cause: Any, held_back: bool, change: Change, move: Move | None = None,
          hosts: tuple[str, ...] = ALL) -> Fault:  # fmt: skip
    """`change` of the set-up is shown the number of the update, `move` is made before each update from `at` on."""

    def planted(name: str, seed: int) -> Planted:
        now = [0]

        def before(state: TrainState, step: int) -> None:
            now[0] = step
            if move is not None and step >= at:
                move(state)

        return Planted(change(host(name, seed), now).subject(), at, found, cause, before)

    return Fault(planted, held_back, hosts)


def losses(change: Callable[[Any, Tensor, Tensor], Tensor], last: float = float("inf")) -> Change:
    """From LATER to `last` the loss is what `change` makes of loss function, outputs and targets."""

    def made(setup: Setup, now: list[int]) -> Setup:
        given = setup.loss_fn
        return replace(
            setup, loss_fn=lambda o, t: change(given, o, t) if LATER <= now[0] <= last else given(o, t)
        )  # fmt: skip

    return made


def per_row(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def as_it_is(setup: Setup, now: list[int]) -> Setup:
    return setup


# ---- not finite ------------------------------------------------------------------------------------------------------


def rows_of_nan(setup: Setup, now: list[int]) -> Setup:
    """One record in two hundred has a value that is missing."""

    def spoil(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        spoiled = {name: one.clone() for name, one in inputs.items()}
        for one in spoiled.values():
            one.flatten(1)[7::200, 3] = float("nan")
        return spoiled

    return replace(setup, training=with_inputs(setup, spoil).training)


def log_of_zero(given: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    return given(outputs, targets) + 1e-3 * per_row((outputs * 0).log())


def root_of_zero(given: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    return given(outputs, targets) + per_row((outputs - outputs.detach()).square()).sqrt()


def branch_not_taken(given: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    below = outputs - outputs.detach() - 1
    return given(outputs, targets) + per_row(torch.where(below < 0, 0 * outputs, below.sqrt()))


def infinite_inside(setup: Setup, now: list[int]) -> Setup:
    """A feature is infinite in one module, and cut off in front of the next."""

    def overflow(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        changed = output.clone()
        changed[:, :1] = float("inf")
        return changed

    def network() -> nn.Module:
        model = setup.network()
        rectifier(model).register_forward_hook(overflow)
        for one in model.modules():
            if next(one.children(), None) is None:
                one.register_forward_pre_hook(
                    lambda module, inputs: tuple(
                        x.nan_to_num(posinf=0.0) if x.is_floating_point() else x for x in inputs
                    )
                )
        return model

    return replace(setup, network=network)


class Ratio(nn.Module):
    """Divides by a spread that is zero."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (x - x).abs().mean()


def metric_inside(setup: Setup, now: list[int]) -> Setup:
    """A figure is computed beside the answer, and divides by zero."""

    def network() -> nn.Module:
        model = setup.network()
        model.beside = Ratio()

        def compute(module: nn.Module, inputs: Any, output: Tensor) -> None:
            model.beside(output.detach())  # pyright: ignore[reportCallIssue]

        body(model).register_forward_hook(compute)
        return model

    return replace(setup, network=network)


def bit_flip(state: TrainState) -> None:
    if state.step == LATER:
        with torch.no_grad():
            state.parameters[-2].view(-1)[0] = float("nan")


def rate_overflows(setup: Setup, now: list[int]) -> Setup:
    return replace(
        setup, optimizer="sgd", schedule=lambda step, steps: 0.05 if step < LATER else 3e38, clip_norm=1e9
    )  # fmt: skip


# ---- jumps and trends ------------------------------------------------------------------------------------------------


def other_unit(given: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    return given(60 * outputs, targets)


def few_damaged(given: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    factors = torch.ones(len(outputs))
    factors[::8] = -400.0
    return given(outputs * factors.view(-1, *[1] * (outputs.dim() - 1)), targets)


def scaled_inputs(setup: Setup, now: list[int]) -> Setup:
    """Inputs come in another unit from an update on."""

    def augment(inputs: Any, targets: Tensor, generator: torch.Generator) -> Any:
        return {name: 50 * one if now[0] >= LATER else one for name, one in inputs.items()}, targets

    return replace(setup, augment=augment)


def head(state: TrainState, factor: float) -> None:
    with torch.no_grad():
        list(state.model.parameters())[-1].mul_(factor)
        list(state.model.parameters())[-2].mul_(factor)


def momentum_diverges(setup: Setup, now: list[int]) -> Setup:
    """Plain descent with much momentum and a rate far too high, unclipped, from an update on."""

    def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.95)]

    return replace(
        setup, build_optimizers=optimizers, clip_norm=1e9, schedule=lambda step, steps: 0.01 if step < LATER else 20.0
    )  # fmt: skip


def unclipped_sums(setup: Setup, now: list[int]) -> Setup:
    """Plain descent, tuned for a mean; from an update on the loss is a sum, and nothing is clipped."""
    given = setup.loss_fn
    return replace(
        setup, optimizer="sgd", schedule=lambda step, steps: 0.1, clip_norm=1e9,
        loss_fn=lambda o, t: given(o, t) * (3000.0 if now[0] >= LATER else 1.0),
    )  # fmt: skip


def answers_fade(setup: Setup, now: list[int]) -> Setup:
    """A factor of the answers, made to be annealed, goes to zero."""
    given = setup.loss_fn
    return replace(setup, loss_fn=lambda o, t: given(o * 0.9 ** max(0, now[0] - LATER), t))


def decays(setup: Setup, now: list[int]) -> Setup:
    """A weight decay in the wrong unit: weights lose a twentieth of themselves at every update."""
    return replace(setup, schedule=lambda step, steps: 5e-3, weight_decay=10.0)


def pulls_together(setup: Setup, now: list[int]) -> Setup:
    """A loss without labels that is smallest where all answers are equal."""
    return replace(
        setup, loss_fn=lambda o, t: per_row((o - o.roll(1, 0)).square()), predict=None, decay="constant"
    )  # fmt: skip


GETS_WORSE = ("learning_rate_too_high",)
KIND = ("rows_of_another_kind", "these_rows", "learning_rate_too_high")
COLLAPSES = ("collapsed_answers", "vanishing_gradients", "dead_units")
SMALL = ("constant_predictions", "vanishing_gradients", "plateau", "rise_above_best")
VALUES: dict[str, Fault] = {
    "rows_of_nan": from_(0, NOT_FINITE, ("rows_not_finite",), False, rows_of_nan, hosts=FLOATS),
    "log_of_zero": from_(LATER, NOT_FINITE, ("value_not_defined",), True, losses(log_of_zero)),
    "root_of_zero": from_(LATER, NOT_FINITE, ("derivative_not_defined",), False, losses(root_of_zero)),
    "branch_not_taken": from_(LATER, NOT_FINITE, ("derivative_not_defined",), True, losses(branch_not_taken)),
    "infinite_inside": from_(0, ("non_finite_activation",), ("value_not_defined",), False, infinite_inside),
    "metric_inside": from_(0, ("non_finite_activation",), ("value_not_defined",), True, metric_inside),
    "bit_flip": from_(LATER, NOT_FINITE, ("optimizer_makes_it",), False, as_it_is, bit_flip),
    "rate_overflows": from_(LATER, (*NOT_FINITE, *RATE), GETS_WORSE, True, rate_overflows),
    "batch_of_another_unit": from_(LATER, SPIKES, ("these_rows",), False, losses(other_unit, LATER)),
    "few_damaged_rows": from_(LATER, SPIKES, ("these_rows",), True, losses(few_damaged, LATER)),
    "unit_changes": from_(LATER, SPIKES, KIND, False, losses(other_unit)),
    "inputs_change_unit": from_(LATER, SPIKES, KIND, True, scaled_inputs, hosts=FLOATS),
    "momentum_diverges": from_(LATER, (*RATE, *SPIKES, *NOT_FINITE), GETS_WORSE, True, momentum_diverges),
    "unclipped_sums": from_(LATER, (*RATE, *SPIKES, *NOT_FINITE), GETS_WORSE + KIND, True, unclipped_sums),
    "head_grows": from_(LATER, (*RATE, *SPIKES), GETS_WORSE + KIND, False, as_it_is, lambda state: head(state, 1.1)),
    "answers_fade": from_(LATER, SMALL, COLLAPSES, False, answers_fade),
    "weights_decay": from_(0, ("weights_shrink", *SMALL), ("weights_decay_away", *COLLAPSES), True, decays),
    "pulls_together": from_(0, ("constant_predictions",), COLLAPSES, True, pulls_together),
}  # fmt: skip
