"""Healthy networks in styles of their own, for what is held against their gradients: HEALTHY_GRADIENTS.

Each is a function of a seed that gives a Setup. `DEVIATES` names those that detach or turn a part on purpose, so that
backward is truly not the slope: a warning of them is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.networks import cnn, feed_forward, gpt, mlp
from benchmarks.setup import Setup
from trainworthy.lifecycle.spec.preflight import PreflightSpec

Inputs = dict[str, Tensor]


class Read(nn.Module):
    """One output of twelve numbers, by layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.layers(inputs["numbers"]).squeeze(-1)


def of(network: Callable[[], nn.Module], loss: Callable[..., Tensor] | None = None) -> Callable[[int], Setup]:
    """A set-up of twelve numbers and a label of two values with another network, and another loss if one is given."""
    changes: dict[str, Any] = {} if loss is None else {"loss_fn": loss, "predict": None}
    return lambda seed: replace(mlp(seed), network=network, **changes)


class TiedText(nn.Module):
    """A transformer of torch's own layers whose embedding is its head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(48, 32), nn.Parameter(torch.randn(24, 32) / 10)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, inputs: Inputs) -> Tensor:
        tokens = inputs["tokens"]
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1]).to(self.place)
        hidden = self.blocks(self.embed(tokens) + self.place, mask=mask, is_causal=True)
        return hidden @ self.embed.weight.T / 6


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = nn.LSTM(8, 24, 2, batch_first=True, dropout=0.2, bidirectional=True), nn.Linear(48, 10)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(self.read(inputs["image"].squeeze(1))[0].mean(1))


class Grouped(nn.Module):
    """Residual convolutions with group norm, SiLU, dropped paths and squeeze-and-excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm, self.conv = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.gate, self.head = nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.stem(inputs["image"])
        x = x + functional.dropout2d(functional.silu(self.conv(self.norm(x))), 0.1, self.training)
        x = x * torch.sigmoid(self.gate(x.mean((2, 3))))[:, :, None, None]
        return self.head(functional.adaptive_max_pool2d(x, 1).flatten(1))


class Experts(nn.Module):
    """Each row goes to the two of four experts that its router likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(12, 4)
        self.experts = nn.ModuleList(feed_forward(12, 16, 1) for _ in range(4))

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        weight, chosen = self.router(x).softmax(1).topk(2, 1)
        every = torch.cat([expert(x) for expert in self.experts], 1)
        return (every.gather(1, chosen) * weight).sum(1)


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.coder, self.decoder = feed_forward(12, 32, 8), feed_forward(4, 32, 12)

    def forward(self, inputs: Inputs) -> dict[str, Tensor]:
        mean, log = self.coder(inputs["numbers"]).chunk(2, 1)
        made = self.decoder(mean + torch.randn_like(mean) * (log / 2).exp())
        return {"apart": (made - inputs["numbers"]).square().sum(1), "kl": 0.5 * (mean**2 + log.exp() - 1 - log).sum(1)}


class Flow(nn.Module):
    """Affine couplings; the loss is the negative log likelihood."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList(feed_forward(6, 32, 12) for _ in range(4))

    def forward(self, inputs: Inputs) -> Tensor:
        kept, moved, total = *inputs["numbers"].chunk(2, 1), 0.0
        for step in self.steps:
            scale, shift = step(kept).chunk(2, 1)
            kept, moved, total = moved * scale.tanh().exp() + shift, kept, total + scale.tanh().sum(1)
        return 0.5 * (kept.square().sum(1) + moved.square().sum(1)) - total


class Equilibrium(nn.Module):
    """The fixed point of a layer, found without a graph; the gradient is the implicit one, by a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(16, 16, bias=False), nn.Linear(12, 16), nn.Linear(16, 1)
        nn.init.orthogonal_(self.inner.weight, 0.4)

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.outer(inputs["numbers"])
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(60):
                z = torch.tanh(self.inner(z) + x)
        z = torch.tanh(self.inner(z) + x)
        if z.requires_grad:
            at = z.detach().requires_grad_()
            again = torch.tanh(self.inner(at) + x)

            def implicit(gradient: Tensor) -> Tensor:
                found = gradient
                for _ in range(60):
                    found = torch.autograd.grad(again, at, found, retain_graph=True)[0] + gradient
                return found

            z.register_hook(implicit)
        return self.head(z).squeeze(-1)


class Checkpointed(nn.Module):
    """Its parts are computed again in backward, dropout included."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(12, 32), nn.Dropout(0.3), nn.GELU())
        self.second = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.3), nn.GELU(), nn.Linear(32, 1))

    def forward(self, inputs: Inputs) -> Tensor:
        x = checkpoint(self.first, inputs["numbers"], use_reentrant=False)
        return checkpoint(self.second, x, use_reentrant=False).squeeze(-1)  # pyright: ignore[reportOptionalMemberAccess]


