"""Gradients that are not the slope of the loss: PLANTED_GRADIENTS, from a name to a set-up and what has to be told.

`fail`: it would stop a run; `warning`: it names what is off. `nothing`: the loss itself is another one, and its
gradient is right, so that only other checks can tell of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.healthy_gradients import Inputs, Read, of
from benchmarks.networks import cnn, feed_forward, mlp
from benchmarks.setup import Setup

Told = Literal["fail", "warning", "nothing"]


def own(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
    """A layer with a backward pass of its own, which is given input and gradient."""

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return backward(ctx.saved_tensors[0], gradients[0])

    class Layer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Own.apply(x)  # pyright: ignore[reportReturnType]

    return Layer()


def _between(make: Callable[[], nn.Module]) -> Callable[[int], Setup]:
    """The layer between two others."""
    return of(lambda: Read(nn.Linear(12, 32), make(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)))


class DetachedStatistics(nn.Module):
    """Batch norm whose mean and variance get no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = x.mean(0).detach(), x.var(0).detach()
        return (x - mean) / (variance + 1e-5).sqrt()


class Branches(nn.Module):
    """Two branches, of which one is cut off at its middle, by `cut`."""

    def __init__(self, cut: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.cut = cut

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.first(inputs["numbers"]).tanh()
        return self.head(self.second(self.cut(x)).tanh() + x).squeeze(-1)


class ScaledInPlace(nn.Module):
    """The weights are brought to a norm by each forward pass, outside the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(12, 16), nn.Linear(16, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        with torch.no_grad():
            self.first.weight.div_(self.first.weight.norm(dim=1, keepdim=True))
        return self.head(self.first(inputs["numbers"]).tanh()).squeeze(-1)


class PartOfACopy(nn.Module):
    """A penalty that is computed on a copy of the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = feed_forward(12, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        moved = copy.deepcopy(self.layers)(x + 0.1)
        return torch.stack([self.layers(x).squeeze(-1), moved.squeeze(-1)], 1)


def _with_a_copy(outputs: Tensor, targets: Tensor) -> Tensor:
    return (
        functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")
        + (outputs[:, 0] - outputs[:, 1]).square() * 10
    )


def _hooked(
    hook: Callable[[Tensor], Tensor], where: str = "layers.0.weight", after: bool = False
) -> Callable[[int], Setup]:
    """A hook at one parameter of three layers, at all of them if `where` is empty."""

    def network() -> nn.Module:
        model = Read(*feed_forward(12, 32, 1))
        for name, one in model.named_parameters():
            if not where or name == where:
                if after:
                    one.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", hook(p.grad)))
                else:
                    one.register_hook(hook)
        return model

    return of(network)


def _optimizer(change: Callable[[list[Tensor]], None]) -> Callable[[int], Setup]:
    """An optimizer that changes gradients before its step."""

    class Changed(torch.optim.AdamW):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.register_step_pre_hook(
                lambda one, *_: change([p.grad for g in one.param_groups for p in g["params"] if p.grad is not None])
            )

    return lambda seed: replace(mlp(seed), build_optimizers=lambda model: [Changed(model.parameters(), lr=1e-3)])


def _each(change: Callable[[Tensor], Tensor]) -> Callable[[list[Tensor]], None]:
    def every(gradients: list[Tensor]) -> None:
        for one in gradients:
            change(one)

    return every


def _times(factor: float) -> Callable[[list[Tensor]], None]:
    return _each(lambda one: one.mul_(factor))


def _earlier() -> Callable[[list[Tensor]], None]:
    """The gradients of the batch before are added."""
    kept: list[Tensor] = []

    def change(gradients: list[Tensor]) -> None:
        now = [one.clone() for one in gradients]
        for one, before in zip(gradients, kept, strict=False):
            one.add_(before)
        kept[:] = now

    return change


def _late() -> Callable[[list[Tensor]], None]:
    """Each update gets the gradients of the batch before."""
    kept: list[Tensor] = []

    def change(gradients: list[Tensor]) -> None:
        now = [one.clone() for one in gradients]
        for one, before in zip(gradients, kept, strict=False):
            one.copy_(before)
        kept[:] = now

    return change


def _noise(gradients: list[Tensor]) -> None:
    for one in gradients:
        one.add_(torch.randn_like(one) * 100 * one.norm())


class Redrawn(nn.Module):
    """Activations that are computed again in backward, with dropout that is drawn anew."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Dropout(0.5))
        self.head = nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        from torch.utils.checkpoint import checkpoint

        x = checkpoint(self.first, inputs["numbers"], use_reentrant=False, preserve_rng_state=False)
        return self.head(x).squeeze(-1)


PLANTED_GRADIENTS: dict[str, tuple[Callable[[int], Setup], Told]] = {
    # ---- backward passes of one's own ----
    "wrong_factor": (_between(lambda: own(torch.tanh, lambda x, g: 0.5 * g * (1 - x.tanh() ** 2))), "warning"),
    "wrong_sign": (_between(lambda: own(torch.tanh, lambda x, g: -g * (1 - x.tanh() ** 2))), "warning"),
    "missing_term": (_between(lambda: own(functional.silu, lambda x, g: g * x.sigmoid())), "warning"),
    "own_clamp": (_between(lambda: own(lambda x: x.clamp(-0.3, 0.3), lambda x, g: g)), "warning"),
    "every_sign": (of(lambda: Read(*feed_forward(12, 32, 1), own(lambda x: x.clone(), lambda x, g: -g))), "fail"),
    # ---- what leaves the graph ----
    "detached_statistics": (_between(DetachedStatistics), "warning"),
    "detached_branch": (of(lambda: Branches(lambda x: x.detach())), "warning"),
    "data": (of(lambda: Branches(lambda x: x.data)), "warning"),
    "through_numpy": (of(lambda: Branches(lambda x: torch.from_numpy(x.detach().numpy()))), "warning"),
    "scaled_in_place": (of(ScaledInPlace), "warning"),
    "loss_on_a_copy": (of(PartOfACopy, _with_a_copy), "warning"),
    # ---- hooks, and what an optimizer does before its step ----
    "hook_flips": (_hooked(lambda g: -g), "warning"),
    "hook_flips_all": (_hooked(lambda g: -g, ""), "fail"),
    "hook_zeroes": (_hooked(torch.zeros_like), "warning"),
    "hook_clamps": (_hooked(lambda g: g.clamp(-1e-3, 1e-3), ""), "warning"),
    "hook_adds_noise": (_hooked(lambda g: g + 100 * g.norm() * torch.randn_like(g), ""), "fail"),
    "hook_after_flips": (_hooked(lambda g: -g, "", after=True), "fail"),
    "optimizer_flips": (_optimizer(_times(-1.0)), "fail"),
    "optimizer_multiplies": (_optimizer(_times(4.0)), "warning"),
    "optimizer_adds_earlier": (lambda seed: _optimizer(_earlier())(seed), "warning"),
    "optimizer_is_late": (lambda seed: _optimizer(_late())(seed), "warning"),
    "optimizer_adds_noise": (_optimizer(_noise), "fail"),
    "optimizer_clamps": (_optimizer(_each(lambda one: one.clamp_(-1e-4, 1e-4))), "warning"),
    "dropout_redrawn": (of(Redrawn), "warning"),
    # ---- another loss, whose gradient is right ----
    "sign_of_a_part": (lambda seed: replace(cnn(seed), loss_fn=lambda o, t: functional.cross_entropy(
        o, t, reduction="none") - 0.1 * o.square().mean(1)), "nothing"),
}  # fmt: skip