class Alignment(nn.Module):
    """Characters in an order, without their places: connectionist temporal classification."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 11)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(self.read(inputs["image"].squeeze(1))[0]).log_softmax(2)


def ctc(outputs: Tensor, targets: Tensor) -> Tensor:
    lengths = torch.full((len(targets),), outputs.shape[1]), torch.ones(len(targets), dtype=torch.long)
    return functional.ctc_loss(
        outputs.transpose(0, 1), targets[:, None] + 1, *lengths, blank=0, reduction="none"
    )  # fmt: skip


class Triplets(nn.Module):
    """Rows are held against their neighbours in the batch, by a margin."""

    def __init__(self) -> None:
        super().__init__()
        self.coder = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, inputs: Inputs) -> Tensor:
        return functional.normalize(self.coder(inputs["numbers"]), dim=1)


def triplet(outputs: Tensor, targets: Tensor) -> Tensor:
    near, far = outputs.roll(1, 0), outputs.roll(2, 0)
    return functional.triplet_margin_loss(outputs, near, far, margin=0.5, reduction="none")


def quantiles(outputs: Tensor, targets: Tensor) -> Tensor:
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=outputs.dtype, device=outputs.device)
    apart = targets[:, None] - outputs
    return torch.maximum(levels * apart, (levels - 1) * apart).mean(1)


class Phases(nn.Module):
    """Complex weights; an FFT of the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.head = nn.Parameter(torch.randn(7, 8, dtype=torch.complex64) / 3), nn.Linear(8, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        seen = torch.fft.rfft(inputs["numbers"])
        return self.head((seen @ self.turn.to(seen.dtype)).abs()).squeeze(-1)


class Bag(nn.Module):
    """Sparse gradients of an embedding, and frozen ones beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.held = nn.Embedding(48, 16, sparse=True), nn.Embedding(48, 16)
        self.held.requires_grad_(False)
        self.head = nn.Linear(32, 48)

    def forward(self, inputs: Inputs) -> Tensor:
        tokens = inputs["tokens"]
        return self.head(torch.cat([self.table(tokens), self.held(tokens)], 2))


class Padded(nn.Module):
    """A character that stands for nothing, and whose row of the table gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(48, 16, padding_idx=0), nn.Linear(16, 48)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(self.table(inputs["tokens"]))


class Single(nn.Module):
    """Goes through float32, whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = feed_forward(12, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"].float()
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                x = functional.linear(x, layer.weight.float(), layer.bias.float())
            else:
                x = layer(x)
        return x.squeeze(-1)


class Narrow(Read):
    """Takes float32 alone."""

    def forward(self, inputs: Inputs) -> Tensor:
        if inputs["numbers"].dtype != torch.float32:
            raise TypeError("only float32")
        return super().forward(inputs)


class Spectral(Read):
    def __init__(self) -> None:
        wrap = nn.utils.parametrizations.spectral_norm
        super().__init__(wrap(nn.Linear(12, 32), n_power_iterations=5), nn.ReLU(), nn.Linear(32, 1))


class SpectralByHook(Read):
    """The older way, whose estimate is a coarse one at first."""

    def __init__(self) -> None:
        super().__init__(nn.utils.spectral_norm(nn.Linear(12, 32)), nn.ReLU(), nn.Linear(32, 1))


class Chosen(nn.Module):
    """One of eight, drawn and passed straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.choose, self.head = feed_forward(12, 32, 8), nn.Linear(8, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(functional.gumbel_softmax(self.choose(inputs["numbers"]), hard=True)).squeeze(-1)


class Coarse(nn.Module):
    """Activations of four bits by torch's own rounding, beside a path around them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = self.first(inputs["numbers"]).relu()
        coarse = torch.fake_quantize_per_tensor_affine(x.float(), 0.5, 0, 0, 15).to(x.dtype)
        return self.head(self.second(coarse).relu() + x).squeeze(-1)


class Truncated(nn.Module):
    """A state that is held after half of the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(1, 16), nn.Linear(16, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        state = x.new_zeros(len(x), 16)
        for step in range(12):
            state = self.cell(x[:, step : step + 1], state.detach() if step == 6 else state)
        return self.head(state).squeeze(-1)


class Twins(nn.Module):
    """SimSiam: each view's prediction is held against the other's projection, which is detached."""

    def __init__(self) -> None:
        super().__init__()
        self.coder, self.guess = feed_forward(12, 32, 8), feed_forward(8, 16, 8)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        one, two = (self.coder(x + 0.1 * torch.randn_like(x)) for _ in range(2))
        near = functional.cosine_similarity(self.guess(one), two.detach())
        return -(near + functional.cosine_similarity(self.guess(two), one.detach())) / 2


class Codes(nn.Module):
    """A vector-quantised autoencoder, straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.coder, self.decoder = feed_forward(12, 32, 4), feed_forward(4, 32, 12)
        self.codes = nn.Parameter(torch.randn(16, 4))

    def forward(self, inputs: Inputs) -> Tensor:
        own = self.coder(inputs["numbers"])
        code = self.codes[torch.cdist(own, self.codes).argmin(1)]
        made = self.decoder(own + (code - own).detach())
        held = (code - own.detach()).square().sum(1) + 0.25 * (code.detach() - own).square().sum(1)
        return (made - inputs["numbers"]).square().sum(1) + held


class Game(nn.Module):
    """What makes rows and what tells them apart, in one model and one loss, held from each other by detaching."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.tell = feed_forward(4, 32, 12), feed_forward(12, 32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        x = inputs["numbers"]
        made = self.make(torch.randn(len(x), 4, dtype=x.dtype, device=x.device))
        held = {name: one.detach() for name, one in self.tell.named_parameters()}
        fooled = torch.func.functional_call(self.tell, held, (made,))
        soft = functional.softplus
        return (soft(-self.tell(x)) + soft(self.tell(made.detach())) + soft(-fooled)).squeeze(1)


class Rounded(nn.Module):
    """Weights of four bits, straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 32), nn.Linear(32, 1)

    def forward(self, inputs: Inputs) -> Tensor:
        weight = self.first.weight
        coarse = weight + ((weight * 8).round() / 8 - weight).detach()
        return self.second(functional.linear(inputs["numbers"], coarse, self.first.bias).relu()).squeeze(-1)


class WeightNorm(Read):
    def __init__(self) -> None:
        super().__init__(nn.utils.parametrizations.weight_norm(nn.Linear(12, 32)), nn.Mish(), nn.Linear(32, 1))


def as_given(outputs: Any, targets: Tensor) -> Tensor:
    return outputs


def summed(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    return outputs["apart"] + outputs["kl"]


def entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)


def _of(base: Callable[[int], Setup], **changes: Any) -> Callable[[int], Setup]:
    return lambda seed: replace(base(seed), **changes)


DEVIATES = ("twins", "codes", "game", "rounded", "chosen", "coarse", "truncated")
HEALTHY_GRADIENTS: dict[str, Callable[[int], Setup]] = {
    "tied_text": _of(gpt, network=TiedText, loss_fn=entropy),
    "sequence": _of(cnn, network=Sequence),
    "grouped": _of(cnn, network=Grouped),
    "experts": of(Experts),
    "variational": of(Variational, summed),
    "flow": of(Flow, as_given),
    "equilibrium": of(Equilibrium),
    "checkpointed": of(Checkpointed),
    "alignment": _of(cnn, network=Alignment, loss_fn=ctc),
    "triplets": of(Triplets, triplet),
    "quantiles": of(lambda: Read(feed_forward(12, 32, 3)), quantiles),
    "absolute": of(lambda: Read(feed_forward(12, 32, 1)), lambda o, t: (o - t).abs()),
    "hinge": of(lambda: Read(feed_forward(12, 32, 1)), lambda o, t: (1 - o * (2 * t - 1)).relu()),
    "huge": of(lambda: Read(feed_forward(12, 32, 1)), lambda o, t: 1e12 * (o - t).square()),
    "tiny": of(lambda: Read(feed_forward(12, 32, 1)), lambda o, t: 1e-12 * (o - t).square()),
    "beside_a_constant": of(lambda: Read(feed_forward(12, 32, 1)), lambda o, t: (o - t).square() + 1e6),
    "at_zero": of(lambda: Read(feed_forward(12, 32, 1)), lambda o, t: (o - o.detach().abs() - 9).relu() + 0 * o),
    "phases": of(Phases),
    "bag": _of(gpt, network=Bag, loss_fn=entropy),
    "padded": _of(gpt, network=Padded, loss_fn=entropy),
    "batch_norm": of(lambda: Read(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.LeakyReLU(), nn.Linear(32, 1))),
    "weight_norm": of(WeightNorm),
    "spectral": of(Spectral),
    "spectral_by_hook": of(SpectralByHook),
    "single": of(Single),
    "narrow": of(lambda: Narrow(feed_forward(12, 32, 1))),
    "sixteen_bits": _of(mlp, precision="bf16"),
    "accumulated": _of(mlp, accumulate=4),
    "clipped_hard": _of(mlp, clip_norm=1e-3),
    "twins": of(Twins, as_given),
    "codes": of(Codes, as_given),
    "game": of(Game, as_given),
    "rounded": of(Rounded),
    "chosen": of(Chosen),
    "coarse": of(Coarse),
    "truncated": of(Truncated),
}  # fmt: skip
# What a use case of them would declare.
CLAIMS = {
    "variational": PreflightSpec(labels="unused", evaluation="stochastic"),
    "flow": PreflightSpec(labels="unused"),
    "triplets": PreflightSpec(labels="unused", rows="together"),
    "bag": PreflightSpec(frozen=("held.*",)),
    "codes": PreflightSpec(labels="unused"),
    "game": PreflightSpec(labels="unused", evaluation="stochastic"),
    "chosen": PreflightSpec(evaluation="stochastic"),
}
# Healthy of gradients alone: a loss that is 0, and twins that collapse without batch norm.
NOT_TRAINED = ("at_zero", "twins")
